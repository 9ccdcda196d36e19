//! The I/O of a group: the writer assigns the records their numbers and their
//! position; the write and the sync run with the writer unlocked, next to those
//! of other groups.

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;

use super::super::counters::Counters;
use super::super::entry::LogEntry;
use super::super::record::{RecordKind, TOTAL_BYTES};
use super::super::vectored::Vectored;
use super::{ActiveSegment, LogWriter};
use crate::error::{Error, Result};
use crate::world::File;

/// What is left to do to make a group durable.
pub(in crate::log) struct GroupIo {
    /// The group's last record; 0 if the log is not synced at all.
    pub record: u64,
    file: Arc<dyn File>,
    path: PathBuf,
    counters: Arc<Counters>,
    step: Step,
}

enum Step {
    /// Write these bytes at this offset and sync them alone.
    Write { bytes: Vectored, at: u64, records: u64 },
    /// Sync the whole file: everything is written.
    Sync,
    /// Everything is written and needs no sync.
    Nothing,
}

impl GroupIo {
    /// Whether the group's entries are in the page cache already.
    pub(in crate::log) fn is_written(&self) -> bool {
        !matches!(self.step, Step::Write { .. })
    }

    pub(in crate::log) fn run(&self) -> Result<()> {
        match &self.step {
            Step::Write { bytes, at, records } => {
                let written = self.file.write_durable_at(&bytes.parts(), *at);
                written.map_err(|error| Error::io("writing log segment", &self.path, error))?;
                self.counters.wrote(*records, bytes.len() as u64);
                self.counters.synced();
            }
            Step::Sync => {
                let synced = self.file.sync_data();
                synced.map_err(|error| Error::io("syncing log segment", &self.path, error))?;
                self.counters.synced();
            }
            Step::Nothing => {}
        }
        Ok(())
    }

    /// Returns the buffer, for another group.
    pub(in crate::log) fn into_buffer(self) -> Option<Vec<u8>> {
        match self.step {
            Step::Write { bytes, .. } => Some(bytes.into_buffer()),
            Step::Sync | Step::Nothing => None,
        }
    }
}

impl LogWriter {
    /// Begins a group: returns the I/O that makes these entries, and everything
    /// written before them, durable once all groups begun before have ended.
    /// Returns `None` if the active segment cannot hold them: the caller must wait
    /// until no group is under way (`drained`). `number` is that of the group.
    pub(in crate::log) fn begin_group(
        &mut self,
        entries: &[LogEntry],
        number: u64,
        drained: bool,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<GroupIo>> {
        let written_alone = self.sync && !self.dirty && !entries.is_empty();
        if written_alone && self.fits(entries) {
            return self.write_group(entries, number, mem::take(buffer)).map(Some);
        }
        if !self.append_if(entries, drained)? {
            return Ok(None);
        }
        let step = if mem::take(&mut self.dirty) && self.sync { Step::Sync } else { Step::Nothing };
        Ok(Some(self.group_io(number, step)))
    }

    /// Appends entries, unless that takes a new segment while groups are under
    /// way. Returns whether it did.
    pub(in crate::log) fn append_if(
        &mut self,
        entries: &[LogEntry],
        drained: bool,
    ) -> Result<bool> {
        if !drained && !self.fits(entries) {
            self.check()?;
            return Ok(false);
        }
        if !entries.is_empty() {
            self.append(entries)?;
        }
        self.check()?;
        Ok(true)
    }

    /// Whether the active segment can hold the entries.
    fn fits(&self, entries: &[LogEntry]) -> bool {
        let bytes: u64 = entries.iter().map(|entry| self.estimate.entry(entry.payload.len())).sum();
        bytes <= self.free_bytes()
    }

    fn write_group(
        &mut self,
        entries: &[LogEntry],
        number: u64,
        buffer: Vec<u8>,
    ) -> Result<GroupIo> {
        self.check()?;
        entries.iter().try_for_each(LogEntry::check)?;
        let mut bytes = Vectored::with_buffer(buffer);
        let first = self.next_record;
        for entry in entries {
            self.encode_entry(entry, &mut bytes);
        }
        let active = self.active.as_mut().expect("the entries fit into the active segment");
        let at = active.at;
        active.at += bytes.len() as u64;
        self.segments.last_mut().expect("the active segment is in the list").bytes = active.at;
        let records = self.next_record - first;
        Ok(self.group_io(number, Step::Write { bytes, at, records }))
    }

    fn encode_entry(&mut self, entry: &LogEntry, bytes: &mut Vectored) {
        let (stream, index, payload) = (entry.stream, entry.index, &entry.payload);
        let part_bytes = self.estimate.part_bytes_max;
        if payload.len() <= part_bytes {
            let header = self.next_header(RecordKind::Full, stream, index);
            return bytes.push(&header, &[], payload.clone());
        }
        let total: [u8; TOTAL_BYTES] = (payload.len() as u64).to_le_bytes();
        for from in (0..payload.len()).step_by(part_bytes) {
            let upto = payload.len().min(from + part_bytes);
            let (kind, prefix) = match (from, upto == payload.len()) {
                (0, _) => (RecordKind::First, &total[..]),
                (_, false) => (RecordKind::Middle, &[][..]),
                (_, true) => (RecordKind::Last, &[][..]),
            };
            let header = self.next_header(kind, stream, index);
            bytes.push(&header, prefix, payload.slice(from..upto));
        }
    }

    fn group_io(&self, number: u64, step: Step) -> GroupIo {
        let record = if self.sync { self.next_record - 1 } else { 0 };
        let active = self.active.as_ref().expect("a group is begun after an entry was appended");
        let ActiveSegment { space, .. } = active;
        let file = if number.is_multiple_of(2) { &space.file } else { &space.second };
        let (file, path, counters) = (file.clone(), space.path.clone(), self.counters.clone());
        GroupIo { record, file, path, counters, step }
    }
}
