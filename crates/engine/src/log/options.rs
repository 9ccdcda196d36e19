//! How a log is sized and how sure it is. Chosen by whoever opens the store.

use std::time::Duration;

use super::record::{self, RECORD_BYTES_MAX};

/// A segment has room for its header, its state records and some parts.
const SEGMENT_BYTES_MIN: u64 = 1 << 10;

#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Bytes of a full segment.
    pub segment_bytes: u64,
    /// A larger payload is written as several records.
    pub record_bytes_max: usize,
    /// Released segments kept for reuse; more are deleted.
    pub recycle_max: usize,
    /// False for stores that may be lost with the machine: nothing is synced,
    /// and what is written counts as durable.
    pub sync: bool,
    /// How long a written entry that nobody waits for may stay unsynced.
    pub linger: Duration,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            segment_bytes: 64 << 20,
            record_bytes_max: 4 << 20,
            recycle_max: 4,
            sync: true,
            linger: Duration::from_millis(5),
        }
    }
}

impl LogOptions {
    /// The segment size in use: in whole 8-byte steps and never absurdly
    /// small. `state_bytes` come back at the head of every segment and may
    /// take a quarter of it.
    pub(super) fn segment_bytes(&self, state_bytes: u64) -> u64 {
        let wanted = self.segment_bytes.max(SEGMENT_BYTES_MIN).max(4 * state_bytes);
        wanted.next_multiple_of(record::ALIGN as u64)
    }

    /// The largest payload of one record: at most a quarter of a segment, so
    /// that rolling wastes no more than that.
    pub(super) fn part_bytes_max(&self, segment_bytes: u64) -> usize {
        let quarter = usize::try_from(segment_bytes / 4).unwrap_or(usize::MAX);
        self.record_bytes_max.clamp(1, RECORD_BYTES_MAX).min(quarter)
    }
}
