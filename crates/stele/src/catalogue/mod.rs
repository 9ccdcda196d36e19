//! `stele catalogue`: catalogues and their records from the command line.
//!
//! `command` declares the commands and runs those on catalogues; `records` runs those on
//! records, `transfer` imports and exports, and `format` prints results.

mod command;
mod format;
mod records;
mod transfer;

pub use command::{Command, run};
