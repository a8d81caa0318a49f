// SPDX-License-Identifier: GPL-2.0
//! Parsers of what strangers send before their bytes are forwarded. None of them reads from a
//! socket, takes more than it is given, or panics; each says how many bytes it has used.

pub mod connect;
pub mod hello;
pub mod proxy;
pub mod socks;

/// What came of the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// and how many bytes that took
    Done(T, usize),
    /// There is no more than the beginning.
    More,
    /// It can never become valid, whatever follows.
    Bad(&'static str),
}
