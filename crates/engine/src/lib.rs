//! Stele's storage engine: versioned cells that survive anything.
//!
//! A table maps row, family, qualifier and timestamp to a value. Follow one
//! write: a [`Commit`] arrives at [`Store::apply`], is brought into normal form
//! (`prepare`), gets a [`Txn`] if no row it touches is newer than the caller
//! knows (`sequencer`, `conflict`), enters the memory fragments (`memory`) and
//! the log's queue (`log`) in one step, and is acknowledged when it is as safe
//! as the caller asked. Later its memory is serialized to an immutable disk
//! fragment (`workers`, `fragment`), the configuration names the file
//! (`config`), and the log lets go.
//!
//! Follow one read: a [`Scan`] holds a snapshot, takes the table's current
//! version (`table`, `tablet`), merges the memory and disk fragments of the
//! groups it needs, and applies deletes, folds and purge policy on the way
//! (`merge`).
#![forbid(unsafe_code)]

pub mod budget;
pub mod cache;
pub mod cell;
pub mod config;
mod conflict;
mod error;
pub mod fragment;
mod link;
pub mod log;
pub mod memory;
pub mod merge;
mod options;
mod place;
mod point;
mod prepare;
mod recovery;
mod run;
mod scan;
pub mod schema;
mod sequencer;
mod sizes;
mod snapshot;
mod source;
mod store;
mod sync;
mod table;
mod tables;
mod tablet;
mod txn;
pub mod verify;
mod workers;
pub mod world;

pub use cell::commit::{Commit, CommitBuilder, Mutation, TableId, TimeRange};
pub use cell::fold::{Fold, FoldId, Folds};
pub use cell::rows::RowRange;
pub use config::Checkpoint;
pub use error::{Error, Printable, Result};
pub use fragment::EntryPlace;
pub use merge::{CellView, Columns, FamilyColumns, Flow};
pub use options::{
    AdmissionOptions, CompactOptions, FlushOptions, Limits, MemoryOptions, Options, SnapshotAge,
};
pub use place::{FirstCell, Place};
pub use recovery::TABLES_STREAM;
pub use scan::{BatchEnd, BatchLimits, RowMode, Scan, ScanSpec, View};
pub use sizes::TableSizes;
pub use snapshot::Snapshot;
pub use store::{Admission, LOG_DIR, Permit, Resources, Store, StoreStats, Trouble, Wait, Work};
pub use sync::AbortOnPanic;
pub use tables::FRAGMENTS_DIR;
pub use txn::Txn;

/// Locks whose holders must not panic: the process ends then, because what they
/// guard may be half changed.
pub mod fatal {
    pub use crate::sync::{Condvar, Mutex, MutexGuard};
}
