// SPDX-License-Identifier: GPL-2.0
//! The names that a shell offers for an argument: what there is on this machine now. What the
//! caller may not see is left out.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};

use super::command;
use crate::containers;
use crate::error::{Error, Result};
use crate::policy;
use crate::system::cgroup::Hierarchy;
use crate::system::netns::Names;
use crate::system::{process, unit};

/// Has the name of the shell if a script of [`script`] runs this program.
const VARIABLE: &str = "SOCKSPLICE_COMPLETE";

/// Answers a shell that asks for completions, and exits. Returns if none does.
pub fn answer() {
    CompleteEnv::with_factory(|| complete(command()))
        .var(VARIABLE)
        .bin("socksplice")
        .complete();
}

/// What a shell runs once to know how to ask.
pub fn script(shell: &str) -> Result<String> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let completer = shells
        .completer(shell)
        .ok_or_else(|| Error::usage(format!("{shell} cannot be completed")))?;
    let name = "socksplice";
    completer
        .write_registration(VARIABLE, name, name, name, &mut script)
        .map_err(|e| Error::new(format!("cannot make the script: {e}")))?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// The command, with what completes the arguments that take a name.
fn complete(command: Command) -> Command {
    let command = command.mut_args(complete_argument);
    let below: Vec<String> = command
        .get_subcommands()
        .map(|c| c.get_name().into())
        .collect();
    below.iter().fold(command, |command, name| {
        command.mut_subcommand(name, complete)
    })
}

fn complete_argument(argument: Arg) -> Arg {
    let names = match (argument.get_long(), argument.get_id().as_str()) {
        (Some("cgroup"), _) => return argument.add(ArgValueCompleter::new(cgroups)),
        (Some("unit"), _) => unit::names,
        (Some("container"), _) => containers::names,
        (Some("netns"), _) => || Names::read().all(),
        (Some("process"), _) => || process::list().into_iter().map(|p| p.name).collect(),
        (Some("policy"), _) | (None, "names") => policies,
        (Some("pid"), _) => return argument.add(ArgValueCandidates::new(processes)),
        _ => return argument,
    };
    argument.add(ArgValueCandidates::new(move || candidates(names())))
}

fn candidates(names: Vec<String>) -> Vec<CompletionCandidate> {
    // The process or the user that chose a name may have meant to speak to the terminal.
    let plain = |name: &String| !name.is_empty() && !name.contains(char::is_control);
    let names: BTreeSet<String> = names.into_iter().filter(plain).collect();
    names.into_iter().map(CompletionCandidate::new).collect()
}

fn policies() -> Vec<String> {
    let policies = policy::live().unwrap_or_default();
    policies.iter().map(|p| p.name.to_string()).collect()
}

fn processes() -> Vec<CompletionCandidate> {
    let candidate = |process: process::Process| {
        let name = process.to_string();
        CompletionCandidate::new(process.pid.to_string()).help(Some(name.into()))
    };
    process::list().into_iter().map(candidate).collect()
}

fn cgroups(current: &OsStr) -> Vec<CompletionCandidate> {
    let found = Hierarchy::find().ok().zip(current.to_str());
    let below = found.map(|(hierarchy, current)| below(hierarchy.mount(), current));
    candidates(below.unwrap_or_default())
}

/// The cgroups of one level whose paths begin with a text, as far as it goes: under the mount,
/// or from the root of the hierarchy. Those with cgroups below them end with a slash.
fn below(mount: &Path, current: &str) -> Vec<String> {
    let slash = current.rfind('/').map_or(0, |at| at + 1);
    let (parent, start) = current.split_at(slash);
    let folder = match Path::new(parent).starts_with(mount) {
        true => parent.into(),
        false => mount.join(parent.trim_start_matches('/')),
    };
    let folders = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        entries.map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    let names = folders(&folder).into_iter();
    let names = names.filter_map(|name| name.into_string().ok());
    let names = names.filter(|name| name.starts_with(start));
    let name = |name: String| {
        let inner = !folders(&folder.join(&name)).is_empty();
        format!("{parent}{name}{}", if inner { "/" } else { "" })
    };
    names.map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is offered for the last word.
    fn offered(line: &str) -> Vec<String> {
        let words: Vec<_> = line.split(' ').map(Into::into).collect();
        let last = words.len() - 1;
        let mut command = complete(command());
        let all = clap_complete::engine::complete(&mut command, words, last, None).unwrap();
        let values = all.iter().map(|c| c.get_value().to_string_lossy());
        values.map(String::from).collect()
    }

    #[test]
    fn the_grammar_is_offered() {
        assert_eq!(offered("socksplice poli"), ["policy"]);
        assert_eq!(offered("socksplice policy set --on-capture un"), ["unpair"]);
        assert_eq!(offered("socksplice policy add x --mem"), ["--memory-cap"]);
        assert!(!offered("socksplice ").contains(&"man".into()));
    }

    #[test]
    fn processes_are_offered() {
        let own = std::process::id();
        let name = fs::read_to_string("/proc/self/comm").unwrap();
        let line = format!("socksplice pair show --process {}", &name[..3]);
        assert!(offered(&line).contains(&name.trim_end().to_string()));
        let line = format!("socksplice poll set --pid 1,{own}");
        assert!(offered(&line).contains(&format!("1,{own}")));
    }

    #[test]
    fn cgroups_are_offered_by_level() {
        let mount = std::env::temp_dir().join(format!("socksplice-cgroups-{}", std::process::id()));
        for path in [
            "system.slice/a.service",
            "system.slice/b.scope/c",
            "user.slice",
        ] {
            fs::create_dir_all(mount.join(path)).unwrap();
        }
        let of = |current: &str| {
            let mut names = below(&mount, current);
            names.sort_unstable();
            names
        };
        assert_eq!(of(""), ["system.slice/", "user.slice"]);
        assert_eq!(of("/sys"), ["/system.slice/"]);
        assert_eq!(
            of("/system.slice/"),
            ["/system.slice/a.service", "/system.slice/b.scope/"]
        );
        let full = format!("{}/user", mount.display());
        assert_eq!(of(&full), [format!("{full}.slice")]);
        assert!(of("/gone/").is_empty());
        fs::remove_dir_all(&mount).unwrap();
    }

    #[test]
    fn every_shell_has_a_script() {
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            assert!(script(shell).unwrap().contains(VARIABLE));
        }
    }
}
