// SPDX-License-Identifier: GPL-2.0
//! Addresses, networks and sockets.

mod address;
mod listen;
mod network;
mod stream;
pub mod sys;
pub mod transparent;

pub use address::{Address, Peer, is_name, plain, source_key};
pub use listen::{Accepted, BACKLOG, Bound};
pub use network::Network;
pub use stream::{Stream, tune};
