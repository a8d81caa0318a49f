// SPDX-License-Identifier: GPL-2.0
//! The modes in which the relay can forward bytes.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// How a direction forwards its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The kernel forwards, by `SO_SPLICE`.
    Sosplice,
    /// The relay calls splice(2), from the source into a pipe and from there to the sink.
    Pipe,
    /// The relay reads and writes.
    Copy,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Sosplice => "sosplice",
            Mode::Pipe => "pipe",
            Mode::Copy => "copy",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The mode that the configuration asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The first of `sosplice`, `pipe` and `copy` that works.
    #[default]
    Auto,
    Only(Mode),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "auto" => Wanted::Auto,
            "sosplice" => Wanted::Only(Mode::Sosplice),
            "pipe" => Wanted::Only(Mode::Pipe),
            "copy" => Wanted::Only(Mode::Copy),
            _ => return Err(format!("'{text}' is no mode (auto, sosplice, pipe, copy)")),
        })
    }
}

/// The mode of a direction, and why it was chosen.
pub struct Chosen(Mutex<(Mode, Arc<str>)>);

impl Chosen {
    pub fn new(mode: Mode, why: impl Into<Arc<str>>) -> Self {
        Chosen(Mutex::new((mode, why.into())))
    }

    pub fn get(&self) -> (Mode, Arc<str>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub fn mode(&self) -> Mode {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    pub fn set(&self, mode: Mode, why: impl Into<Arc<str>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (mode, why.into());
    }
}
