//! `stele engine bench`: measures how fast the engine writes and reads on this machine.
//!
//! `command` has the flags and prints the results, `workload` generates keys and values
//! and owns the store, `meter` measures, `phases` lists what is measured.

mod command;
mod meter;
mod phases;
mod workload;

pub use command::{Options, run};
