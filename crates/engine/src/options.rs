//! How a store is sized. The defaults suit a server of a few gigabytes.

use std::time::Duration;

use crate::cell::fold::Folds;
use crate::log::LogOptions;

#[derive(Clone, Debug, Default)]
pub struct Options {
    pub limits: Limits,
    pub log: LogOptions,
    pub flush: FlushOptions,
    pub compact: CompactOptions,
    pub memory: MemoryOptions,
    pub admission: AdmissionOptions,
    /// The merge operations that commits may use.
    pub folds: Folds,
    /// A snapshot older than this is given up, so that it cannot keep every
    /// superseded cell alive; its reader gets a retryable error.
    pub snapshot_age_max: SnapshotAge,
}

/// What a commit may hold.
#[derive(Clone, Debug)]
pub struct Limits {
    pub row_bytes_max: usize,
    pub qualifier_bytes_max: usize,
    pub value_bytes_max: usize,
    /// All of a commit in its packed form.
    pub commit_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            row_bytes_max: 64 << 10,
            qualifier_bytes_max: 64 << 10,
            value_bytes_max: 128 << 20,
            commit_bytes_max: 272 << 20,
        }
    }
}

#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// Bytes of the memory budget, when the store makes its own.
    pub budget_bytes: usize,
    /// Bytes of the block cache, when the store makes its own.
    pub cache_bytes: u64,
    /// Writers wait while more than this is queued for the log.
    pub log_queue_bytes_max: u64,
    /// Slots that remember the newest txn of rows; a power of two. Fewer slots
    /// give more false conflicts, never a missed one.
    pub conflict_slots: usize,
    /// Commits of one generation of txns; lower only in tests.
    pub generation_commits_max: u32,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        MemoryOptions {
            budget_bytes: 1 << 30,
            cache_bytes: 256 << 20,
            log_queue_bytes_max: 64 << 20,
            conflict_slots: 1 << 20,
            generation_commits_max: u32::MAX,
        }
    }
}

/// How commits wait while memory is full, the log is behind or chains are too
/// long.
#[derive(Clone, Debug)]
pub struct AdmissionOptions {
    /// More commits than this do not wait; further ones are refused.
    pub waiters_max: usize,
    /// A commit that has waited for so long is refused.
    pub wait_max: Duration,
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        AdmissionOptions { waiters_max: 4096, wait_max: Duration::from_secs(30) }
    }
}

/// When memory is written to disk fragments.
#[derive(Clone, Debug)]
pub struct FlushOptions {
    /// One (table, group) holds at most about this much before it is flushed.
    pub fragment_bytes: usize,
    /// The share of the memory budget, in percent, above which the worker
    /// flushes whatever frees most.
    pub budget_percent: usize,
    /// What a byte of pinned log weighs against a byte of memory, in percent.
    pub log_weight_percent: u64,
    /// Cells stay in memory alone for at most this long.
    pub age_max: Duration,
    /// More log than this is not left to be replayed.
    pub replay_bytes_max: u64,
}

impl Default for FlushOptions {
    fn default() -> Self {
        FlushOptions {
            fragment_bytes: 64 << 20,
            budget_percent: 50,
            log_weight_percent: 10,
            age_max: Duration::from_secs(600),
            replay_bytes_max: 1 << 30,
        }
    }
}

#[derive(Clone, Debug)]
pub struct CompactOptions {
    /// Chains of fewer runs than this are left alone.
    pub chain_min: usize,
    /// Chains are never allowed to keep more runs than this.
    pub chain_max: usize,
    /// From this length on writers are slowed down.
    pub chain_slow: usize,
    /// At this length writers wait for compaction.
    pub chain_stop: usize,
    /// An output that has reached this size ends with the row at hand.
    pub output_bytes: u64,
}

impl Default for CompactOptions {
    fn default() -> Self {
        CompactOptions {
            chain_min: 4,
            chain_max: 12,
            chain_slow: 24,
            chain_stop: 36,
            output_bytes: 256 << 20,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct SnapshotAge(pub Duration);

impl Default for SnapshotAge {
    fn default() -> Self {
        SnapshotAge(Duration::from_secs(30))
    }
}
