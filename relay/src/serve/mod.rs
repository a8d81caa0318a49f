// SPDX-License-Identifier: GPL-2.0
//! Listeners and their connections, from the start of the process to its end.

mod accept;
mod connection;
mod front;
mod inherit;
mod registry;
mod relay;
mod run;
mod shared;
mod sources;
mod stats;
mod upgrade;

pub use registry::{Entry, Registry};
pub use run::run;
pub use shared::{Admin, Shared};
pub use stats::{Live, Stats};
