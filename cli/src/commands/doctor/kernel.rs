// SPDX-License-Identifier: GPL-2.0
//! The running kernel: its version, configuration and BTF, and whether it
//! takes a module that no distribution signed.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::kernel::module;
use crate::kernel::release::{self, Support};

use super::{Check, Level};

const VMLINUX_BTF: &str = "/sys/kernel/btf/vmlinux";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
const SECURE_BOOT: &str =
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// Without these options nothing is accelerated.
const NEEDED: [&str; 10] = [
    "INET",
    "MODULES",
    "TRACEPOINTS",
    "BPF_SYSCALL",
    "BPF_JIT",
    "CGROUP_BPF",
    "DEBUG_INFO_BTF",
    "DEBUG_INFO_BTF_MODULES",
    "DYNAMIC_FTRACE",
    "HAVE_DYNAMIC_FTRACE_WITH_ARGS",
];

/// Without these options a part is missing.
const WANTED: [(&str, &str); 3] = [
    ("IPV6", "only IPv4 connections are accelerated"),
    ("MEMCG", "ring memory is charged to no cgroup"),
    (
        "RPS",
        "the two ends of a connection cannot be matched safely, most stay on TCP",
    ),
];

pub fn checks() -> Vec<Check> {
    let release = release::running();
    vec![
        version(&release),
        config(&release),
        btf(),
        lockdown(
            &fs::read_to_string(LOCKDOWN).unwrap_or_default(),
            fs::read(SECURE_BOOT).is_ok_and(|bytes| bytes.last() == Some(&1)),
            module::is_loaded(),
        ),
    ]
}

fn version(release: &str) -> Check {
    const NAME: &str = "kernel version";
    let support = release::support(release);
    let Some(complaint) = release::complaint(support) else {
        return Check::ok(NAME, release);
    };
    let level = match support {
        Support::TooOld => Level::Fail,
        _ => Level::Warn,
    };
    Check::new(NAME, level, format!("{release} {complaint}")).remedy(release::remedy(support))
}

fn config(release: &str) -> Check {
    const NAME: &str = "kernel configuration";
    let Some((text, place)) = config_text(release) else {
        return Check::warn(NAME, "not found, so not checked").remedy(format!(
            "install the kernel's package with /boot/config-{release}, or 'modprobe configs'"
        ));
    };
    let options = parse_config(&text);
    let missing: Vec<_> = NEEDED
        .iter()
        .filter(|option| !options.contains_key(**option))
        .map(|option| format!("CONFIG_{option}"))
        .collect();
    if !missing.is_empty() {
        return Check::fail(NAME, format!("{} not set in {place}", missing.join(", ")))
            .remedy("boot a kernel that has them, as Debian's have");
    }
    match WANTED
        .iter()
        .find(|(option, _)| !options.contains_key(option))
    {
        Some((option, lost)) => {
            Check::warn(NAME, format!("CONFIG_{option} not set in {place}: {lost}"))
                .remedy("boot a kernel that has it if you need that")
        }
        None => Check::ok(NAME, place),
    }
}

/// The configuration and where it was found.
fn config_text(release: &str) -> Option<(String, String)> {
    let packed = "/proc/config.gz";
    if Path::new(packed).exists() {
        let output = Command::new("/bin/gzip")
            .args(["-dc", packed])
            .output()
            .ok()?;
        return Some((String::from_utf8(output.stdout).ok()?, packed.into()));
    }
    let places = [
        format!("/boot/config-{release}"),
        format!("/usr/lib/modules/{release}/config"),
        format!("/lib/modules/{release}/build/.config"),
    ];
    places
        .into_iter()
        .find_map(|place| Some((fs::read_to_string(&place).ok()?, place)))
}

/// The options that are built in or modules, without their prefix.
fn parse_config(text: &str) -> HashMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('='))
        .filter(|(_, value)| matches!(*value, "y" | "m"))
        .collect()
}

fn btf() -> Check {
    const NAME: &str = "kernel BTF";
    if Path::new(VMLINUX_BTF).exists() {
        Check::ok(NAME, VMLINUX_BTF)
    } else {
        Check::fail(NAME, format!("{VMLINUX_BTF} is missing"))
            .remedy("boot a kernel with CONFIG_DEBUG_INFO_BTF=y, as Debian's are")
    }
}

/// `lockdown` marks the mode that holds with brackets: "none [integrity] …".
fn lockdown(lockdown: &str, secure_boot: bool, loaded: bool) -> Check {
    const NAME: &str = "Secure Boot and lockdown";
    let mode = lockdown
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("none", |(mode, _)| mode);
    let boot = if secure_boot { "on" } else { "off" };
    let detail = format!("Secure Boot {boot}, lockdown {mode}");
    if mode == "none" || loaded {
        Check::ok(NAME, detail)
    } else {
        Check::fail(NAME, format!("{detail}: a module must be signed with an enrolled key"))
            .remedy("enrol DKMS's key with 'mokutil --import /var/lib/dkms/mok.pub', or turn Secure Boot off")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (release, level) in [
            ("6.12.117+deb12-amd64", Level::Ok),
            ("7.2.12", Level::Warn),
            ("9.0", Level::Warn),
            ("5.10", Level::Fail),
        ] {
            assert_eq!(version(release).level, level, "{release}");
        }
    }

    #[test]
    fn configuration_lines() {
        let options =
            parse_config("CONFIG_INET=y\nCONFIG_IPV6=m\n# CONFIG_RPS is not set\nCONFIG_HZ=250\n");
        assert!(options.contains_key("INET") && options.contains_key("IPV6"));
        assert!(!options.contains_key("RPS") && !options.contains_key("HZ"));
    }

    #[test]
    fn lockdown_matters_before_the_load() {
        let integrity = "none [integrity] confidentiality\n";
        assert_eq!(
            lockdown("[none] integrity confidentiality\n", false, false).level,
            Level::Ok
        );
        assert_eq!(lockdown("", false, false).level, Level::Ok);
        assert_eq!(lockdown(integrity, true, false).level, Level::Fail);
        assert_eq!(lockdown(integrity, true, true).level, Level::Ok);
    }
}
