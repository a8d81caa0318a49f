// SPDX-License-Identifier: GPL-2.0
//! `pair top` on a terminal: a table that fits the screen, and keys that sort it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span, Text};
use ratatui::{DefaultTerminal, Frame};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{Row, Sample, Sampler, sum};
use crate::cli::TopKey;
use crate::error::{Error, Result};
use crate::output::{Align, Answer, Table, age, color, short};

/// How long a signal waits to be noticed, at most.
const GLANCE: Duration = Duration::from_millis(200);
/// Narrower screens have fewer columns.
const WIDE: u16 = 72;

const KEYS: [(char, &str, TopKey); 4] = [
    ('b', "bytes", TopKey::Bytes),
    ('r', "rate", TopKey::Rate),
    ('a', "age", TopKey::Age),
    ('p', "process", TopKey::Process),
];

/// The terminal is as it was when this goes. ratatui does the same for a panic.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What happened before the next look at the pairs is due.
enum Happened {
    Due,
    Resized,
    Sorted(TopKey),
    Quit,
}

pub fn run(mut sampler: Sampler) -> Result<Answer> {
    let failed = |e: io::Error| Error::new(format!("cannot use the terminal: {e}"));
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, ended.clone()).map_err(failed)?;
    }
    let mut screen = Screen(ratatui::try_init().map_err(|e| {
        // It may have come half the way.
        let _ = ratatui::try_restore();
        failed(e)
    })?);
    let limit = sampler.arguments.limit.unwrap_or(usize::MAX);
    let mut left = sampler.arguments.count.unwrap_or(usize::MAX);
    let mut key = sampler.arguments.sort;
    let mut sample = None;
    let mut due = Instant::now() + sampler.interval();
    loop {
        let draw = |frame: &mut Frame| draw(frame, sample.as_ref(), key, limit);
        screen.0.draw(draw).map_err(failed)?;
        match wait(due, &ended).map_err(failed)? {
            // The last table stays as long as those before it.
            Happened::Due if left == 0 => return Ok(Answer::said()),
            Happened::Due => {
                left -= 1;
                due = Instant::now() + sampler.interval();
                sample = Some(sampler.next()?);
            }
            Happened::Sorted(by) => key = by,
            Happened::Resized => {}
            Happened::Quit => return Ok(Answer::said()),
        }
        if let Some(sample) = &mut sample {
            sample.sort(key);
        }
    }
}

fn wait(due: Instant, ended: &AtomicBool) -> io::Result<Happened> {
    loop {
        if ended.load(Ordering::Relaxed) {
            return Ok(Happened::Quit);
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Happened::Due);
        }
        if event::poll(left.min(GLANCE))? {
            match event::read()? {
                Event::Resize(..) => return Ok(Happened::Resized),
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    if let Some(happened) = pressed(key) {
                        return Ok(happened);
                    }
                }
                _ => {}
            }
        }
    }
}

fn pressed(key: KeyEvent) -> Option<Happened> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Esc | KeyCode::Char('q') => Some(Happened::Quit),
        KeyCode::Char('c') if control => Some(Happened::Quit),
        KeyCode::Char(pressed) if !control => {
            let known = KEYS.iter().find(|(key, ..)| *key == pressed);
            known.map(|(.., by)| Happened::Sorted(*by))
        }
        _ => None,
    }
}

fn draw(frame: &mut Frame, sample: Option<&Sample>, key: TopKey, limit: usize) {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ]);
    let [top, middle, bottom] = areas.areas(frame.area());
    let Some(sample) = sample else {
        frame.render_widget(Line::raw("measuring…"), top);
        frame.render_widget(keys(key), bottom);
        return;
    };
    frame.render_widget(Line::raw(sample.sum()), top);
    let room = usize::from(middle.height).saturating_sub(1);
    let text = match sample.rows.is_empty() {
        true => Text::raw(sample.none.as_str()),
        false => table(
            &sample.rows[..sample.rows.len().min(room).min(limit)],
            middle.width,
        ),
    };
    frame.render_widget(text, middle);
    frame.render_widget(keys(key), bottom);
}

/// The line of help, with the key that sorts now.
fn keys(now: TopKey) -> Line<'static> {
    let mut spans = Vec::new();
    for (key, name, by) in KEYS {
        let span = Span::raw(format!("{key} {name}"));
        spans.push(match by == now {
            true => marked(span, Modifier::REVERSED),
            false => span,
        });
        spans.push(Span::raw("  "));
    }
    spans.push(Span::raw("q quit"));
    Line::from(spans)
}

fn marked(span: Span, modifier: Modifier) -> Span {
    match color::is_on() {
        true => ratatui::style::Styled::set_style(span, modifier),
        false => span,
    }
}

