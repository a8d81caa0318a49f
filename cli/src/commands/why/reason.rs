// SPDX-License-Identifier: GPL-2.0
//! From what is known of a connection to why it is not paired.

use std::time::Duration;

use crate::kernel::sock_diag::State;
use crate::output::age;
use crate::policy::decide::Condition;

/// The ULP name of sockets that the module has enrolled, and of the sources and sinks of splices.
const ENROLLED: &str = "socksplice";
const SPLICED: &str = "so_splice";

/// What is true of all connections.
#[derive(Default)]
pub struct Machine {
    pub pairing: bool,
    pub shadow: bool,
    pub hooked: bool,
    /// Every connection is enrolled, whatever the policies say.
    pub enroll_all: bool,
    /// How long the policies have been in force; None if there are none.
    pub policies_age: Option<Duration>,
    /// Counters of ends that were declined or had no peer, those that are not 0.
    pub counters: Vec<(String, u64)>,
}

/// One end of a connection; None if this machine has no such socket.
pub type End = Option<Facts>;

pub struct Facts {
    pub state: State,
    pub pair: Option<InPair>,
    pub named: Named,
    pub ulp: Option<String>,
    pub sockmap: InSockmap,
    pub paced: bool,
    pub least_age: Duration,
}

pub struct InPair {
    pub id: u64,
    pub age_ms: u64,
    pub draining: bool,
    pub ring_bytes: u64,
    pub tcp_bytes: u64,
    /// It has no ring to send into, and a cap on memory has kept ends of this machine from one.
    pub capped: bool,
}

/// What the policies say of an end.
pub enum Named {
    /// The policy of this name names it.
    Pair(String),
    /// The policy of this name keeps it on TCP.
    Tcp(String),
    /// None names it.
    Missed(Missed),
    /// There are no policies.
    Nothing,
}

pub struct Missed {
    pub condition: Condition,
    /// What the end has, and the policy that comes closest with what it wants.
    pub has: String,
    pub policy: String,
    pub wants: String,
    /// How many other policies there are.
    pub others: usize,
}

/// Whether a socket is in a sockmap, with a text about the map.
pub enum InSockmap {
    No,
    Yes(String),
    Maybe(String),
}

#[derive(Debug, PartialEq)]
pub struct Reason {
    /// For programs: one word.
    pub word: &'static str,
    pub text: String,
    pub remedy: Option<String>,
}

