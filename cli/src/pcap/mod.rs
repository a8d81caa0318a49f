// SPDX-License-Identifier: GPL-2.0
//! The records of the capture device as a pcapng file. This room may call `kernel` and what
//! is below it. The command `capture` calls it.

pub mod file;
mod frame;
mod pcapng;
