//! The promises of the metastore, a module each, in one program, so that the
//! crate and its dependencies are linked once. Run one of them with
//! `cargo test -p stele-metastore --test promises -- native::`.

mod clock;
mod consensus;
mod etcd;
mod kill;
mod machine;
mod memory;
mod native;
mod node;
mod panics;
mod purge;
mod snapshot;
mod waiting;
