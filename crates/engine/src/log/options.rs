//! Sizes and durability of a log, chosen when the store is opened.

use std::time::Duration;

use super::record::{self, RECORD_BYTES_MAX};

/// Minimum size of a segment: fits the header, the state records and some
/// parts.
const SEGMENT_BYTES_MIN: u64 = 1 << 10;

#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Size of a full segment.
    pub segment_bytes: u64,
    /// Maximum payload of one record; larger payloads are split.
    pub record_bytes_max: usize,
    /// Number of released segments kept for reuse; any more are deleted.
    pub recycle_max: usize,
    /// False for stores that need not survive a power failure: nothing is
    /// synced, and written entries count as durable.
    pub sync: bool,
    /// How long a written entry may stay unsynced if nobody waits for it.
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
    /// Returns the actual segment size: a multiple of 8 bytes, and at least the
    /// minimum. The `state_bytes` are repeated at the start of every segment
    /// and may take a quarter of it.
    pub(super) fn segment_bytes(&self, state_bytes: u64) -> u64 {
        let wanted = self.segment_bytes.max(SEGMENT_BYTES_MIN).max(4 * state_bytes);
        wanted.next_multiple_of(record::ALIGN as u64)
    }

    /// Returns the maximum payload of one record: at most a quarter of a
    /// segment, which bounds the space wasted when a segment is full.
    pub(super) fn part_bytes_max(&self, segment_bytes: u64) -> usize {
        let quarter = usize::try_from(segment_bytes / 4).unwrap_or(usize::MAX);
        self.record_bytes_max.clamp(1, RECORD_BYTES_MAX).min(quarter)
    }
}
