// SPDX-License-Identifier: GPL-2.0
//! Forwards bytes between two connected sockets until both streams have ended.
//!
//! A [`Link`] is such a pair of sockets with its state. Each of its two directions forwards in one
//! of three modes (`direction.rs`), counts its bytes (`meter.rs`) and keeps to the limits
//! (`rate.rs`).

mod chunk;
mod direction;
mod kernel;
mod link;
mod meter;
mod mode;
mod rate;
mod run;

pub use chunk::Pipes;
pub use kernel::Kernel;
pub use link::{Limits, Link, Which};
pub use meter::Sums;
pub use mode::{Mode, Wanted};
pub use rate::Bucket;
pub use run::Ending;
