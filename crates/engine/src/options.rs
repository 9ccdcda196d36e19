//! The options of a store. The defaults suit a server with a few gigabytes of
//! memory.

use std::time::Duration;

use crate::cell::fold::Folds;
use crate::fragment::FileHandles;
use crate::log::LogOptions;

#[derive(Clone, Debug, Default)]
pub struct Options {
    pub limits: Limits,
    pub log: LogOptions,
    pub flush: FlushOptions,
    pub compact: CompactOptions,
    pub memory: MemoryOptions,
    pub admission: AdmissionOptions,
    /// The merge operations available to commits.
    pub folds: Folds,
    /// Snapshots older than this expire, so that they cannot keep all
    /// superseded cells alive; readers get a retryable error.
    pub snapshot_age_max: SnapshotAge,
}

/// Size limits of commits.
#[derive(Clone, Debug)]
pub struct Limits {
    pub row_bytes_max: usize,
    pub qualifier_bytes_max: usize,
    pub value_bytes_max: usize,
    /// Size of a whole commit in packed form.
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
    /// Size of the memory budget, unless it is shared.
    pub budget_bytes: usize,
    /// Size of the block cache, unless it is shared.
    pub cache_bytes: u64,
    /// Number of fragments that may be open at a time, unless it is shared.
    pub open_files_max: usize,
    /// Writers wait while more bytes than this are queued for the log.
    pub log_queue_bytes_max: u64,
    /// Number of slots that track the newest txn of rows; a power of two. Fewer
    /// slots cause more false conflicts, but never a missed one.
    pub conflict_slots: usize,
    /// Maximum number of commits per generation of txns; lower only in tests.
    pub generation_commits_max: u32,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        MemoryOptions {
            budget_bytes: 1 << 30,
            cache_bytes: 256 << 20,
            open_files_max: FileHandles::process_limit(),
            log_queue_bytes_max: 64 << 20,
            conflict_slots: 1 << 20,
            generation_commits_max: u32::MAX,
        }
    }
}

/// Limits on commits that wait because memory is full, the log is behind or
/// chains are too long.
#[derive(Clone, Debug)]
pub struct AdmissionOptions {
    /// Maximum number of waiting commits; any more are rejected.
    pub waiters_max: usize,
    /// A commit that has waited this long is rejected.
    pub wait_max: Duration,
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        AdmissionOptions { waiters_max: 4096, wait_max: Duration::from_secs(30) }
    }
}

/// When memory is flushed to disk fragments.
#[derive(Clone, Debug)]
pub struct FlushOptions {
    /// Approximate size at which the memory of one (table, group) is flushed.
    pub fragment_bytes: usize,
    /// Percentage of the memory budget above which the worker flushes whatever
    /// frees the most.
    pub budget_percent: usize,
    /// Weight of a byte of pinned log relative to a byte of memory, in percent.
    pub log_weight_percent: u64,
    /// Maximum time that cells stay only in memory.
    pub age_max: Duration,
    /// Maximum size of the log to replay.
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
    /// Chains with fewer runs than this are not compacted.
    pub chain_min: usize,
    /// Chains with more runs than this are always compacted.
    pub chain_max: usize,
    /// Writers are delayed from this chain length on.
    pub chain_slow: usize,
    /// Writers wait for compaction from this chain length on.
    pub chain_stop: usize,
    /// An output ends with the row at which it reaches this size.
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