impl Reason {
    fn new(word: &'static str, text: impl Into<String>) -> Self {
        Reason {
            word,
            text: text.into(),
            remedy: None,
        }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    pub fn is_paired(&self) -> bool {
        self.word == "paired"
    }
}

/// Of each end of a connection. At least one of them exists.
pub fn of(machine: &Machine, ends: &[End; 2]) -> [Reason; 2] {
    let faults = [0, 1].map(|i| fault(machine, &ends[i], &ends[1 - i]));
    let blamed = faults.iter().any(Option::is_some);
    let mut i = 0;
    faults.map(|fault| {
        let end = &ends[i];
        i += 1;
        fault.unwrap_or_else(|| match end {
            Some(facts) if blamed => other_end(facts),
            Some(facts) => nothing_found(machine, facts),
            None => unreachable!("an end that does not exist is a fault"),
        })
    })
}

/// What is to be said of an end by itself: that it is paired, or what is wrong with it.
fn fault(machine: &Machine, end: &End, other: &End) -> Option<Reason> {
    let Some(facts) = end else {
        return Some(absent(other));
    };
    if let Some(pair) = &facts.pair {
        return Some(paired(pair));
    }
    if facts.state == State::Opening {
        let text = "its handshake is not over, and pairing comes at its end";
        return Some(Reason::new("opening", text).remedy("ask again"));
    }
    of_machine(machine, facts)
        .or_else(|| of_policies(machine, facts))
        .or_else(|| of_socket(machine, facts))
}

fn absent(other: &End) -> Reason {
    match other {
        Some(other) if other.state == State::Closing => Reason::new(
            "closed",
            "its socket is gone: the connection is being closed",
        )
        .remedy("connect again"),
        _ => Reason::new(
            "elsewhere",
            "no socket of this machine has these addresses: this end is on another machine, \
             or address translation shows it others",
        )
        .remedy("only a connection with both ends on this machine can be paired"),
    }
}

fn paired(pair: &InPair) -> Reason {
    let id = pair.id;
    if pair.draining {
        return Reason::new("draining", format!("pair {id} is on its way back to TCP"))
            .remedy("connect again to have a new pair");
    }
    let mut text = format!(
        "paired (pair {id}, for {}): it has sent {} bytes by ring and {} by TCP",
        age(pair.age_ms),
        pair.ring_bytes,
        pair.tcp_bytes
    );
    if pair.capped {
        text += "; it has no ring now, and a cap on memory was reached (rings_capped)";
    }
    Reason::new("paired", text)
}

/// Switches keep every connection on TCP.
fn of_machine(machine: &Machine, facts: &Facts) -> Option<Reason> {
    if facts.ulp.as_deref() == Some(ENROLLED) {
        return None; // it was enrolled before, or in spite of them
    }
    if !machine.hooked {
        let text = "the module's hooks are not installed, so nothing is paired";
        return Some(Reason::new("hook", text).remedy("'socksplice doctor' says why"));
    }
    if !machine.pairing {
        return Some(
            Reason::new("off", "pairing is switched off")
                .remedy("run 'socksplice feature set pairing on', then connect again"),
        );
    }
    if machine.shadow {
        let text = "the module is in shadow mode: it counts matches and pairs nothing";
        return Some(Reason::new("shadow", text).remedy("load it without shadow=1"));
    }
    None
}

fn of_policies(machine: &Machine, facts: &Facts) -> Option<Reason> {
    if machine.enroll_all {
        return None;
    }
    match &facts.named {
        Named::Pair(_) => None,
        Named::Tcp(policy) => Some(
            Reason::new(
                "policy",
                format!("policy {policy} names it and keeps it on TCP (pair = false)"),
            )
            .remedy(format!(
                "put a policy that pairs before {policy}, then connect again"
            )),
        ),
        Named::Nothing => Some(
            Reason::new("no_policy", "no policy is set")
                .remedy("set one ('socksplice policy set --help'), then connect again"),
        ),
        Named::Missed(missed) => Some(of_missed(missed)),
    }
}

fn of_missed(missed: &Missed) -> Reason {
    let Missed {
        has,
        policy,
        wants,
        others,
        ..
    } = missed;
    let (word, text, what) = match missed.condition {
        Condition::Cgroup => (
            "cgroup",
            format!("its cgroup is {has}, policy {policy} names {wants}"),
            "the cgroup",
        ),
        Condition::Port => (
            "port",
            format!("its ports are {has}, policy {policy} names {wants}"),
            "one of the ports",
        ),
        Condition::Network => (
            "network",
            format!("its addresses are {has}, policy {policy} names {wants}"),
            "one of the addresses",
        ),
        Condition::LoopbackOnly => (
            "loopback_only",
            format!("its addresses are {has}, policy {policy} is for loopback only"),
            "the addresses",
        ),
    };
    let more = match others {
        0 => String::new(),
        1 => " (the other policy does not match either)".into(),
        n => format!(" (the {n} other policies do not match either)"),
    };
    Reason::new(word, format!("no policy names it: {text}{more}")).remedy(format!(
        "set a policy that names {what} ('socksplice policy set --help'), then connect again"
    ))
}

/// What the kernel shows of the socket, certain things first.
fn of_socket(machine: &Machine, facts: &Facts) -> Option<Reason> {
    match facts.ulp.as_deref() {
        None | Some(SPLICED) => {}
        Some(ENROLLED) => return None,
        Some(ulp) => return Some(of_ulp(ulp)),
    }
    let leave_out = "let that program leave out the connections that are to be paired";
    if let InSockmap::Yes(map) = &facts.sockmap {
        let text = format!("its socket is in {map}");
        return Some(Reason::new("sockmap", text).remedy(leave_out));
    }
    if facts.paced {
        let text = "SO_MAX_PACING_RATE limits its rate, and a socket that has such a limit at \
                    its handshake is not paired";
        return Some(
            Reason::new("pacing", text).remedy("let the program leave local connections unlimited"),
        );
    }
    let set = machine.policies_age.filter(|_| !machine.enroll_all);
    if let Some(set) = set.filter(|set| facts.least_age > *set) {
        let (old, set) = (millis(facts.least_age), millis(set));
        let text =
            format!("it is older than the policies: {old} or more, and they were set {set} ago");
        return Some(Reason::new("older", text).remedy("connect again"));
    }
    if let InSockmap::Maybe(maps) = &facts.sockmap {
        let text = format!("its socket may be in a sockmap: {maps}");
        return Some(Reason::new("sockmap", text).remedy(leave_out));
    }
    None
}

fn of_ulp(ulp: &str) -> Reason {
    let (text, remedy) = match ulp {
        "tls" => (
            "its socket uses kTLS, which TCP has to see".into(),
            "switch kTLS off in the program for local connections",
        ),
        "mptcp" => (
            "its socket is a subflow of MPTCP".into(),
            "let the program use plain TCP, for example with GODEBUG=multipathtcp=0",
        ),
        ulp => (
            format!("its socket has the ULP {ulp}"),
            "let the program do without it for local connections",
        ),
    };
    Reason::new("ulp", text).remedy(remedy)
}

fn millis(duration: Duration) -> String {
    age(duration.as_millis() as u64)
}

fn named(facts: &Facts) -> String {
    match &facts.named {
        Named::Pair(policy) => format!("policy {policy} names it"),
        _ => "it is enrolled without a policy".into(),
    }
}

fn other_end(facts: &Facts) -> Reason {
    Reason::new(
        "other_end",
        format!("{}; the reason is the other end", named(facts)),
    )
}

/// Nothing is wrong with either end.
fn nothing_found(machine: &Machine, facts: &Facts) -> Reason {
    let named = named(facts);
    if facts.ulp.as_deref() == Some(ENROLLED) {
        let text = format!("{named}, and it waits for the other end, two seconds at most");
        return Reason::new("waiting", text).remedy("ask again");
    }
    let mut guesses = Vec::new();
    if let Some(set) = machine.policies_age.filter(|_| !machine.enroll_all) {
        guesses.push(format!(
            "is older than the policies, which were set {} ago",
            millis(set)
        ));
    }
    guesses.push("was paired and taken back to TCP".into());
    if !machine.counters.is_empty() {
        let counters = machine.counters.iter();
        let counters: Vec<String> = counters.map(|(name, n)| format!("{name}: {n}")).collect();
        guesses.push(format!(
            "was declined, as other ends were ({})",
            counters.join(", ")
        ));
    }
    let text = format!(
        "{named}, and no reason was found; maybe it {}",
        guesses.join(", or ")
    );
    Reason::new("unknown", text)
        .remedy("run 'socksplice pair monitor' and connect again: it prints the reason")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            pairing: true,
            hooked: true,
            policies_age: Some(Duration::from_secs(61)),
            ..Machine::default()
        }
    }

    fn facts() -> Facts {
        Facts {
            state: State::Established,
            pair: None,
            named: Named::Pair("web".into()),
            ulp: None,
            sockmap: InSockmap::No,
            paced: false,
            least_age: Duration::from_secs(1),
        }
    }

    /// Of an end that `change` was made to, beside an end that is as it should be.
    fn words(machine: &Machine, change: impl Fn(&mut Facts)) -> [&'static str; 2] {
        let mut changed = facts();
        change(&mut changed);
        of(machine, &[Some(changed), Some(facts())]).map(|reason| reason.word)
    }

    fn missed(condition: Condition, others: usize) -> Named {
        Named::Missed(Missed {
            condition,
            has: "this".into(),
            policy: "web".into(),
            wants: "that".into(),
            others,
        })
    }

    #[test]
    fn what_one_end_has() {
        for (word, change) in [
            (
                "policy",
                (|f| f.named = Named::Tcp("no".into())) as fn(&mut Facts),
            ),
            ("no_policy", |f| f.named = Named::Nothing),
            ("cgroup", |f| f.named = missed(Condition::Cgroup, 0)),
            ("port", |f| f.named = missed(Condition::Port, 1)),
            ("network", |f| f.named = missed(Condition::Network, 2)),
            ("loopback_only", |f| {
                f.named = missed(Condition::LoopbackOnly, 0)
            }),
            ("opening", |f| f.state = State::Opening),
            ("ulp", |f| f.ulp = Some("tls".into())),
            ("ulp", |f| f.ulp = Some("mptcp".into())),
            ("ulp", |f| f.ulp = Some("smc".into())),
            ("sockmap", |f| f.sockmap = InSockmap::Yes("a map".into())),
            ("sockmap", |f| f.sockmap = InSockmap::Maybe("a map".into())),
            ("pacing", |f| f.paced = true),
            ("older", |f| f.least_age = Duration::from_secs(62)),
        ] {
            assert_eq!(words(&machine(), change), [word, "other_end"]);
        }
        let older_first = |f: &mut Facts| {
            f.least_age = Duration::from_secs(62);
            f.sockmap = InSockmap::Maybe("a map".into());
        };
        assert_eq!(words(&machine(), older_first)[0], "older");
    }

    #[test]
    fn what_both_ends_have() {
        let off = Machine {
            pairing: false,
            ..machine()
        };
        assert_eq!(words(&off, |_| ()), ["off", "off"]);
        let shadow = Machine {
            shadow: true,
            ..machine()
        };
        assert_eq!(words(&shadow, |_| ()), ["shadow", "shadow"]);
        let unhooked = Machine {
            hooked: false,
            ..machine()
        };
        assert_eq!(words(&unhooked, |_| ()), ["hook", "hook"]);
        assert_eq!(words(&machine(), |_| ()), ["unknown", "unknown"]);
        let enrolled = |f: &mut Facts| f.ulp = Some("socksplice".into());
        assert_eq!(words(&machine(), enrolled), ["waiting", "unknown"]);
        // Without policies the socket may still be enrolled.
        let all = Machine {
            enroll_all: true,
            policies_age: None,
            ..machine()
        };
        assert_eq!(words(&all, |f| f.named = Named::Nothing)[0], "unknown");
    }

    #[test]
    fn an_end_that_is_not_here() {
        let of = |facts| of(&machine(), &[None, Some(facts)]).map(|reason| reason.word);
        assert_eq!(of(facts()), ["elsewhere", "other_end"]);
        let closing = Facts {
            state: State::Closing,
            ..facts()
        };
        assert_eq!(of(closing), ["closed", "other_end"]);
    }

    #[test]
    fn a_pair_comes_first() {
        let pair = |draining| InPair {
            id: 9,
            age_ms: 61_000,
            draining,
            ring_bytes: 1000,
            tcp_bytes: 5,
            capped: true,
        };
        let off = Machine {
            pairing: false,
            ..machine()
        };
        let in_pair = |draining| Facts {
            pair: Some(pair(draining)),
            ..facts()
        };
        let paired = of(&off, &[Some(in_pair(false)), Some(in_pair(false))]);
        assert!(paired.iter().all(Reason::is_paired));
        assert!(
            paired[0]
                .text
                .starts_with("paired (pair 9, for 1m01s): it has sent 1000 bytes")
        );
        assert!(paired[0].text.contains("rings_capped"));
        let draining = of(&off, &[Some(in_pair(true)), Some(in_pair(true))]);
        assert!(draining.iter().all(|reason| reason.word == "draining"));
    }

    #[test]
    fn what_is_only_counted_is_a_guess() {
        let counted = Machine {
            counters: vec![("declined_filter".into(), 3)],
            ..machine()
        };
        let [reason, _] = of(&counted, &[Some(facts()), Some(facts())]);
        for part in ["policy web names it", "set 1m01s ago", "declined_filter: 3"] {
            assert!(reason.text.contains(part), "{}", reason.text);
        }
        assert!(reason.remedy.unwrap().contains("pair monitor"));
    }

    #[test]
    fn the_condition_with_its_value() {
        let mut facts = facts();
        facts.named = missed(Condition::Port, 2);
        let [reason, _] = of(&machine(), &[Some(facts), None]);
        assert_eq!(
            reason.text,
            "no policy names it: its ports are this, policy web names that \
             (the 2 other policies do not match either)"
        );
    }
}
