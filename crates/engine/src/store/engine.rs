//! The engine object: the state of an open store.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::bounds::Bounds;
use super::collection::Collection;
use super::group_commit::GroupCommit;
use super::log_mode::LogMode;
use super::stats::Counters;
use super::waiters::Waiters;
use crate::error::{Error, Result};
use crate::sync::NoIoMutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::tablet::{Table, Tables};
use crate::txn::Txn;
use crate::workers::claims::Claims;
use crate::workers::failures::Failures;
use crate::world::DirLock;
use crate::write::{ConflictMemory, RowSlot, Sequencer};

/// An open store as its callers, scans and workers share it. `Store` is the
/// handle that owns the workers.
pub struct Engine {
    pub tables: Tables,
    pub(super) log: LogMode,
    /// The apply lock: held while a commit gets its txn and enters memory and
    /// the log queue.
    pub(super) sequencer: NoIoMutex<Sequencer>,
    /// Whether a spare generation of txns was asked for.
    pub(super) generation_wanted: AtomicBool,
    /// The newest commit in memory and in the log's queue.
    pub(super) latest: AtomicU64,
    pub(super) conflicts: ConflictMemory,
    /// All commits of earlier incarnations are below this txn.
    pub(super) floor: Txn,
    pub(super) claims: Claims,
    pub(super) failures: Failures,
    /// Number of threads per lane of the pool, and how many of them run long
    /// compactions.
    pub(super) lane_threads: usize,
    pub(super) urgent_compactions: AtomicUsize,
    pub(super) large_compactions: AtomicUsize,
    /// Tasks waiting for a sync.
    pub(super) group_commit: GroupCommit,
    /// Commits waiting for admission.
    pub(super) waiters: Arc<Waiters>,
    /// Splits and joins that the store chooses.
    pub(super) bounds: Bounds,
    /// Number of tablets that are being loaded.
    pub(super) loading: AtomicUsize,
    pub(super) collection: Collection,
    pub(super) counters: Counters,
    pub(super) stopping: AtomicBool,
    pub(super) closed: AtomicBool,
    pub(super) _lock: Box<dyn DirLock>,
}

impl Engine {
    /// Returns the newest commit that survives a crash.
    pub fn durable(&self) -> Txn {
        Txn::from_raw(self.log.durable()).expect("the log's index is a txn")
    }

    /// Returns the newest accepted commit.
    pub fn latest(&self) -> Txn {
        let latest = self.latest.load(Ordering::Acquire);
        // A commit can become durable before `latest` is updated.
        Txn::from_raw(latest).expect("only txns are stored").max(self.durable())
    }

    /// Returns a txn at or above that of the slot's last commit, ignoring
    /// deletes of ranges.
    pub fn newest_in_slot(&self, row: RowSlot) -> Txn {
        self.conflicts.newest(row)
    }

    /// Returns a txn at or above that of the row's last commit and of the load of its
    /// tablet.
    pub fn newest_of(&self, table: &Table, row: &[u8], slot: RowSlot) -> Txn {
        let newest = self.conflicts.newest(slot).max(table.range_deleted());
        newest.max(table.version().tablets.of(row).loaded_at)
    }

    /// Returns an error if the store has failed permanently.
    pub(super) fn check_failure(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    /// Returns the reason if the store has failed permanently.
    pub(super) fn failure(&self) -> Option<Error> {
        self.log.failed().or_else(|| self.tables.config.failure())
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
