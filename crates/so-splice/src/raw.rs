// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers and the struct of the option, as `include/socksplice.h` has them, for programs that
//! make system calls by other means. Everything else of this crate needs no `unsafe`.

use core::ffi::c_int;

/// The level of the option.
pub const LEVEL: c_int = libc::IPPROTO_IP;

/// The number of the option at [`LEVEL`].
pub const SO_SPLICE: c_int = 0x5350;

/// The number of the option at `SOL_SOCKET`, as on OpenBSD and FreeBSD. Not every kernel accepts it.
pub const SO_SPLICE_BSD: c_int = 0x1023;

/// `struct splice`: the argument of `setsockopt(2)`. A 32-bit program can only pass
/// [`sp_fd`](Self::sp_fd), as an `int`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Splice {
    /// The sink, or -1 to end the splice.
    pub sp_fd: c_int,
    /// Number of bytes after which the splice ends; 0 is no limit.
    pub sp_max: i64,
    /// Time without a moved byte after which the splice ends; 0 is no limit.
    pub sp_idle: libc::timeval,
}
