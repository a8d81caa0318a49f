// SPDX-License-Identifier: GPL-2.0
//! The counters of `module/core/stats.h`. build.rs reads their names and help texts there.

/// Name and help text, in the module's order.
pub const COUNTERS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/counters.rs"));

/// The help text of a counter.
pub fn help(name: &str) -> &'static str {
    let counter = COUNTERS.iter().find(|counter| counter.0 == name);
    counter.expect("a counter of the module").1
}
