//! Stele's storage engine: versioned cells that survive anything.
#![forbid(unsafe_code)]

pub mod budget;
pub mod cache;
pub mod cell;
pub mod config;
mod error;
pub mod fragment;
pub mod log;
pub mod memory;
pub mod merge;
pub mod schema;
mod txn;
pub mod world;

pub use error::{Error, Printable, Result};
pub use txn::Txn;
