// SPDX-License-Identifier: GPL-2.0
//! socksplice-relay: a TCP proxy that has the kernel forward the bytes. If the module socksplice
//! is loaded, it uses `SO_SPLICE`, otherwise splice(2).
//!
//! These are its layers, lowest first. Each one uses only layers that stand before it:
//!
//! - [`net`]: addresses, networks and sockets; [`log`]: lines and messages;
//! - [`wire`]: parsers of what clients send before the forwarded bytes;
//! - [`transfer`]: forwards between two connected sockets until both streams have ended;
//! - [`config`]: reads and checks the configuration;
//! - [`balance`]: targets, their health, and the choice among them;
//! - [`serve`]: listeners, connections, limits, reload, upgrade;
//! - [`admin`]: metrics and status; [`top`]: the client that shows them.
#![deny(unsafe_code)]

pub mod admin;
pub mod balance;
pub mod config;
pub mod log;
pub mod net;
pub mod serve;
pub mod top;
pub mod transfer;
pub mod wire;
