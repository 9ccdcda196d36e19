//! Stele's storage engine: durable tables of versioned cells.
//!
//! A table maps row, family, qualifier and timestamp to a value.
//!
//! Write path: a [`Commit`] passed to [`Store::apply`] is validated and
//! normalized (`prepare`). It is assigned a [`Txn`] unless a row that it
//! touches has changed since the caller last read it (`sequencer`, `conflict`),
//! enters the memory fragments (`memory`) and the log queue (`log`) atomically,
//! and is acknowledged at the durability that the caller chose. Later, a worker
//! flushes the memory to an immutable disk fragment (`workers`, `fragment`),
//! the config records the file (`config`), and the log segments are released.
//!
//! Read path: a [`Scan`] pins a snapshot and the table's current version
//! (`table`, `tablet`), merges the memory and disk fragments of the groups it
//! needs, and applies tombstones, folds and purge policies along the way
//! (`merge`).
#![forbid(unsafe_code)]

pub mod budget;
pub mod cache;
pub mod cell;
pub mod config;
mod conflict;
mod error;
mod error_kind;
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
mod varint;
pub mod verify;
mod workers;
pub mod world;

pub use cell::commit::{Commit, CommitBuilder, Mutation, TableId, TimeRange};
pub use cell::fold::{Fold, FoldId, Folds};
pub use cell::rows::RowRange;
pub use config::Checkpoint;
pub use error::{Error, Printable, Result};
pub use error_kind::ErrorKind;
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

/// Locks that abort the process if their holder panics, because the data they
/// guard may be inconsistent.
pub mod fatal {
    pub use crate::sync::{Condvar, Mutex, MutexGuard};
}
