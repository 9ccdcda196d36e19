//! Log space accounting. Space is allocated on disk before anything is written
//! to it, and a commit is accepted only after its space is reserved, so writing
//! it cannot fail with a full disk.

use super::record::{self, ALIGN, HEADER_BYTES, TOTAL_BYTES};
use super::segment;

/// Maximum overhead of a record beyond its payload.
const RECORD_OVERHEAD_BYTES: usize = HEADER_BYTES + TOTAL_BYTES + ALIGN;

/// Worst-case estimate of how entries fill segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpaceEstimate {
    pub segment_bytes: u64,
    pub part_bytes_max: usize,
}

impl SpaceEstimate {
    /// Returns the maximum size of an entry in the log, not counting space lost
    /// at the ends of segments.
    pub(super) fn entry(&self, payload_bytes: usize) -> u64 {
        if payload_bytes <= self.part_bytes_max {
            return record::record_bytes(payload_bytes) as u64;
        }
        let parts = payload_bytes.div_ceil(self.part_bytes_max);
        (payload_bytes + parts * RECORD_OVERHEAD_BYTES) as u64
    }

    /// Returns the end of the records in a segment with `file_bytes` allocated.
    /// One Close record fits after it.
    pub(super) fn records_end(&self, file_bytes: u64) -> u64 {
        let whole = file_bytes.min(self.segment_bytes) / ALIGN as u64 * ALIGN as u64;
        whole.saturating_sub(record::record_bytes(0) as u64)
    }

    /// Returns the space in an unused segment with `state_bytes` of states at
    /// its start.
    pub(super) fn fresh(&self, file_bytes: u64, state_bytes: u64) -> u64 {
        let head = segment::HEADER_BYTES as u64 + state_bytes;
        self.records_end(file_bytes).saturating_sub(head)
    }

    /// Returns the space available to entries across segments with the given
    /// free space each. Every segment but the last loses the space into which
    /// the largest record did not fit, plus the overhead of splitting an entry.
    pub(super) fn capacity(&self, free_bytes: impl Iterator<Item = u64>) -> u64 {
        let lost = record::record_bytes(TOTAL_BYTES + self.part_bytes_max) + RECORD_OVERHEAD_BYTES;
        let (mut before, mut most) = (0, 0);
        for free in free_bytes {
            most = u64::max(most, before + free);
            before += free.saturating_sub(lost as u64);
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESTIMATE: SpaceEstimate = SpaceEstimate { segment_bytes: 4096, part_bytes_max: 1024 };

    #[test]
    fn entries_are_measured_with_their_headers() {
        assert_eq!(ESTIMATE.entry(0), 48);
        assert_eq!(ESTIMATE.entry(100), 152);
        assert_eq!(ESTIMATE.entry(1024), 1072);
        assert_eq!(ESTIMATE.entry(1025), 1025 + 2 * 64);
    }

    #[test]
    fn the_end_of_a_segment_counts_only_when_nothing_has_to_follow() {
        assert_eq!(ESTIMATE.capacity([].into_iter()), 0);
        assert_eq!(ESTIMATE.capacity([3000].into_iter()), 3000);
        assert_eq!(ESTIMATE.capacity([3000, 100].into_iter()), 3000);
        assert_eq!(ESTIMATE.capacity([3000, 2000].into_iter()), 3000 - 1080 - 64 + 2000);
        assert_eq!(ESTIMATE.capacity([50, 2000].into_iter()), 2000);
    }

    #[test]
    fn a_segment_keeps_room_for_its_head_and_its_close() {
        assert_eq!(ESTIMATE.fresh(4096, 100), 4096 - 48 - 64 - 100);
        assert_eq!(ESTIMATE.fresh(9999, 0), 4096 - 48 - 64);
        assert_eq!(ESTIMATE.fresh(100, 0), 0);
        assert_eq!(ESTIMATE.records_end(1007), 1000 - 48, "records are aligned");
    }
}
