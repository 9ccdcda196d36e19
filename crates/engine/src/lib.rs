//! Stele's storage engine: durable tables of versioned cells. Synchronous, no
//! network, no async runtime.
//!
//! A table maps row, family, qualifier and timestamp to a value.
//!
//! ```
//! use stele_engine::schema::{Family, Schema};
//! use stele_engine::world::World;
//! use stele_engine::{CommitBuilder, Options, Result, ScanSpec, Store, Txn, Durability};
//!
//! # fn main() -> Result<()> {
//! # let temporary = tempfile::tempdir().unwrap();
//! # let dir = temporary.path();
//! let store = Store::open(dir, Options::default(), World::real())?;
//! let users = store.create_table("users", Schema::with_families([Family::new("profile")])?)?;
//!
//! let mut commit = CommitBuilder::new();
//! commit.table(users).row(b"ada").set(b"profile", b"city", 1, b"London");
//! store.apply(&commit.finish(), Txn::MAX, Durability::Durable)?;
//!
//! let mut cities = Vec::new();
//! store.read(users, ScanSpec::row(b"ada"), |cell| cities.push(cell.value.to_vec()))?;
//! assert_eq!(cities, [b"London"]);
//! store.close()
//! # }
//! ```
//!
//! # Map
//!
//! | module | holds |
//! |---|---|
//! | `store` | An open store: admission and application of commits, group commit, recovery, the pool of workers, checkpoints |
//! | `write` | What a commit passes before it is applied: validation, conflicts, numbering |
//! | [`log`] | The write-ahead log: records, segments, group commit |
//! | [`memory`] | The sorted in-memory fragment |
//! | `tablet` | Tables, tablets, chains, runs, links and the directory of fragments |
//! | `workers` | Flush and compaction, and the choice of what to do |
//! | [`fragment`] | The immutable sorted file, and the cache of its blocks |
//! | `read` | Scans, single-row reads, snapshots |
//! | [`merge`] | The k-way merge; what a reader sees, what a rewrite keeps |
//! | [`cell`], [`schema`] | Keys, commits, folds and tombstones; groups, families and purge policies |
//! | [`config`] | Which tables, tablets and files exist; the manifest |
//! | [`verify`] | Offline checks and dumps |
//! | [`world`], `sync` | Clock, files and threads, real or simulated; locks that a test can schedule |
//!
//! # Write path
//!
//! A [`Commit`] passed to [`Store::apply`] is validated and normalized (`write`).
//! It is assigned a [`Txn`] unless a row that it touches has changed since the
//! caller last read it, enters the memory fragments ([`memory`]) and the log
//! queue ([`log`]) atomically, and is acknowledged at the durability that the
//! caller chose. Later, a worker flushes the memory to an immutable disk fragment
//! (`workers`, [`fragment`]), the config records the file ([`config`]), and the log
//! segments are released.
//!
//! # Read path
//!
//! A [`Scan`] holds a snapshot and pins the table's current version (`tablet`),
//! merges the memory and disk fragments of the groups it needs, and applies
//! tombstones, folds and purge policies along the way ([`merge`]).
#![forbid(unsafe_code)]

pub mod budget;
pub mod cell;
pub mod config;
mod durability;
mod error;
mod error_kind;
pub mod fragment;
pub mod log;
pub mod memory;
pub mod merge;
mod options;
mod read;
mod resources;
mod rules;
pub mod schema;
mod store;
mod sync;
mod tablet;
mod txn;
mod varint;
pub mod verify;
mod workers;
pub mod world;
mod write;

pub use cell::commit::{Commit, CommitBuilder, Mutation, TableId, TimeRange};
pub use cell::fold::{Fold, FoldId, Folds};
pub use cell::rows::RowRange;
pub use config::{Checkpoint, TabletId};
pub use durability::Durability;
pub use error::{Error, NotLoaded, Printable, Result};
pub use error_kind::ErrorKind;
pub use fragment::cache;
pub use merge::{CellView, Columns, EntryPlace, FamilyColumns, Flow};
pub use options::{
    AdmissionOptions, CompactOptions, FlushOptions, Limits, LoadOptions, MemoryOptions,
    ObjectOptions, Options, SnapshotAge, TabletOptions,
};
pub use read::{BatchEnd, BatchLimits, FirstCell, Place, RowMode, Scan, ScanSpec, Snapshot, View};
pub use resources::Resources;
pub use rules::{OnDoubt, OnExists, Rules, WalkFrom};
pub use store::{
    Admission, BackupInfo, ChainInfo, CheckpointFiles, ClaimedTablet, Collected, DeletedInfo,
    LOG_DIR, LoadWait, PendingFiles, Permit, Rebuilding, Rebuilt, ServerParts, Store, StoreStats,
    TABLES_STREAM, TabletInfo, TabletSummary, UnusedFile, Work, WorkFailure,
};
pub use sync::AbortOnPanic;
pub use tablet::{FRAGMENTS_DIR, TableSizes, TabletState};
pub use txn::Txn;

/// Locks that abort the process if their holder panics, because the data they
/// guard may be inconsistent.
pub mod fatal {
    pub use crate::sync::{Condvar, Mutex, MutexGuard};
}
