// SPDX-License-Identifier: GPL-2.0
//! `stats`: the module's counters. Their names come from the module.

use serde_json::{Map, json};

use crate::cli::StatsShow;
use crate::error::Result;
use crate::kernel::module::Module;
use crate::kernel::sockmap::{PSOCK, Sockmaps};
use crate::output::{Align, Answer, SCHEMA, Table};

pub fn show(arguments: &StatsShow) -> Result<Answer> {
    let (module, _) = Module::open()?;
    let counters = module.stats()?;
    let declined = counters.iter().any(|c| c.0 == PSOCK && c.1 > 0);
    // Root that may not look at BPF objects still sees the counters.
    let sockmaps = declined.then(Sockmaps::read).and_then(|read| read.ok());
    Ok(answer(&counters, sockmaps.as_ref(), arguments.all))
}

/// `sockmaps`: where sockets were declined because they are in one.
/// `all`: the table has those that are 0.
fn answer(counters: &[(String, u64)], sockmaps: Option<&Sockmaps>, all: bool) -> Answer {
    let mut table = Table::new(&[("COUNTER", Align::Left), ("VALUE", Align::Right)]);
    let mut stats = Map::new();
    for (name, value) in counters {
        if all || *value > 0 {
            table.row(vec![name.clone(), value.to_string()]);
        }
        stats.insert(name.clone(), (*value).into());
    }
    let mut answer = Answer::new(table.render(), json!({ "schema": SCHEMA, "stats": stats }));
    if let Some(sockmaps) = sockmaps {
        answer.json["sockmaps"] = sockmaps.to_json();
        if let Some(text) = sockmaps.text() {
            answer.text += &format!("{PSOCK}: sockets in {text}\n");
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_every_counter() {
        let counters = [
            ("pairs_made".into(), 3),
            ("spills".into(), 0),
            ("ring_bytes".into(), u64::MAX),
        ];
        assert!(answer(&counters, None, true).text.contains("\nspills "));
        let answer = answer(&counters, None, false);
        assert_eq!(
            answer.text,
            "COUNTER                    VALUE\n\
             pairs_made                     3\n\
             ring_bytes  18446744073709551615\n"
        );
        assert_eq!(answer.json["stats"]["spills"], 0);
        assert_eq!(answer.json["stats"]["ring_bytes"], u64::MAX);
        assert_eq!(answer.json["schema"], 1);
    }

    #[test]
    fn says_who_keeps_sockets_in_a_sockmap() {
        let answer = answer(
            &[(PSOCK.into(), 3)],
            Some(&crate::kernel::sockmap::tests::agent()),
            false,
        );
        assert!(
            answer.text.contains(
                "\ndeclined_psock: sockets in sockhash kept (id 12) of agent(77), used by"
            )
        );
        assert_eq!(answer.json["sockmaps"][0]["name"], "kept");
    }
}
