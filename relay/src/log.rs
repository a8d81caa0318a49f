// SPDX-License-Identifier: GPL-2.0
//! Writes one line for each connection to standard output, and messages to standard error.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel,
};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Logfmt,
    Json,
    /// The relay writes no lines.
    Off,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "logfmt" => Format::Logfmt,
            "json" => Format::Json,
            "off" => Format::Off,
            _ => return Err(format!("'{text}' is no log format (logfmt, json, off)")),
        })
    }
}

/// Writes a message for the administrator to standard error.
pub fn say(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr(), "socksplice-relay: {}", text.as_ref());
}

/// The fields of a log line, in order.
#[derive(Default)]
pub struct Line(Vec<(&'static str, Field)>);

enum Field {
    Text(String),
    Number(u64),
    Seconds(Duration),
}

impl Line {
    pub fn text(&mut self, key: &'static str, value: impl Into<String>) -> &mut Self {
        self.0.push((key, Field::Text(value.into())));
        self
    }

    pub fn number(&mut self, key: &'static str, value: u64) -> &mut Self {
        self.0.push((key, Field::Number(value)));
        self
    }

    pub fn seconds(&mut self, key: &'static str, value: Duration) -> &mut Self {
        self.0.push((key, Field::Seconds(value)));
        self
    }

    fn write(&self, format: Format) -> String {
        let mut out = String::with_capacity(512);
        let json = format == Format::Json;
        for (i, (key, value)) in self.0.iter().enumerate() {
            let separator = match (json, i) {
                (true, 0) => "{",
                (true, _) => ",",
                (false, 0) => "",
                (false, _) => " ",
            };
            out.push_str(separator);
            let _ = if json {
                write!(out, "\"{key}\":")
            } else {
                write!(out, "{key}=")
            };
            let _ = match value {
                Field::Number(n) => write!(out, "{n}"),
                Field::Seconds(t) => write!(out, "{:.6}", t.as_secs_f64()),
                // logfmt quotes a text only if it must, and then in the same way as JSON.
                Field::Text(s) if json || !is_plain(s) => write!(out, "{}", quoted(s)),
                Field::Text(s) => write!(out, "{s}"),
            };
        }
        out.push_str(if json { "}\n" } else { "\n" });
        out
    }
}

fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_graphic() && !b"\"=\\".contains(&b))
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_else(|_| "\"\"".into())
}

/// The queue of a thread that writes the lines. A slow reader of standard output therefore delays
/// no connection.
pub struct Log {
    queue: SyncSender<Entry>,
    lost: AtomicU64,
}

enum Entry {
    Line(String),
    /// The thread sends here when it has written all lines queued before.
    Flush(Sender<()>),
}

const QUEUE: usize = 16_384;

/// Most time that [`Log::flush`] waits.
const FLUSH: Duration = Duration::from_secs(1);

impl Log {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns the error if the thread cannot be created.
    pub fn start() -> io::Result<Log> {
        let (queue, lines) = sync_channel(QUEUE);
        thread::Builder::new()
            .name("log".into())
            .spawn(move || write_lines(&lines, io::stdout()))?;
        Ok(Log::new(queue))
    }

    fn new(queue: SyncSender<Entry>) -> Log {
        Log {
            queue,
            lost: AtomicU64::new(0),
        }
    }

