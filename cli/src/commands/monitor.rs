// SPDX-License-Identifier: GPL-2.0
//! `pair monitor`: the module's verdicts as they happen.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::PairMonitor;
use crate::commands::filter::Filter;
use crate::error::{Error, Result};
use crate::kernel::module::Module;
use crate::kernel::netlink::Attributes;
use crate::kernel::pair::Pair;
use crate::kernel::sockmap::Sockmaps;
use crate::output::{Answer, SCHEMA, age, say, timestamp};
use crate::system::netns::Names;
use crate::uapi::{A_EVENT, A_EVENT_REASON, A_EVENT_SEQ, A_EVENT_TIME, EVENTS};

/// How often to check that the module is still loaded.
const INTERVAL: Duration = Duration::from_secs(1);

/// A verdict, about one end or, where both are known, about both ends of a connection.
struct Event {
    seq: u64,
    time: Duration,
    name: &'static str,
    reason: Option<String>,
    about: Pair,
}

pub fn run(arguments: PairMonitor, json: bool) -> Result<Answer> {
    let (module, status) = Module::open()?;
    if !status.events {
        return Err(
            Error::new("events reach the initial network namespace only")
                .remedy("run it there: 'nsenter --target 1 --net socksplice pair monitor'"),
        );
    }
    let filter = Filter::of_ends(&arguments.filter)?;
    let listener = module.events(arguments.buffer as usize * 1024)?;
    // Tells the user when listening begins. A closed stderr does not matter.
    let _ = writeln!(io::stderr(), "socksplice: listening");

    let unreadable = |e: io::Error| Error::new(format!("cannot read what the module sent: {e}"));
    let mut losses = Losses::default();
    let mut left = arguments.count.unwrap_or(usize::MAX);
    let mut hinted = false;
    loop {
        let messages = listener.receive(INTERVAL).map_err(unreadable)?;
        if messages.is_empty() && !module.is_same() {
            return Err(
                Error::new("the module was unloaded").remedy("start this again once it is loaded")
            );
        }
        for message in &messages {
            let event = Event::from_attributes(message, &Names::read()).map_err(unreadable)?;
            let lost = losses.before(event.seq);
            if lost > 0 && !say(loss(lost, json))? {
                return Ok(Answer::said());
            }
            let asked = arguments.events.is_empty()
                || arguments.events.iter().any(|name| name == event.name);
            if !asked || !filter.wants(&event.about) {
                continue;
            }
            if event.reason.as_deref() == Some("psock") && !hinted {
                hinted = true;
                hint();
            }
            let said = match json {
                true => say(event.json()),
                false => say(event.text()),
            };
            left -= 1;
            if !said? || left == 0 {
                return Ok(Answer::said());
            }
        }
    }
}

/// Names the sockmaps that the sockets may be in. It prints to standard error, because
/// standard output has nothing but events.
fn hint() {
    if let Some(text) = Sockmaps::read().ok().and_then(|found| found.text()) {
        let _ = writeln!(io::stderr(), "socksplice: psock: sockets in {text}");
    }
}

/// Events are numbered without a gap.
#[derive(Default)]
struct Losses {
    last: Option<u64>,
}

impl Losses {
    fn before(&mut self, seq: u64) -> u64 {
        let last = self.last.replace(seq);
        last.map_or(0, |last| seq.saturating_sub(last + 1))
    }
}

fn loss(count: u64, json: bool) -> String {
    match json {
        true => json!({ "schema": SCHEMA, "event": "lost", "count": count }).to_string(),
        false => format!("{count} events lost"),
    }
}

impl Event {
    fn from_attributes(a: &Attributes, names: &Names) -> io::Result<Self> {
        let event = a.number(A_EVENT) as usize;
        let name = EVENTS.get(event.wrapping_sub(1)).unwrap_or(&"unknown");
        Ok(Event {
            seq: a.number(A_EVENT_SEQ),
            time: Duration::from_nanos(a.number(A_EVENT_TIME)),
            name,
            reason: a.string(A_EVENT_REASON),
            about: Pair::from_attributes(a, names)?,
        })
    }

    fn text(&self) -> String {
        let pair = &self.about;
        let reason = self.reason.as_deref().unwrap_or("-");
        let mut text = format!("{} {:8} {reason:10}", timestamp(self.time), self.name);
        if let Some(end) = pair.ends.first() {
            text += &format!(" {}", end.addresses());
        }
        let mut netns: Vec<_> = pair.ends.iter().map(|end| end.netns.shown()).collect();
        netns.dedup();
        text += &format!(" netns {}", netns.join(","));
        if let [opener, other] = pair.ends.as_slice() {
            let (a, b) = (&opener.sent, &other.sent);
            text += &format!(
                " pair {} age {} ring {}/{} tcp {}/{}",
                pair.id,
                age(pair.age_ms),
                a.ring.bytes,
                b.ring.bytes,
                a.tcp.bytes,
                b.tcp.bytes
            );
        }
        text
    }

    fn json(&self) -> Value {
        let pair = &self.about;
        let paired = pair.ends.len() == 2;
        json!({
            "schema": SCHEMA,
            "event": self.name,
            "reason": self.reason,
            "time": timestamp(self.time),
            "pair": paired.then_some(pair.id),
            "age_ms": paired.then_some(pair.age_ms),
            "ends": pair.ends,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::pair::tests::pair;

    fn event(about: Pair) -> Event {
        Event {
            seq: 1,
            time: Duration::new(0, 1000),
            name: "ended",
            reason: Some("closed".into()),
            about,
        }
    }

    #[test]
    fn one_line_with_all_of_a_pair() {
        let event = event(pair(&[127, 0, 0, 1]).unwrap());
        assert_eq!(
            event.text(),
            "1970-01-01T00:00:00.000001Z ended    closed     127.0.0.1:40000 -> 127.0.0.1:80 \
             netns blue(4026531840) pair 9 age 1m01s ring 1000/1000 tcp 5/5"
        );
        let json = event.json();
        assert_eq!(json["event"], "ended");
        assert_eq!(json["pair"], 9);
        assert_eq!(json["ends"][1]["sent"]["ring"]["bytes"], 1000);
    }

    #[test]
    fn one_end_is_no_pair() {
        let mut pair = pair(&[127, 0, 0, 1]).unwrap();
        pair.ends.truncate(1);
        let event = event(pair);
        assert!(event.text().ends_with("netns blue(4026531840)"));
        assert!(event.json()["pair"].is_null());
    }

    #[test]
    fn gaps_are_counted() {
        let mut losses = Losses::default();
        assert_eq!([7, 8, 11, 12].map(|seq| losses.before(seq)), [0, 0, 2, 0]);
        assert_eq!(loss(2, false), "2 events lost");
    }
}
