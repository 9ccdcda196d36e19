//! The promises of the metastore, a module each, in one program, so that the
//! crate and its dependencies are linked once. Run one of them with
//! `cargo test -p stele-metastore --test promises -- native::`.

mod backup;
mod clock;
mod cluster;
mod consensus;
mod etcd;
mod golden;
mod kill;
mod levels;
mod machine;
mod members;
mod memory;
mod native;
mod node;
mod operations;
mod panics;
mod purge;
mod recover;
mod simulation;
mod snapshot;
mod waiting;
