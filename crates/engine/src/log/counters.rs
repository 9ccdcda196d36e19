//! What the log has done since it was opened, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts shared by the writer and whoever reports them.
#[derive(Default)]
pub(super) struct Counters {
    records: AtomicU64,
    bytes: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Records written, parts and the log's own records included.
    pub records: u64,
    /// Bytes written, record headers included, zero-filling not.
    pub bytes: u64,
    /// Calls that wrote records.
    pub writes: u64,
    /// Syncs of records; those that make a new segment are not counted.
    pub syncs: u64,
}

impl Counters {
    pub(super) fn wrote(&self, records: u64, bytes: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn synced(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> LogStats {
        LogStats {
            records: self.records.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
        }
    }
}
