// SPDX-License-Identifier: GPL-2.0
//! `doctor`: checks whether this machine has what the module and the policies need.

mod kernel;
mod runtime;

use serde_json::{Value, json};

use crate::output::{Answer, SCHEMA, color};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Level {
    Ok,
    Warn,
    Fail,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Ok => "OK",
            Level::Warn => "WARN",
            Level::Fail => "FAIL",
        }
    }
}

/// One requirement, and how this machine meets it.
#[derive(Debug)]
pub struct Check {
    name: &'static str,
    level: Level,
    detail: String,
    remedy: Option<String>,
}

impl Check {
    fn new(name: &'static str, level: Level, detail: impl Into<String>) -> Self {
        Check {
            name,
            level,
            detail: detail.into(),
            remedy: None,
        }
    }

    pub fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Check::new(name, Level::Ok, detail)
    }

    pub fn warn(name: &'static str, detail: impl Into<String>) -> Self {
        Check::new(name, Level::Warn, detail)
    }

    pub fn fail(name: &'static str, detail: impl Into<String>) -> Self {
        Check::new(name, Level::Fail, detail)
    }

    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    fn line(&self) -> String {
        let Check {
            name,
            level,
            detail,
            remedy,
        } = self;
        let style = match level {
            Level::Ok => color::GOOD,
            Level::Warn => color::WARNING,
            Level::Fail => color::BAD,
        };
        let word = color::paint(style, format_args!("{:<4}", level.word()));
        match remedy {
            Some(remedy) => format!("{word}  {name}: {detail}; {remedy}\n"),
            None => format!("{word}  {name}: {detail}\n"),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "status": self.level.word().to_lowercase(),
            "detail": self.detail,
            "remedy": self.remedy,
        })
    }
}

pub fn run() -> Answer {
    let mut checks = kernel::checks();
    checks.extend(runtime::checks());
    answer(&checks)
}

fn answer(checks: &[Check]) -> Answer {
    let failed = checks.iter().any(|c| c.level == Level::Fail);
    let list: Vec<Value> = checks.iter().map(Check::to_json).collect();
    Answer {
        text: checks.iter().map(Check::line).collect(),
        json: json!({ "schema": SCHEMA, "ok": !failed, "checks": list }),
        failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_fails_the_whole() {
        let good = answer(&[Check::ok("a", "x"), Check::warn("b", "y").remedy("z")]);
        assert!(!good.failed);
        assert_eq!(good.text, "OK    a: x\nWARN  b: y; z\n");
        assert_eq!(good.json["ok"], true);
        assert_eq!(good.json["checks"][1]["status"], "warn");
        let bad = answer(&[Check::ok("a", "x"), Check::fail("b", "y")]);
        assert!(bad.failed);
        assert_eq!(bad.json["ok"], false);
    }

    #[test]
    fn every_failure_has_a_remedy() {
        for check in kernel::checks().iter().chain(&runtime::checks()) {
            assert_eq!(
                check.level == Level::Ok,
                check.remedy.is_none(),
                "{check:?}"
            );
        }
    }
}