    pub fn line(&self, format: Format, line: &Line) {
        if format == Format::Off {
            return;
        }
        match self.queue.try_send(Entry::Line(line.write(format))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of lines lost because the reader of standard output was too slow, or
    /// gone.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until the thread has written all lines queued before, for a second at most. Returns
    /// false if it has not: the reader of standard output is too slow, or gone.
    pub fn flush(&self) -> bool {
        let end = Instant::now() + FLUSH;
        let (written, acknowledged) = channel();
        let mut entry = Entry::Flush(written);
        while let Err(e) = self.queue.try_send(entry) {
            entry = match e {
                // std's queue has no send with a time limit.
                TrySendError::Full(entry) if Instant::now() < end => entry,
                _ => return false,
            };
            thread::sleep(Duration::from_millis(5));
        }
        let left = end.saturating_duration_since(Instant::now());
        acknowledged.recv_timeout(left).is_ok()
    }
}

fn write_lines(entries: &Receiver<Entry>, out: impl Write) {
    let mut out = BufWriter::new(out);
    loop {
        let entry = match entries.try_recv() {
            Ok(entry) => entry,
            Err(TryRecvError::Empty) => {
                if out.flush().is_err() {
                    return;
                }
                match entries.recv() {
                    Ok(entry) => entry,
                    Err(_) => return,
                }
            }
            Err(TryRecvError::Disconnected) => return,
        };
        let done = match entry {
            Entry::Line(line) => out.write_all(line.as_bytes()),
            Entry::Flush(written) => out.flush().map(|()| {
                // The caller may have given up.
                let _ = written.send(());
            }),
        };
        if done.is_err() {
            return;
        }
    }
}

/// Returns the present time in UTC, in the format of RFC 3339.
pub fn now() -> String {
    timestamp(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

fn timestamp(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Count days from 1 March of the year 0, in eras of 400 years.
    let z = days + 719_468;
    let day_of_era = z % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = z / 146_097 * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60,
        since_1970.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        let mut line = Line::default();
        line.text("client", "127.0.0.1:1")
            .text("why", "a \"b\"\n")
            .number("up", 5)
            .seconds("duration", Duration::from_millis(1500));
        line
    }

    #[test]
    fn both_formats() {
        assert_eq!(
            line().write(Format::Json),
            "{\"client\":\"127.0.0.1:1\",\"why\":\"a \\\"b\\\"\\n\",\"up\":5,\"duration\":1.500000}\n"
        );
        assert_eq!(
            line().write(Format::Logfmt),
            "client=127.0.0.1:1 why=\"a \\\"b\\\"\\n\" up=5 duration=1.500000\n"
        );
    }

    /// An output whose writes wait until the test reads.
    struct Output {
        began: Sender<()>,
        read: SyncSender<Vec<u8>>,
    }

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let gone = io::ErrorKind::BrokenPipe;
            let _ = self.began.send(());
            self.read.send(bytes.to_vec()).map_err(|_| gone)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns a log, what to read of its output, and a message for the begin of each write.
    fn log(queue: usize) -> (Log, Receiver<Vec<u8>>, Receiver<()>) {
        let (queue, entries) = sync_channel(queue);
        let (write, read) = sync_channel(0);
        let (tell, began) = channel();
        let output = Output {
            began: tell,
            read: write,
        };
        thread::spawn(move || write_lines(&entries, output));
        (Log::new(queue), read, began)
    }

    #[test]
    fn a_flush_ends_when_the_lines_are_written() {
        let (log, read, _began) = log(4);
        let reader = thread::spawn(move || read.into_iter().flatten().collect::<Vec<_>>());
        log.line(Format::Json, &line());
        assert!(log.flush());
        drop(log);
        assert_eq!(
            reader.join().unwrap(),
            line().write(Format::Json).as_bytes()
        );
    }

    #[test]
    fn a_flush_waits_for_room_in_a_full_queue() {
        let (log, read, began) = log(2);
        log.line(Format::Json, &line());
        began.recv().unwrap();
        // The thread waits for its reader, and takes nothing from the queue.
        while log.lost() == 0 {
            log.line(Format::Json, &line());
        }
        let flush = thread::spawn(move || log.flush());
        // Time in which the flush finds the queue full.
        thread::sleep(Duration::from_millis(50));
        let lines = read.into_iter().flatten().filter(|b| *b == b'\n').count();
        assert!(flush.join().unwrap());
        assert_eq!(lines, 3);
    }

    #[test]
    fn a_flush_gives_up_after_a_second() {
        let (log, _read, _began) = log(2);
        log.line(Format::Json, &line());
        assert!(!log.flush());
    }

    #[test]
    fn times_of_day() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_795_749_399, "2026-11-27T03:16:39.000Z"),
        ] {
            assert_eq!(timestamp(Duration::from_secs(seconds)), text);
        }
    }
}
