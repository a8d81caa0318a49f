// SPDX-License-Identifier: GPL-2.0
//! Targets: their addresses, their health, and the choice of one for each connection.

mod connect;
mod health;
mod pool;

pub use connect::{connect, is_own_shortage};
pub use health::{Attempt, Entered, Target};
pub use pool::{Backends, Known, resolve};
