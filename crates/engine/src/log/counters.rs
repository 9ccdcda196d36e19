//! Log statistics since the store was opened, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters shared by the writer and the reporting code.
#[derive(Default)]
pub(super) struct Counters {
    records: AtomicU64,
    bytes: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
}

/// A sample of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Records written, including parts and the log's own records.
    pub records: u64,
    /// Bytes written, including record headers but not zero fill.
    pub bytes: u64,
    /// Write calls for records.
    pub writes: u64,
    /// Syncs of records, not counting those that create a segment.
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
