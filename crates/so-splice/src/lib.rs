// SPDX-License-Identifier: MIT OR Apache-2.0
#![doc = include_str!("../README.md")]
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("so-splice is for Linux only: SO_SPLICE comes from the kernel module socksplice");

pub mod raw;

#[cfg(feature = "std")]
mod forward;
#[cfg(feature = "mio")]
pub mod mio;
#[cfg(feature = "std")]
mod option;
#[cfg(feature = "std")]
mod pipe;
#[cfg(feature = "std")]
mod sys;
#[cfg(feature = "tokio")]
pub mod tokio;

#[cfg(feature = "std")]
pub use forward::{Error, Report, Side, Traffic, Way, forward, forward_by};
#[cfg(feature = "std")]
pub use option::{Options, is_unavailable, moved, probe, splice, unsplice};
#[cfg(feature = "std")]
pub use pipe::Pipe;