fn table(rows: &[Row], width: u16) -> Text<'static> {
    use Align::{Left, Right};
    let wide = width >= WIDE;
    let columns = match wide {
        true => vec![
            ("PAIR", Right),
            ("SENT/s", Right),
            ("RECEIVED/s", Right),
            ("RING", Right),
            ("MSGS/s", Right),
            ("BYTES", Right),
            ("AGE", Right),
            ("PROCESSES", Left),
            ("CONNECTION", Left),
        ],
        false => vec![
            ("PAIR", Right),
            ("BYTES/s", Right),
            ("RING", Right),
            ("BYTES", Right),
            ("AGE", Right),
            ("PROCESSES", Left),
        ],
    };
    let mut table = Table::new(&columns);
    for row in rows {
        let [opener, _] = row.pair.ends.as_slice() else {
            continue;
        };
        let both = sum(row.rates.iter());
        let id = row.pair.id.to_string();
        let bytes = short(row.sent() as f64);
        let age = age(row.pair.age_ms);
        let processes = row.processes.clone();
        table.row(match wide {
            true => vec![
                id,
                short(row.rates[0].bytes()),
                short(row.rates[1].bytes()),
                both.share(),
                short(both.messages),
                bytes,
                age,
                processes,
                opener.addresses(),
            ],
            false => vec![id, short(both.bytes()), both.share(), bytes, age, processes],
        });
    }
    let lines = table.plain(width.into()).into_iter().enumerate();
    let lines = lines.map(|(i, line)| match i {
        0 => Line::from(marked(Span::raw(line), Modifier::BOLD)),
        _ => Line::raw(line),
    });
    lines.collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::super::{Sent, rows};
    use super::*;
    use crate::kernel::pair::tests::pair;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// The lines of a screen of this size.
    fn screen(sample: Option<&Sample>, key: TopKey, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| draw(frame, sample, key, usize::MAX))
            .unwrap();
        let cells = terminal.backend().buffer().content();
        let lines = cells.chunks(width.into());
        let text = |line: &[ratatui::buffer::Cell]| line.iter().map(|c| c.symbol()).collect();
        let lines: Vec<String> = lines.map(text).collect();
        lines.iter().map(|line| line.trim_end().into()).collect()
    }

    fn many() -> Sample {
        let pair = |n: u64| {
            let mut pair = pair(&[127, 0, 0, 1]).unwrap();
            (pair.id, pair.age_ms) = (n, n * 1000);
            pair.ends[0].sent.ring.bytes = 10_000 - n;
            pair
        };
        let mut sample = sample(rows((1..=40).map(pair).collect(), &Sent::new(), 1.0));
        for row in &mut sample.rows {
            row.processes = format!("p{:02}(1) -> q(2)", row.pair.id * 7 % 40);
        }
        sample
    }

    #[test]
    fn fits_the_screen() {
        let mut sample = many();
        for (key, first) in [
            (TopKey::Bytes, "1"),
            (TopKey::Age, "40"),
            (TopKey::Process, "40"),
        ] {
            sample.sort(key);
            for (width, height) in [(80, 24), (50, 12)] {
                let lines = screen(Some(&sample), key, width, height);
                assert!(lines[0].starts_with("40 pairs, "), "{lines:?}");
                assert!(lines[1].contains("PAIR") && lines[1].contains("PROCESSES"));
                assert_eq!(lines[2].split_whitespace().next(), Some(first));
                assert!(lines[2].contains("p"), "{lines:?}");
                let last = lines.last().unwrap();
                assert_eq!(last, "b bytes  r rate  a age  p process  q quit");
                // Every line between has a pair.
                assert!(lines.iter().all(|line| !line.is_empty()), "{lines:?}");
            }
        }
        screen(Some(&sample), TopKey::Age, 1, 1);
    }

    #[test]
    fn says_why_it_is_empty() {
        let lines = screen(Some(&sample(vec![])), TopKey::Rate, 80, 24);
        assert_eq!(lines[1], "no pair: why");
        assert_eq!(screen(None, TopKey::Rate, 80, 24)[0], "measuring…");
    }

    #[test]
    fn keys_sort_or_quit() {
        let of = |code| pressed(KeyEvent::new(code, KeyModifiers::NONE));
        assert!(matches!(of(KeyCode::Esc), Some(Happened::Quit)));
        assert!(matches!(of(KeyCode::Char('q')), Some(Happened::Quit)));
        assert!(matches!(
            of(KeyCode::Char('a')),
            Some(Happened::Sorted(TopKey::Age))
        ));
        assert!(of(KeyCode::Char('c')).is_none());
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(matches!(pressed(interrupt), Some(Happened::Quit)));
    }
}
