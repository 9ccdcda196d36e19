//! Stele's storage engine: versioned cells that survive anything.
#![forbid(unsafe_code)]

pub mod cache;
pub mod cell;
mod error;
pub mod fragment;
pub mod log;
pub mod memory;
pub mod merge;
mod txn;
pub mod world;

pub use error::{Error, Printable, Result};
pub use txn::Txn;
