// SPDX-License-Identifier: GPL-2.0
//! socksplice-relay: a TCP proxy whose bytes the kernel forwards, by SO_SPLICE where the module
//! socksplice is loaded, by splice(2) elsewhere. The layers, lowest first, each of which uses
//! only those before it:
//!
//! - [`net`]: addresses, networks and sockets; [`log`]: lines and messages;
//! - [`wire`]: parsers of what strangers send before the bytes are forwarded;
//! - [`transfer`]: two connected sockets, forwarded until both streams have ended;
//! - [`config`]: the file, checked;
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
