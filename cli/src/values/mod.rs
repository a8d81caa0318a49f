// SPDX-License-Identifier: GPL-2.0
//! Values that users write and read: networks, ports, sizes and selectors of
//! containers. This room may call `output` and what is below it.

pub mod cidr;
pub mod port;
pub mod selector;
pub mod size;
