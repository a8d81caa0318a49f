// SPDX-License-Identifier: GPL-2.0
//! The man pages: one for each command, made from the grammar. The first one also has the
//! counters and the sections of `man/sections.roff`.

use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::cli::Cli;
use crate::error::{Error, Result};
use crate::output::{Answer, SCHEMA};
use crate::system::files;
use crate::uapi::counters::COUNTERS;

const SECTIONS: &str = include_str!("../../../man/sections.roff");
const ELSEWHERE: &str = ".SH \"SEE ALSO\"\n.BR socksplice (8),\n\
    which also documents the JSON output, events, metrics and the exit status.\n";

pub fn write(dir: &Path) -> Result<Answer> {
    let pages = pages().map_err(|e| Error::new(format!("cannot make the man pages: {e}")))?;
    for (name, text) in &pages {
        let path = dir.join(name);
        files::create(&path, 0o644)?
            .write_all(text)
            .map_err(|e| Error::new(format!("cannot write {}: {e}", path.display())))?;
    }
    let names: Vec<&str> = pages.iter().map(|page| page.0.as_str()).collect();
    let json = serde_json::json!({ "schema": SCHEMA, "pages": names });
    Ok(Answer::new(names.join("\n") + "\n", json))
}

/// File names and texts.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add(&command, &(counters() + SECTIONS), &mut pages)?;
    Ok(pages)
}

/// A section with the help text of each counter.
fn counters() -> String {
    let mut text = String::from(
        ".SH COUNTERS\nThe counters of \\fBstats show\\fR. A name with \\fBbytes\\fR counts bytes, \
         \\fBbusy_poll_nsec\\fR counts nanoseconds, and every other name counts events. \
         \\fBstats show \\-\\-watch\\fR divides by seconds:\n",
    );
    for (name, help) in COUNTERS {
        text += &format!(".TP\n{name}\n{help}\n");
    }
    text
}

fn add(command: &Command, sections: &str, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let man = Man::new(command.clone())
        .section("8")
        .source(format!("socksplice {}", env!("CARGO_PKG_VERSION")))
        .manual("System administration");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.get_subcommands().any(|c| !c.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    text.extend(sections.as_bytes());
    pages.push((man.get_filename(), text));
    for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        add(subcommand, ELSEWHERE, pages)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_for_each_command() {
        let pages = pages().unwrap();
        let names: Vec<_> = pages.iter().map(|p| p.0.as_str()).collect();
        for name in [
            "socksplice.8",
            "socksplice-policy-set.8",
            "socksplice-policy-apply.8",
            "socksplice-policy-export.8",
            "socksplice-pair-show.8",
            "socksplice-pair-top.8",
            "socksplice-pair-monitor.8",
            "socksplice-pair-why.8",
            "socksplice-capture.8",
            "socksplice-exporter.8",
            "socksplice-pair-drop.8",
            "socksplice-drain.8",
            "socksplice-doctor.8",
        ] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        assert!(
            !names
                .iter()
                .any(|n| n.contains("man") || n.contains("help"))
        );
    }

    #[test]
    fn the_first_page_documents_status_and_schema() {
        let pages = pages().unwrap();
        let text = String::from_utf8_lossy(&pages[0].1);
        for section in [
            "COUNTERS",
            "EXIT STATUS",
            "OUTPUT",
            "EVENTS",
            "NOT PAIRED",
            "CAPTURE",
            "METRICS",
            "CONFIGURATION",
            "SERVICE",
            "FILES",
            "EXAMPLES",
        ] {
            assert!(text.contains(&format!(".SH {section}")), "{section}");
        }
    }
}
