// SPDX-License-Identifier: GPL-2.0
//! What the exporter's own process has no right to read: the pairs and the policies.
//!
//! A second process stays root and answers one kind of question, without arguments. It reads
//! nothing that a client has written, and ends with the exporter, whose pipe it reads.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::{Error, Result};
use crate::kernel::module::{self, Module};
use crate::output::Answer;
use crate::policy::health::{Report, Watch};

use super::Reports;

/// The hidden command that the second process runs.
const COMMAND: &str = "exporter-reader";
/// How long a scrape waits for the reader. A `policy` command may hold the policies' lock.
const PATIENCE: Duration = Duration::from_secs(2);
/// A younger report is given again, so more scrapers cost no more.
const FRESH: Duration = Duration::from_secs(1);

/// Why there is no report is for the log; the metrics only say that there is none.
type Line = std::result::Result<Report, String>;

/// `exporter-reader`: a report for each line of standard input, as a line of JSON.
pub fn run() -> Result<Answer> {
    module::require_root()?;
    // systemd sends these to the exporter and to this process at once. The exporter may still
    // have to answer.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .map_err(|e| Error::new(format!("cannot handle signals: {e}")))?;
    }
    let mut watch = Watch::default();
    let failed = |e: io::Error| Error::new(format!("cannot answer the exporter: {e}"));
    for byte in io::stdin().lock().bytes() {
        if byte.map_err(failed)? != b'\n' {
            return Err(Error::new("the exporter asks for something else"));
        }
        let report = Module::open().and_then(|(module, _)| watch.look(&module));
        let line: Line = report.map_err(|e| e.to_string());
        let mut text = serde_json::to_string(&line).expect("is plain data");
        text.push('\n');
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(failed)?;
    }
    Ok(Answer::said())
}

/// The second process, as the exporter sees it.
pub struct Reader {
    process: Child,
    /// None when it is dropped.
    questions: Option<ChildStdin>,
    answers: ChildStdout,
    /// The beginning of an answer.
    begun: Vec<u8>,
    asked: bool,
    last: Fresh<Line>,
}

impl Reader {
    /// Needs the rights of root, which the new process keeps.
    pub fn start() -> Result<Self> {
        // It is in another process group: SIGINT from a terminal is for the exporter.
        let mut process = Command::new("/proc/self/exe")
            .arg0("socksplice")
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| Error::new(format!("cannot start the reader of policies: {e}")))?;
        let questions = process.stdin.take();
        let answers = process.stdout.take().expect("is a pipe");
        Ok(Reader {
            process,
            questions,
            answers,
            begun: Vec::new(),
            asked: false,
            last: Fresh::default(),
        })
    }

    /// None if it takes longer than `until`. The answer is then that of the next question.
    fn answer(&mut self, until: Instant) -> io::Result<Option<Line>> {
        loop {
            if let Some(end) = self.begun.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.begun.drain(..=end).collect();
                self.asked = false;
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(io::Error::from);
            }
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).expect("a time of seconds");
            let mut ready = [PollFd::new(&self.answers, PollFlags::IN)];
            match poll(&mut ready, Some(&timeout)) {
                Ok(0) => return Ok(None),
                Err(Errno::INTR) => continue,
                ready => ready?,
            };
            let mut part = [0; 4096];
            match self.answers.read(&mut part)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => self.begun.extend(&part[..n]),
            }
        }
    }
}

impl Reports for Reader {
    /// Asks the process, unless there is a fresh report.
    fn ask(&mut self) -> io::Result<()> {
        if !self.asked && !self.last.is_fresh(Instant::now()) {
            let mut questions = self
                .questions
                .as_ref()
                .ok_or_else(|| ended(io::ErrorKind::BrokenPipe.into()))?;
            questions.write_all(b"\n").map_err(ended)?;
            self.asked = true;
        }
        Ok(())
    }

    /// What the process answered, or the report that is still fresh.
    fn report(&mut self) -> io::Result<Option<Report>> {
        if self.asked {
            match self.answer(Instant::now() + PATIENCE).map_err(ended)? {
                Some(line) => self.last.set(line, Instant::now()),
                None => return Ok(None),
            }
        }
        Ok(self.last.get().and_then(|line| line.clone().ok()))
    }
}

fn ended(e: io::Error) -> io::Error {
    io::Error::other(format!(
        "the process that reads the policies has ended: {e}"
    ))
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The process ends when its input does, unless it waits for the policies' lock: it is not
        // waited for then, and the exporter has no right to kill it.
        self.questions = None;
        let until = Instant::now() + PATIENCE;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A value that is used again while it is fresh.
struct Fresh<T>(Option<(Instant, T)>);

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Fresh(None)
    }
}

impl<T> Fresh<T> {
    fn is_fresh(&self, now: Instant) -> bool {
        let made = self.0.as_ref().map(|(made, _)| *made);
        made.is_some_and(|made| now.saturating_duration_since(made) < FRESH)
    }

    fn set(&mut self, value: T, now: Instant) {
        self.0 = Some((now, value));
    }

    fn get(&self) -> Option<&T> {
        self.0.as_ref().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that answers as this shell script does.
    fn reader(script: &str) -> Reader {
        let mut process = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Reader {
            questions: process.stdin.take(),
            answers: process.stdout.take().unwrap(),
            process,
            begun: Vec::new(),
            asked: false,
            last: Fresh::default(),
        }
    }

    #[test]
    fn a_report_is_fresh_for_a_second() {
        let mut fresh = Fresh::default();
        let now = Instant::now();
        assert!(!fresh.is_fresh(now));
        fresh.set(1, now);
        assert!(fresh.is_fresh(now) && fresh.is_fresh(now + FRESH / 2));
        assert!(!fresh.is_fresh(now + FRESH));
        assert_eq!(fresh.get(), Some(&1));
    }

    #[test]
    fn scrapes_within_a_second_ask_once() {
        let line = serde_json::to_string(&Line::Ok(Report::default())).unwrap();
        // A second question gets no answer, and the process ends.
        let mut reader = reader(&format!("read x; echo '{line}'; read x"));
        for _ in 0..2 {
            reader.ask().unwrap();
            assert_eq!(reader.report().unwrap(), Some(Report::default()));
        }
        assert!(!reader.asked);
    }

    #[test]
    fn a_reader_that_fails_or_ends() {
        let mut failing = reader("read x; echo '{\"Err\":\"no right\"}'; read x");
        failing.ask().unwrap();
        assert_eq!(failing.report().unwrap(), None);
        let mut ended = reader("read x");
        ended.ask().unwrap();
        assert!(ended.report().is_err());
    }
}
