// SPDX-License-Identifier: GPL-2.0
//! What the kernel answers: the module over netlink, its capture device, sock_diag, and BPF's
//! sockmaps.
//! This room may call `system` and what is below it. Commands, `policy` and `pcap` call it.

pub mod capture;
pub mod module;
pub mod netlink;
pub mod pair;
pub mod release;
pub mod sock_diag;
pub mod sockmap;
pub mod splice;
