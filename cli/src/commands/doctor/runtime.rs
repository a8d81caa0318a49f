// SPDX-License-Identifier: GPL-2.0
//! What was set up on the running kernel: the module, the file systems, the
//! policy.

use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::kernel::module::{self, Module, Status};
use crate::kernel::sockmap::{PSOCK, Sockmaps};
use crate::policy::health::{HOW_TO_FIND_PEERS, Id, Report, Watch};
use crate::policy::{self, pin};
use crate::system::cgroup::Hierarchy;
use crate::values::size;

use super::Check;

const FTRACE_ENABLED: &str = "/proc/sys/kernel/ftrace_enabled";
const BUSY_POLL: &str = "/proc/sys/net/core/busy_poll";

pub fn checks() -> Vec<Check> {
    let opened = module::require_root().and_then(|()| Module::connect());
    let status = opened.as_ref().map_err(Error::clone);
    let status = status.and_then(|module| module.status());
    let mut checks = vec![module(&status)];
    if let Ok(status) = &status {
        checks.push(module_btf(status, Path::new(module::BTF).exists()));
        checks.push(hook(status, ftrace_is_on()));
        checks.push(pairing(status, pin::live().is_some()));
    }
    checks.extend([cgroup(), bpffs()]);
    match (&opened, &status) {
        (Ok(module), Ok(status)) => {
            let report = Watch::default().look(module);
            checks.extend(of_report(&report, status.memory_cap));
        }
        _ => checks.push(policy()),
    }
    checks.extend([busy_poll(), sockmaps()]);
    checks
}

/// What is told of policies, pairs and memory.
fn of_report(report: &Result<Report, Error>, memory_cap: u64) -> Vec<Check> {
    match report {
        Ok(report) => vec![
            policy_of(report),
            pairs(report),
            peers(report),
            memory(report, memory_cap),
        ],
        Err(e) => vec![failed(POLICY, e)],
    }
}

/// A failed check for the complaints of one kind, with the remedy of the first. None if there
/// is none.
fn complaints(name: &'static str, report: &Report, id: Id) -> Option<Check> {
    let remedy = report.of(id).next()?.remedy.clone();
    let texts: Vec<&str> = report.of(id).map(|c| c.text.as_str()).collect();
    Some(Check::fail(name, texts.join(", ")).remedy(remedy))
}

/// A failed check with the message and the remedy of an error.
fn failed(name: &'static str, error: &Error) -> Check {
    let remedy = error.remedy.clone();
    Check::fail(name, &error.message).remedy(remedy.unwrap_or_else(|| "see 'dmesg'".into()))
}

fn module(status: &Result<Status, Error>) -> Check {
    const NAME: &str = "module";
    match status {
        Ok(status) => match module::check_version(&status.version) {
            Ok(()) => Check::ok(NAME, format!("version {}", status.version)),
            Err(e) => failed(NAME, &e),
        },
        Err(e) => failed(NAME, e),
    }
}

fn module_btf(status: &Status, exists: bool) -> Check {
    const NAME: &str = "module BTF";
    if status.btf && exists {
        let hooks = match status.sock_ops {
            true => "tracepoint and sock_ops programs",
            false => "tracepoint programs",
        };
        Check::ok(NAME, format!("{hooks} can call the module"))
    } else {
        Check::fail(NAME, "BPF programs cannot call the module").remedy(
            "install the kernel's headers and pahole (package dwarves), then build the module again",
        )
    }
}

fn ftrace_is_on() -> bool {
    // No such file: no ftrace to turn off.
    fs::read_to_string(FTRACE_ENABLED).map_or(true, |text| text.trim() != "0")
}

/// What the kernel refuses to others because of the hooks. Each hook is permanent and redirects
/// a function.
fn refused_to_others(status: &Status) -> String {
    let mut functions = vec!["tcp_splice_read", "tcp_set_rcvlowat", "tcp_getsockopt"];
    // The BSDs' level and number for SO_SPLICE.
    if status.literal == 0 {
        functions.extend(["sock_setsockopt", "sk_getsockopt"]);
    }
    format!(
        "until the module is unloaded, the kernel refuses (EBUSY) kernel.ftrace_enabled=0 and \
         live patches of {}",
        functions.join(", ")
    )
}

fn hook(status: &Status, ftrace: bool) -> Check {
    const NAME: &str = "splice(2) hook";
    match &status.hook_error {
        None => Check::ok(NAME, format!("installed; {}", refused_to_others(status))),
        Some(_) if !ftrace => Check::fail(
            NAME,
            "not installed, so nothing is paired: kernel.ftrace_enabled is 0",
        )
        .remedy("run 'sysctl kernel.ftrace_enabled=1', then load the module again"),
        Some(e) if e.kind() == std::io::ErrorKind::WouldBlock => Check::fail(
            NAME,
            "nothing is paired or spliced: a process entered getsockopt(TCP_ULP) before the module \
             was loaded, and has not left it",
        )
        .remedy("end the process; 'dmesg | grep TCP_ULP' has its id"),
        Some(e) => Check::fail(NAME, format!("not installed, so nothing is paired: {e}")).remedy(
            "remove the live patch or tracer that owns tcp_splice_read or tcp_set_rcvlowat, \
             then load the module again",
        ),
    }
}

