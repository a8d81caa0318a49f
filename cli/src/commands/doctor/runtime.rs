// SPDX-License-Identifier: GPL-2.0
//! What was set up on the running kernel: the module, the file systems, the
//! policy.

use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::kernel::module::{self, Module, Status};
use crate::kernel::sockmap::{PSOCK, Sockmaps};
use crate::policy::cgroups::Health;
use crate::policy::pin;
use crate::system::cgroup::Hierarchy;

use super::Check;

const FTRACE_ENABLED: &str = "/proc/sys/kernel/ftrace_enabled";

pub fn checks() -> Vec<Check> {
    let status = module::require_root()
        .and_then(|()| Module::connect())
        .and_then(|module| module.status());
    let mut checks = vec![module(&status)];
    if let Ok(status) = &status {
        checks.push(module_btf(status, Path::new(module::BTF).exists()));
        checks.push(hook(status, ftrace_is_on()));
        checks.push(pairing(status, pin::live().is_some()));
    }
    checks.extend([cgroup(), bpffs(), policy(), sockmaps()]);
    checks
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

fn policy() -> Check {
    const NAME: &str = "policy";
    if module::require_root().is_err() {
        return Check::warn(NAME, "not looked at").remedy("run this with sudo");
    }
    match Health::read() {
        Ok(Some(health)) => policy_of(NAME, &health),
        Ok(None) => Check::warn(NAME, "none is set, so nothing is accelerated")
            .remedy("run 'socksplice policy set --cgroup /'"),
        Err(e) => failed(NAME, &e),
    }
}

fn policy_of(name: &'static str, health: &Health) -> Check {
    if health.missed > 0 {
        return Check::fail(
            name,
            format!(
                "{} cgroups came for which there was no memory: their connections stay on TCP",
                health.missed
            ),
        )
        .remedy("set the policies again: 'socksplice policy export', then 'policy apply'");
    }
    let notes = health.notes.join(", ");
    match (health.waiting, notes.is_empty()) {
        (true, _) => Check::fail(name, notes)
            .remedy("start what is to be paired, or set the policy with another path"),
        (false, false) => {
            Check::warn(name, notes).remedy("it matches when the cgroup comes; 'policy show'")
        }
        (false, true) => Check::ok(name, "set"),
    }
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

    fn status() -> Status {
        Status {
            version: module::VERSION.into(),
            btf: true,
            sock_ops: true,
            hook_error: None,
            pairing: true,
            shadow: false,
            enroll_all: false,
            splice: true,
            splice_native: false,
            literal: 1,
            so_splice: true,
            ring_size: 65536,
            memory_cap: 0,
            events: true,
        }
    }

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
