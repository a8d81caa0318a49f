// SPDX-License-Identifier: GPL-2.0
//! What is wrong for some time: a line when it begins, and one when it is over.

use std::collections::BTreeMap;

use crate::policy::health::{Id, Report};

/// The conditions that there are, by the task that has seen them.
#[derive(Default)]
pub struct Conditions(BTreeMap<&'static str, Vec<String>>);

impl Conditions {
    /// What a task sees now; the lines to print. A text that differs from one before in its
    /// numbers only is the same condition.
    pub fn set(&mut self, by: &'static str, now: Vec<String>) -> Vec<String> {
        let before = self.0.remove(by).unwrap_or_default();
        let among = |text: &String, list: &[String]| {
            list.iter()
                .any(|other| without_numbers(other) == without_numbers(text))
        };
        let begun = now.iter().filter(|text| !among(text, &before)).cloned();
        let over = before.iter().filter(|text| !among(text, &now));
        let lines = begun
            .chain(over.map(|text| format!("over: {text}")))
            .collect();
        self.0.insert(by, now);
        lines
    }

    pub fn summary(&self) -> String {
        let all: Vec<&String> = self.0.values().flatten().collect();
        match all.as_slice() {
            [] => "nothing keeps connections from being paired".into(),
            [one] => one.to_string(),
            [first, rest @ ..] => format!("{first} ({} more)", rest.len()),
        }
    }
}

/// Also without the names of cgroups and containers, if those have digits: a policy is told apart
/// by its name, which comes first.
fn without_numbers(text: &str) -> String {
    let head = text.split(": ").next().unwrap_or(text);
    match head.starts_with("policy ") {
        true => text.to_string(),
        false => text.replace(|c: char| c.is_ascii_digit(), ""),
    }
}

/// One sentence for each thing that keeps policies from pairing. A policy that waits for some of
/// what it names is in the notes, and one that waits for all of it has a complaint, too.
pub fn of_report(report: &Report) -> Vec<String> {
    let waiting: Vec<&str> = report
        .of(Id::PolicyWaiting)
        .map(|c| c.text.as_str())
        .collect();
    let notes = report.notes.iter();
    let notes = notes
        .filter(|note| !waiting.contains(&note.as_str()))
        .cloned();
    let complaints = report.complaints.iter();
    notes
        .chain(complaints.map(|c| format!("{}; {}", c.text, c.remedy)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::health::Complaint;

    #[test]
    fn one_line_when_it_begins_and_one_when_it_is_over() {
        let mut conditions = Conditions::default();
        let now = |list: &[&str]| list.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        assert_eq!(conditions.set("a", now(&["x 1", "y"])), ["x 1", "y"]);
        assert!(conditions.set("a", now(&["x 12", "y"])).is_empty());
        // Each task has its own.
        assert_eq!(conditions.set("b", now(&["z"])), ["z"]);
        assert_eq!(conditions.summary(), "x 12 (2 more)");
        assert_eq!(conditions.set("a", now(&["y"])), ["over: x 12"]);
        assert_eq!(conditions.set("a", now(&[])), ["over: y"]);
        assert_eq!(conditions.set("b", now(&[])), ["over: z"]);
        assert!(conditions.summary().starts_with("nothing"));
        let policies = now(&["policy p1 waits: a", "policy p2 waits: a"]);
        assert_eq!(conditions.set("a", policies.clone()), policies);
    }

    #[test]
    fn a_policy_that_waits_is_told_once() {
        let complaint = |id, text: &str| Complaint {
            id,
            text: text.into(),
            remedy: "do it".into(),
        };
        let report = Report {
            complaints: vec![
                complaint(Id::PolicyWaiting, "policy a matches nothing yet"),
                complaint(Id::PairingOff, "pairing is off"),
            ],
            notes: vec![
                "policy a matches nothing yet".into(),
                "policy b waits for some".into(),
            ],
            ..Report::default()
        };
        assert_eq!(
            of_report(&report),
            [
                "policy b waits for some",
                "policy a matches nothing yet; do it",
                "pairing is off; do it"
            ]
        );
    }
}
