// SPDX-License-Identifier: GPL-2.0
//! `capture`: the bytes that go by ring, as packets for Wireshark and tcpdump.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli;
use crate::commands::filter::netns_inode;
use crate::error::{Error, FAILED, Result};
use crate::kernel::capture::{Device, Options, Stats};
use crate::kernel::module::Module;
use crate::output::{Answer, SCHEMA};
use crate::pcap::file::Capture;
use crate::system::cgroup::Hierarchy;
use crate::system::files;

/// The size of the buffer, which holds more than one record of the largest size.
const READ: usize = 1 << 20;

/// How long after the first signal a further one begins to count.
const PATIENCE: Duration = Duration::from_millis(500);

pub fn run(arguments: cli::Capture, json: bool) -> Result<Answer> {
    let to_stdout = files::is_stdout(&arguments.write);
    if to_stdout && json {
        return Err(
            Error::usage("standard output has the packets, not the JSON")
                .remedy("name a file with --write, or leave -j out"),
        );
    }
    if to_stdout && io::stdout().is_terminal() {
        return Err(Error::usage("standard output is a terminal")
            .remedy("name a file with --write, or add '| tcpdump -nr -'"));
    }
    Module::open()?;
    let options = options(&arguments)?;
    let ended = signals()?;
    // The device comes before the file: if no capture can start, the file stays as it is.
    let mut device = Device::start(options)?;
    let mut output = Output::open(&arguments.write, to_stdout)?;
    let mut capture = Capture::new(own_netns()?);
    output.write(&mut capture)?;
    // Tells the user when the capture begins. A closed stderr does not matter.
    let _ = writeln!(io::stderr(), "socksplice: capturing");

    let until = arguments
        .duration
        .map(|s| Instant::now() + Duration::from_secs(s.into()));
    let count = arguments.count.map_or(u64::MAX, |n| n as u64);
    let mut buffer = vec![0; READ];
    let mut stopped = false;
    while let Some(records) = device.read(&mut buffer)? {
        for record in records {
            if capture.records < count {
                capture.add(&record);
            }
        }
        if !output.write(&mut capture)? {
            break;
        }
        let over = capture.records >= count || until.is_some_and(|until| Instant::now() >= until);
        if !stopped && (over || ended.load(Ordering::Relaxed)) {
            device.stop()?;
            stopped = true;
        }
    }
    let stats = device.stats()?;
    capture.finish(since_1970(), stats);
    output.write(&mut capture)?;

    let answer = answer(&arguments.write, &capture, stats);
    if to_stdout {
        let _ = io::stderr().write_all(answer.text.as_bytes());
        return Ok(Answer::said());
    }
    Ok(answer)
}

/// A flag that the first signal sets. A further signal ends the process at once, because the
/// process may be waiting for the reader of its output. timeout(1) sends several signals at
/// one time, so a further signal counts only after `PATIENCE`.
fn signals() -> Result<Arc<AtomicBool>> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|e| Error::new(format!("cannot wait for a signal: {e}")))?;
    let ended = Arc::new(AtomicBool::new(false));
    let flag = ended.clone();
    thread::spawn(move || {
        let mut first = None;
        for _ in signals.forever() {
            flag.store(true, Ordering::Relaxed);
            if first.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                process::exit(FAILED.into());
            }
        }
    });
    Ok(ended)
}

fn options(arguments: &cli::Capture) -> Result<Options> {
    let filter = &arguments.filter;
    let mut options = Options::new(arguments.snaplen, arguments.buffer);
    let ports: Vec<_> = filter.ports.iter().map(|p| [p.first, p.last]).collect();
    options.ports(&ports)?;
    options.pairs(&arguments.pairs)?;
    if let Some(netns) = &filter.netns {
        // The module takes 32 bits. No namespace has a longer number, nor u32::MAX.
        options.netns = netns_inode(netns)?.try_into().unwrap_or(u32::MAX);
    }
    if !filter.cgroups.is_empty() {
        let hierarchy = Hierarchy::find()?;
        let ids: Result<Vec<_>> = filter
            .cgroups
            .iter()
            .map(|path| hierarchy.id(path))
            .collect();
        options.cgroups(&ids?)?;
    }
    Ok(options)
}

fn own_netns() -> Result<u64> {
    fs::metadata("/proc/self/ns/net")
        .map(|metadata| metadata.ino())
        .map_err(|e| Error::new(format!("cannot look at /proc/self/ns/net: {e}")))
}

fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

struct Output {
    to: Box<dyn Write>,
    name: String,
}

impl Output {
    fn open(path: &Path, to_stdout: bool) -> Result<Self> {
        if to_stdout {
            return Ok(Output {
                to: Box::new(io::stdout()),
                name: "standard output".into(),
            });
        }
        let name = path.display().to_string();
        // It holds the data of other users, so only its owner can read it.
        Ok(Output {
            to: Box::new(files::create(path, 0o600)?),
            name,
        })
    }

    /// Writes the bytes that `capture` has ready. False if the reader closed the pipe.
    fn write(&mut self, capture: &mut Capture) -> Result<bool> {
        let written = self
            .to
            .write_all(capture.bytes())
            .and_then(|()| self.to.flush());
        capture.clear();
        match written {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(e) => Err(Error::new(format!("cannot write {}: {e}", self.name))),
        }
    }
}

fn answer(path: &Path, capture: &Capture, stats: Stats) -> Answer {
    let (records, bytes, packets) = (capture.records, capture.bytes, capture.packets);
    let Stats {
        dropped,
        dropped_bytes,
    } = stats;
    let text = format!(
        "{records} records of {bytes} bytes in {packets} packets, \
         {dropped} records of {dropped_bytes} bytes dropped\n"
    );
    let json = json!({
        "schema": SCHEMA,
        "file": path.display().to_string(),
        "records": records,
        "bytes": bytes,
        "packets": packets,
        "dropped": { "records": dropped, "bytes": dropped_bytes },
    });
    Answer::new(text, json)
}
