// SPDX-License-Identifier: GPL-2.0
//! Parsers of what clients send before the forwarded bytes. A client may be a stranger: no parser
//! panics, whatever it sends. No parser reads from a socket: the caller hands it the bytes received
//! so far.

pub mod connect;
pub mod hello;
pub mod proxy;
pub mod socks;
pub mod tlv;

/// The result of parsing the bytes received so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// The message is complete: its value, and the number of bytes that it takes.
    Done(T, usize),
    /// The bytes are the beginning of a message, which needs more.
    More,
    /// No bytes that follow can make the message valid.
    Bad(&'static str),
}
