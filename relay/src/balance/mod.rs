// SPDX-License-Identifier: GPL-2.0
//! Targets: which there are, which of them work, and which one a connection goes to.

mod connect;
mod health;
mod pool;

pub use connect::connect;
pub use health::{Entered, Target};
pub use pool::{Backends, Known, resolve};
