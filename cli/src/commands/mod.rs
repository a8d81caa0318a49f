// SPDX-License-Identifier: GPL-2.0
//! One file for each verb of the command line, and what several verbs share: the filter of
//! pairs. A command may call everything below it. Only `main` calls commands.

pub mod capture;
pub mod doctor;
pub mod drain;
pub mod exporter;
pub mod feature;
pub mod filter;
pub mod man;
pub mod monitor;
pub mod stats;
pub mod top;
