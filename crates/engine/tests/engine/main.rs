//! The promises of the engine, one module each. They share one binary, because linking
//! a binary for each takes longer than running it. Promises about processes are in
//! `tests/process`, those about thread schedules in `tests/shuttle`; `tests/decoders.rs`
//! measures the memory of its own process.
#![forbid(unsafe_code)]

#[macro_use]
#[path = "../support/mod.rs"]
mod support;

mod admission;
mod backups;
mod batches;
mod bounds;
mod cache;
mod cells;
mod checkpoint;
mod contract;
mod crash;
mod external;
mod faults;
mod files;
mod full_disk;
mod golden;
mod groups;
mod hidden;
mod loads;
mod model;
mod objects;
mod overload;
mod place;
mod point;
mod pool;
mod simulated;
mod table_check;
mod tablets;
mod tombstones;
mod traps;
mod verify;
