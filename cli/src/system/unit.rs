// SPDX-License-Identifier: GPL-2.0
//! The cgroup of a systemd unit.

use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// Suffixes of the units that have a cgroup.
const KINDS: [&str; 6] = [".service", ".scope", ".slice", ".socket", ".mount", ".swap"];

/// The path from the root of the hierarchy. The system's manager is asked, so that a unit's
/// `Slice=` counts. Without an answer it is the path that systemd gives to a unit which does
/// not say. A name with '*' is a pattern; it is of units in the slice of such units.
pub fn cgroup(name: &str) -> Result<String> {
    let unit = full_name(name)?;
    let said = match unit.contains('*') {
        true => Said::default(),
        false => ask(&unit),
    };
    if let Some(path) = said.cgroup {
        return Ok(path);
    }
    if unit.ends_with(".slice") {
        return Ok(slice_path(&unit));
    }
    let slice = said.slice.unwrap_or_else(|| default_slice(&unit));
    Ok(format!(
        "{}/{unit}",
        slice_path(&slice).trim_end_matches('/')
    ))
}

/// As systemctl takes it: without a suffix it is a service.
fn full_name(name: &str) -> Result<String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"@:-_.\\*".contains(&b);
    if name.is_empty() || name.len() > 255 || !name.bytes().all(good) || name.contains("**") {
        return Err(
            Error::usage(format!("'{name}' is no name of a systemd unit"))
                .remedy("'systemctl list-units' lists them"),
        );
    }
    Ok(match KINDS.iter().any(|kind| name.ends_with(kind)) {
        true => name.into(),
        false => format!("{name}.service"),
    })
}

/// The units that have a cgroup or had one, as the system's manager lists them.
pub fn names() -> Vec<String> {
    let output = Command::new("systemctl")
        .args(["list-units", "--all", "--plain", "--no-legend", "--full"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let text = output.map_or(Vec::new(), |output| output.stdout);
    listed(&String::from_utf8_lossy(&text))
}

/// The first words of the lines of a list.
fn listed(text: &str) -> Vec<String> {
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let names = names.filter(|name| KINDS.iter().any(|kind| name.ends_with(kind)));
    names.map(String::from).collect()
}

#[derive(Default)]
struct Said {
    cgroup: Option<String>,
    slice: Option<String>,
}

/// What the system's manager says of a unit, if one runs.
fn ask(unit: &str) -> Said {
    let output = Command::new("systemctl")
        .args(["show", "--property=ControlGroup,Slice", "--", unit])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => said(&String::from_utf8_lossy(&output.stdout)),
        _ => Said::default(),
    }
}

fn said(text: &str) -> Said {
    let value = |key: &str| {
        let lines = &mut text.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value.filter(|v| !v.is_empty()).map(String::from)
    };
    Said {
        cgroup: value("ControlGroup").filter(|path| path.starts_with('/')),
        slice: value("Slice"),
    }
}

/// systemd.special(7): services of the system are in system.slice, and instances of a template
/// in a slice of their own below it.
fn default_slice(unit: &str) -> String {
    match unit.split_once('@') {
        Some((template, _)) => format!("system-{}.slice", template.replace('-', "\\x2d")),
        None => "system.slice".into(),
    }
}

/// systemd.slice(5): a dash in a slice's name separates it from the slice above it.
fn slice_path(slice: &str) -> String {
    let name = slice.strip_suffix(".slice").unwrap_or(slice);
    if name == "-" {
        return "/".into();
    }
    let ends = name.match_indices('-').map(|(at, _)| at);
    let ends = ends.chain([name.len()]);
    ends.map(|end| format!("/{}.slice", &name[..end])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_slices() {
        for (slice, path) in [
            ("-.slice", "/"),
            ("system.slice", "/system.slice"),
            ("a-b-c.slice", "/a.slice/a-b.slice/a-b-c.slice"),
        ] {
            assert_eq!(slice_path(slice), path);
        }
    }

    #[test]
    fn the_manager_s_word_counts() {
        let said = said("Slice=web.slice\nControlGroup=\n");
        assert_eq!((said.slice, said.cgroup), (Some("web.slice".into()), None));
    }

    #[test]
    fn lists_what_has_a_cgroup() {
        let text = "a.service loaded active running A\nb.device loaded active plugged B\n\n\
            c.slice loaded active active C\n";
        assert_eq!(listed(text), ["a.service", "c.slice"]);
    }

    #[test]
    fn units_that_nobody_knows() {
        for (unit, path) in [
            ("never-heard-of", "/system.slice/never-heard-of.service"),
            ("never-heard-of.scope", "/system.slice/never-heard-of.scope"),
            ("web-*", "/system.slice/web-*.service"),
            ("a-b@*", "/system.slice/system-a\\x2db.slice/a-b@*.service"),
        ] {
            assert_eq!(cgroup(unit).unwrap(), path);
        }
        assert_eq!(cgroup("a-b.slice").unwrap(), "/a.slice/a-b.slice");
        for bad in ["", "a/b", "a b", "**"] {
            assert!(cgroup(bad).is_err(), "{bad}");
        }
    }
}