fn pairing(status: &Status, has_policy: bool) -> Check {
    const NAME: &str = "pairing";
    if status.shadow {
        Check::warn(NAME, "shadow mode: matches are counted, no data is moved")
            .remedy("load the module without shadow=1")
    } else if !status.pairing {
        const REMEDY: &str = "run 'socksplice feature set pairing on'";
        match has_policy {
            true => Check::fail(NAME, "off while policies are set: nothing is paired"),
            false => Check::warn(NAME, "off"),
        }
        .remedy(REMEDY)
    } else {
        Check::ok(NAME, "on")
    }
}

fn cgroup() -> Check {
    const NAME: &str = "cgroup";
    match Hierarchy::find() {
        Ok(hierarchy) => Check::ok(
            NAME,
            format!("version 2 on {}", hierarchy.mount().display()),
        ),
        Err(e) => failed(NAME, &e),
    }
}

fn bpffs() -> Check {
    const NAME: &str = "BPF file system";
    if pin::bpffs_is_mounted() {
        Check::ok(NAME, "mounted on /sys/fs/bpf")
    } else {
        Check::fail(NAME, "not mounted on /sys/fs/bpf").remedy("run 'mount -t bpf bpf /sys/fs/bpf'")
    }
}

const POLICY: &str = "policy";

/// Without the module, or the right to ask it.
fn policy() -> Check {
    if module::require_root().is_err() {
        return Check::warn(POLICY, "not looked at").remedy("run this with sudo");
    }
    match policy::live() {
        Ok(policies) if policies.is_empty() => no_policy(),
        Ok(_) => Check::ok(POLICY, "set"),
        Err(e) => failed(POLICY, &e),
    }
}

fn no_policy() -> Check {
    Check::warn(POLICY, "none is set, so nothing is accelerated")
        .remedy("run 'socksplice policy set --cgroup /'")
}

fn policy_of(report: &Report) -> Check {
    let missed = complaints(POLICY, report, Id::CgroupsMissed);
    if let Some(check) = missed.or_else(|| complaints(POLICY, report, Id::PolicyWaiting)) {
        return check;
    }
    match (report.policies.is_empty(), report.notes.is_empty()) {
        (true, _) => no_policy(),
        (false, true) => Check::ok(POLICY, "set"),
        (false, false) => Check::warn(POLICY, report.notes.join(", "))
            .remedy("it matches when the cgroup comes; 'policy show'"),
    }
}

fn pairs(report: &Report) -> Check {
    const NAME: &str = "pairs";
    complaints(NAME, report, Id::NoPair)
        .unwrap_or_else(|| Check::ok(NAME, format!("{} now", report.pairs)))
}

fn peers(report: &Report) -> Check {
    const NAME: &str = "peers";
    if let Some(check) = complaints(NAME, report, Id::PeersNotInPolicy) {
        return check;
    }
    if !report.peers_were_missing() {
        return Check::ok(NAME, "most are named by a policy, or are not local");
    }
    let counts = &report.counts;
    Check::warn(
        NAME,
        format!(
            "since the module was loaded {} ends that a policy names met a local peer that none \
             names, and {} pairs were made; the counters do not say which side that was",
            counts.not_enrolled, counts.made
        ),
    )
    .remedy(HOW_TO_FIND_PEERS)
}

fn memory(report: &Report, cap: u64) -> Check {
    const NAME: &str = "memory cap";
    complaints(NAME, report, Id::MemoryCap).unwrap_or_else(|| {
        Check::ok(
            NAME,
            match cap {
                0 => "not reached; the machine has none".into(),
                cap => format!("not reached; that of the machine is {}", size::format(cap)),
            },
        )
    })
}

fn busy_poll() -> Check {
    let text = fs::read_to_string(BUSY_POLL).unwrap_or_default();
    busy_poll_of(text.trim().parse().unwrap_or(0))
}

fn busy_poll_of(usec: u32) -> Check {
    const NAME: &str = "busy polling";
    if usec == 0 {
        return Check::ok(NAME, "net.core.busy_poll is 0");
    }
    Check::warn(
        NAME,
        format!(
            "net.core.busy_poll is {usec}: before it sleeps, every epoll_wait on a pair or on a \
             network card that can be polled spins for up to {usec} us, and takes a CPU for that \
             time"
        ),
    )
    .remedy(
        "to let only some programs spin, run 'sysctl net.core.busy_poll=0' and \
         'socksplice poll set'",
    )
}

fn sockmaps() -> Check {
    const NAME: &str = "sockmaps";
    match module::require_root().map(|()| Sockmaps::read()) {
        Ok(Ok(found)) => sockmaps_of(NAME, &found, declined()),
        Ok(Err(e)) => Check::warn(NAME, format!("not looked at: {e}"))
            .remedy("run this with CAP_SYS_ADMIN, on the host"),
        Err(_) => Check::warn(NAME, "not looked at").remedy("run this with sudo"),
    }
}

