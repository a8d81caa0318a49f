// SPDX-License-Identifier: GPL-2.0
//! `stats`: the module's counters. Their names come from the module.

use serde_json::{Map, json};

use crate::error::Result;
use crate::module::Module;
use crate::output::{Align, Answer, SCHEMA, Table};

pub fn show() -> Result<Answer> {
    let (module, _) = Module::open()?;
    Ok(answer(&module.stats()?))
}

fn answer(counters: &[(String, u64)]) -> Answer {
    let mut table = Table::new(&[("COUNTER", Align::Left), ("VALUE", Align::Right)]);
    let mut stats = Map::new();
    for (name, value) in counters {
        table.row(vec![name.clone(), value.to_string()]);
        stats.insert(name.clone(), (*value).into());
    }
    Answer::new(table.render(), json!({ "schema": SCHEMA, "stats": stats }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_every_counter() {
        let answer = answer(&[("pairs_made".into(), 3), ("ring_bytes".into(), u64::MAX)]);
        assert_eq!(
            answer.text,
            "COUNTER                    VALUE\n\
             pairs_made                     3\n\
             ring_bytes  18446744073709551615\n"
        );
        assert_eq!(answer.json["stats"]["ring_bytes"], u64::MAX);
        assert_eq!(answer.json["schema"], 1);
    }
}
