// SPDX-License-Identifier: GPL-2.0
//! Writes one line for each connection to standard output, and messages to standard error.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    queue: SyncSender<String>,
    lost: AtomicU64,
}

const QUEUE: usize = 16_384;

impl Log {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns the error if the thread cannot be created.
    pub fn start() -> io::Result<Log> {
        let (queue, lines) = sync_channel(QUEUE);
        thread::Builder::new()
            .name("log".into())
            .spawn(move || write_lines(&lines))?;
        Ok(Log {
            queue,
            lost: AtomicU64::new(0),
        })
    }

    pub fn line(&self, format: Format, line: &Line) {
        if format == Format::Off {
            return;
        }
        match self.queue.try_send(line.write(format)) {
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

    /// Gives the thread half a second to write the queued lines. Returns at once if the queue is
    /// full or the thread has ended.
    pub fn flush(&self) {
        for _ in 0..100 {
            // The thread writes nothing for an empty text.
            if self.queue.try_send(String::new()).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn write_lines(lines: &Receiver<String>) {
    let mut out = BufWriter::new(io::stdout());
    loop {
        let line = match lines.try_recv() {
            Ok(line) => line,
            Err(TryRecvError::Empty) => {
                if out.flush().is_err() {
                    return;
                }
                match lines.recv() {
                    Ok(line) => line,
                    Err(_) => return,
                }
            }
            Err(TryRecvError::Disconnected) => return,
        };
        if out.write_all(line.as_bytes()).is_err() {
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
