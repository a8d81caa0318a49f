// SPDX-License-Identifier: GPL-2.0
//! Two connected sockets, forwarded until both streams have ended.
//!
//! [`Link`] is such a pair with what is known of it while it lives. Each of its two directions
//! goes in one of three modes (`direction.rs`), counts its bytes (`meter.rs`) and keeps to the
//! limits (`rate.rs`).

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
