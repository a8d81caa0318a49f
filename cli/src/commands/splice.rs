// SPDX-License-Identifier: GPL-2.0
//! `splice show`: the splices (SO_SPLICE) that there are now.

use serde_json::json;

use crate::error::Result;
use crate::kernel::module::Module;
use crate::kernel::pair::socket;
use crate::kernel::splice::{self, Splice};
use crate::output::{Align, Answer, SCHEMA, Table, age};

pub fn show() -> Result<Answer> {
    let (module, status) = Module::open()?;
    Ok(answer(&splice::list(&module)?, status.so_splice))
}

/// One line for each splice: where its bytes come from and where they go. `on`: new splices are
/// accepted.
fn answer(splices: &[Splice], on: bool) -> Answer {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("AGE", Right),
        ("FROM", Left),
        ("SOURCE", Left),
        ("SINK", Left),
        ("TO", Left),
        ("MOVED", Right),
        ("MAX", Right),
        ("IDLE-MS", Right),
        ("UID", Right),
        ("PROCESS", Left),
    ]);
    let limit = |n: u64| match n {
        0 => "-".to_string(),
        n => n.to_string(),
    };
    for s in splices {
        table.row(vec![
            age(s.age_ms),
            socket(&s.source.peer),
            socket(&s.source.local),
            socket(&s.sink.local),
            socket(&s.sink.peer),
            s.moved.to_string(),
            limit(s.max),
            limit(s.idle_ms),
            s.uid.to_string(),
            s.source.processes(),
        ]);
    }
    let text = match (splices.is_empty(), on) {
        (false, _) => table.render(),
        (true, true) => "no splice: no application has one (SO_SPLICE) now\n".into(),
        (true, false) => {
            "no splice: SO_SPLICE is off; run 'socksplice feature set so-splice on'\n".into()
        }
    };
    Answer::new(text, json!({ "schema": SCHEMA, "splices": splices }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::splice::tests::splice;

    #[test]
    fn both_forms_say_from_where_to_where() {
        let answer = answer(&[splice(&[127, 0, 0, 1]).unwrap()], true);
        let json = &answer.json["splices"][0];
        assert_eq!(json["source"]["local"]["port"], 1000);
        assert_eq!(json["sink"]["local"]["port"], 2000);
        assert_eq!(json["sink"]["netns"]["name"], "blue");
        assert_eq!(json["moved"], 5_000_000_000u64);
        assert_eq!(json["max"], 0);
        let line = answer.text.lines().nth(1).unwrap();
        assert!(line.contains("127.0.0.1:1000") && line.contains("127.0.0.1:2000"));
        assert!(line.contains("5000000000") && line.contains("1500"));
    }

    #[test]
    fn an_empty_table_says_why() {
        assert!(answer(&[], true).text.starts_with("no splice: no application"));
        assert!(answer(&[], false).text.starts_with("no splice: SO_SPLICE is off"));
    }
}