/// How many ends were declined because they are in a sockmap.
fn declined() -> Option<u64> {
    let counters = Module::connect().and_then(|module| module.stats()).ok()?;
    let psock = counters.iter().find(|c| c.0 == PSOCK);
    psock.map(|c| c.1)
}

fn sockmaps_of(name: &'static str, found: &Sockmaps, declined: Option<u64>) -> Check {
    let Some(text) = found.text() else {
        return Check::ok(name, "none: no socket is declined for being in one");
    };
    let so_far = match declined {
        Some(n) => format!(" ({PSOCK}: {n} so far)"),
        None => String::new(),
    };
    Check::warn(
        name,
        format!("sockets that are put into one are not paired{so_far}: {text}"),
    )
    .remedy("let that program leave out the connections that are to be paired")
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use crate::kernel::module::status_for_tests as status;
    use crate::policy::health::{Complaint, State};

    #[test]
    fn names_who_keeps_sockets() {
        let check = sockmaps_of("sockmaps", &crate::kernel::sockmap::tests::agent(), Some(7));
        assert_eq!(check.level, Level::Warn);
        assert!(check.detail.contains("declined_psock: 7 so far"));
        assert!(check.detail.contains("sockhash kept (id 12) of agent(77)"));
    }

    #[test]
    fn says_what_the_hook_keeps_others_from() {
        let check = hook(&status(), true);
        let all = "live patches of tcp_splice_read, tcp_set_rcvlowat, tcp_getsockopt";
        assert!(check.detail.contains("ftrace_enabled=0") && check.detail.ends_with(all));
        let literal = Status {
            literal: 0,
            ..status()
        };
        assert!(hook(&literal, true).detail.ends_with("sk_getsockopt"));
    }

    #[test]
    fn a_good_module() {
        assert_eq!(module(&Ok(status())).level, Level::Ok);
        assert_eq!(module_btf(&status(), true).level, Level::Ok);
        assert_eq!(hook(&status(), true).level, Level::Ok);
        assert_eq!(pairing(&status(), true).level, Level::Ok);
    }

    fn complaint(id: Id, text: &str) -> Complaint {
        Complaint {
            id,
            text: text.into(),
            remedy: "do it".into(),
        }
    }

    #[test]
    fn a_complaint_is_a_failure() {
        for (id, name) in [
            (Id::PolicyWaiting, "policy"),
            (Id::CgroupsMissed, "policy"),
            (Id::NoPair, "pairs"),
            (Id::PeersNotInPolicy, "peers"),
            (Id::MemoryCap, "memory cap"),
        ] {
            let report = Report {
                complaints: vec![complaint(id, "bad"), complaint(id, "worse")],
                ..Report::default()
            };
            let failed = of_report(&Ok(report), 0);
            let failed: Vec<String> = failed
                .iter()
                .filter(|check| check.level == Level::Fail)
                .map(Check::line)
                .collect();
            assert_eq!(failed, [format!("FAIL  {name}: bad, worse; do it\n")]);
        }
    }

    #[test]
    fn counts_since_the_load_are_no_failure() {
        let mut report = Report {
            policies: vec![State {
                name: "a".into(),
                pairs: 0,
                ring_memory: 0,
                memory_cap: None,
                cgroups: 1,
                waiting: 0,
            }],
            ..Report::default()
        };
        let levels = |report: &Report| -> Vec<Level> {
            let checks = of_report(&Ok(report.clone()), 1 << 30);
            checks.iter().map(|check| check.level).collect()
        };
        assert_eq!(levels(&report), [Level::Ok; 4]);
        report.counts.not_enrolled = 100;
        assert_eq!(peers(&report).level, Level::Warn);
        assert!(peers(&report).line().contains("pair why"));
        report.notes.push("policy a waits".into());
        assert_eq!(policy_of(&report).level, Level::Warn);
    }

    #[test]
    fn says_what_busy_polling_costs() {
        assert_eq!(busy_poll_of(0).level, Level::Ok);
        let line = busy_poll_of(50).line();
        for part in [
            "busy_poll is 50:",
            "epoll_wait",
            "a CPU",
            "socksplice poll set",
        ] {
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn what_can_be_wrong_with_it() {
        let other = Status {
            version: "9.9.9".into(),
            ..status()
        };
        assert_eq!(module(&Ok(other)).level, Level::Fail);
        assert_eq!(module(&Err(Error::new("gone"))).level, Level::Fail);
        assert_eq!(module_btf(&status(), false).level, Level::Fail);
        let busy = Status {
            hook_error: Some(std::io::Error::from_raw_os_error(16)),
            ..status()
        };
        assert_eq!(hook(&busy, true).level, Level::Fail);
        assert!(hook(&busy, false).line().contains("sysctl"));
        let shadow = Status {
            shadow: true,
            ..status()
        };
        assert_eq!(pairing(&shadow, true).level, Level::Warn);
        let off = Status {
            pairing: false,
            ..status()
        };
        assert_eq!(pairing(&off, false).level, Level::Warn);
        assert_eq!(pairing(&off, true).level, Level::Fail);
    }
}
