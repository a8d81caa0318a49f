// SPDX-License-Identifier: GPL-2.0
//! What the operating system has: cgroups, network namespaces, processes, users and files.
//! This room may call `output` and what is below it. It knows nothing of the module.

pub mod cgroup;
pub mod epoll;
pub mod files;
pub mod netns;
pub mod privilege;
pub mod process;
pub mod unit;
