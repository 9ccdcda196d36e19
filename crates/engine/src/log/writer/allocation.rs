//! Allocates log space ahead of the records, and finds space for the next one.

use super::super::space::SpaceEstimate;
use super::LogWriter;
use crate::error::Result;

/// How far a segment's file is extended with zeros ahead of its records: as much
/// as it has, within these limits, so that the log of a small store stays small
/// and that of a busy one is rarely extended. Only the sync after an extension
/// has to record a new file length; all others sync data alone.
const GROW_BYTES_MIN: u64 = 1 << 20;
const GROW_BYTES_MAX: u64 = 4 << 20;

impl LogWriter {
    /// Reserves space for one entry with a payload of the given size, so that
    /// the next `append` of it cannot fail with a full disk. A failure has no
    /// effect and can be retried.
    pub fn reserve_entry(&mut self, payload_bytes: usize) -> Result<()> {
        self.reserve(self.estimate.entry(payload_bytes))
    }

    /// Ensures that at least `bytes`, as counted by `SpaceEstimate`, are available
    /// in total. A failure has no effect and can be retried.
    pub(in crate::log) fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.check()?;
        loop {
            let missing = bytes.saturating_sub(self.capacity());
            if missing == 0 {
                return Ok(());
            }
            let grown = self.grow(missing);
            // A partial extension may suffice.
            if self.capacity() < bytes {
                grown?;
            }
        }
    }

    /// Returns the space available to entries, as counted by `SpaceEstimate`.
    pub(in crate::log) fn capacity(&self) -> u64 {
        let fresh = |bytes| self.estimate.fresh(bytes, self.state_bytes);
        let ready = self.pool.ready_bytes().map(fresh);
        self.estimate.capacity(std::iter::once(self.free_bytes()).chain(ready))
    }

    /// Returns the free space below which a busy log should be extended, so that
    /// its callers need not wait: half of the next extension.
    pub(in crate::log) fn low_space(&self) -> u64 {
        let active = self.active.as_ref().map_or(0, |active| active.space.file_bytes);
        let last = self.pool.ready_bytes().last().unwrap_or(active);
        last.min(GROW_BYTES_MAX) / 2
    }

    /// Extends the last segment, or adds one.
    fn grow(&mut self, missing: u64) -> Result<()> {
        let segment_bytes = self.estimate.segment_bytes;
        let active = self.active.as_mut().map(|active| &mut active.space);
        let (last, is_active) = match self.pool.last_ready() {
            Some(ready) => (Some(ready), false),
            None => (active, true),
        };
        let Some(space) = last.filter(|space| space.file_bytes < segment_bytes) else {
            return self.pool.prepare(self.next_segment, self.incarnation);
        };
        // One sync of the whole file allocates the new blocks; otherwise every
        // group in them would have to record its own.
        self.dirty |= is_active;
        let step = space.file_bytes.clamp(GROW_BYTES_MIN, GROW_BYTES_MAX);
        let wanted = space.file_bytes + missing.max(step);
        match space.grow(wanted.min(segment_bytes)) {
            Err(_) if self.pool.prepare_released(segment_bytes)? => Ok(()),
            grown => grown,
        }
    }

    /// Sets the number of bytes that records other than entries must leave
    /// free.
    pub(in crate::log) fn keep_reserved(&mut self, bytes: u64) {
        self.reserved = bytes;
    }

    pub(in crate::log) fn estimate(&self) -> SpaceEstimate {
        self.estimate
    }

    /// Returns the bytes left for records in the allocated part of the active segment.
    pub(super) fn free_bytes(&self) -> u64 {
        self.active.as_ref().map_or(0, |active| {
            let end = self.estimate.records_end(active.space.file_bytes);
            end.saturating_sub(active.at + self.buffer.len() as u64)
        })
    }

    /// Starts a new segment if the active one cannot hold a record of this size.
    pub(super) fn ensure_space(&mut self, bytes: usize) -> Result<()> {
        if self.free_bytes() < bytes as u64 {
            self.roll()?;
        }
        assert!(self.free_bytes() >= bytes as u64, "space was reserved for {bytes} bytes");
        Ok(())
    }
}
