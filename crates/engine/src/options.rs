//! The options of a store. The defaults suit a server with a few gigabytes of
//! memory.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cell::fold::Folds;
use crate::fragment::FileHandles;
use crate::log::LogOptions;
use crate::world::FragmentStore;

#[derive(Clone, Debug, Default)]
pub struct Options {
    pub limits: Limits,
    pub log: LogOptions,
    pub flush: FlushOptions,
    pub compact: CompactOptions,
    pub memory: MemoryOptions,
    pub admission: AdmissionOptions,
    pub loads: LoadOptions,
    pub tablets: TabletOptions,
    pub objects: ObjectOptions,
    /// The merge operations available to commits.
    pub folds: Folds,
    /// Snapshots older than this expire, so that they cannot keep all
    /// superseded cells alive; readers get a retryable error.
    pub snapshot_age_max: SnapshotAge,
}

/// Where disk fragments are, if not in the directory of the store.
#[derive(Clone, Default)]
pub struct ObjectOptions {
    /// Only for stores with their own log.
    pub store: Option<Arc<dyn FragmentStore>>,
}

impl fmt::Debug for ObjectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.store.as_ref().map(|store| store.address());
        f.debug_struct("ObjectOptions").field("store", &address).finish()
    }
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

/// Limits on requests that wait for a tablet that is being loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Maximum number of requests that wait for one tablet; any more are rejected.
    pub waiters_max: usize,
    /// A request that has waited this long is rejected.
    pub wait_max: Duration,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions { waiters_max: 1000, wait_max: Duration::from_secs(10) }
    }
}

/// When tablets are split and joined automatically. Tables whose schema is not
/// splittable never are, nor are those of a store with an external log.
#[derive(Clone, Debug)]
pub struct TabletOptions {
    /// Whether tablets are split and joined automatically.
    pub automatic: bool,
    /// A tablet with more bytes on disk is split.
    pub split_bytes: u64,
    /// A tablet that takes a larger percentage of the store's busy time is split.
    pub split_load_percent: u32,
    /// How long a tablet must be that busy.
    pub split_load_time: Duration,
    /// Busy time of the store, as a percentage of the time of one core, below which no
    /// tablet counts as busy.
    pub busy_percent_min: u32,
    /// Neighbouring tablets with fewer bytes on disk together are joined.
    pub join_bytes: u64,
    /// How long tablets must have had their rows before they are joined.
    pub join_age: Duration,
    /// Minimum time between two changes of the rows of a tablet.
    pub change_interval: Duration,
    /// Maximum number of splits at a time, and of joins.
    pub changes_max: usize,
}

impl Default for TabletOptions {
    fn default() -> Self {
        TabletOptions {
            automatic: true,
            split_bytes: 1 << 30,
            split_load_percent: 25,
            split_load_time: Duration::from_secs(60),
            busy_percent_min: 10,
            join_bytes: 128 << 20,
            join_age: Duration::from_secs(600),
            change_interval: Duration::from_secs(60),
            changes_max: 2,
        }
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
