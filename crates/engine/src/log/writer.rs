//! Appends records to the log. Single-threaded; `GroupLog` shares it among
//! threads. The writer stops at the first failure, because the on-disk result
//! of a failed write or sync is unknown until the log is read again.

mod allocation;
mod group_io;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::counters::{Counters, LogStats};
use super::end::{LogEnd, SegmentInfo};
use super::entry::LogEntry;
use super::options::LogOptions;
use super::pool::{Pool, SegmentFile};
use super::record::{self, HEADER_BYTES, RecordHeader, RecordKind, TOTAL_BYTES};
use super::recovered;
use super::segment::{self, SegmentHeader};
use super::space::SpaceEstimate;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::world::Files;
pub(super) use group_io::GroupIo;

/// Minimum useful size of a part at the end of a segment.
const PART_BYTES_MIN: usize = 512;
/// A buffer larger than this is freed after the write.
const BUFFER_BYTES_KEPT: usize = 8 << 20;

/// The segment being written.
struct ActiveSegment {
    space: SegmentFile,
    /// File offset at which the buffer is written.
    at: u64,
}

pub struct LogWriter {
    incarnation: u64,
    /// Seed of the segments' tags.
    secret: u64,
    /// The tag of the active segment.
    tag: u64,
    sync: bool,
    estimate: SpaceEstimate,
    pool: Pool,
    counters: Arc<Counters>,
    /// All live segments, in order. If there is an active segment, it is the
    /// last one.
    segments: Vec<SegmentInfo>,
    active: Option<ActiveSegment>,
    /// Records encoded but not yet written.
    buffer: Vec<u8>,
    buffered_records: u64,
    next_segment: u64,
    next_record: u64,
    /// Highest record known to be synced, together with all before it.
    synced: Arc<AtomicU64>,
    /// Whether something was written, or the file extended, since the last sync of
    /// the whole file began. Records written with their own sync do not count.
    dirty: bool,
    states: BTreeMap<u16, Bytes>,
    /// Bytes reserved for the states at the start of every new segment.
    state_bytes: u64,
    /// Bytes reserved for entries that are not yet appended.
    reserved: u64,
    closed: bool,
    stopped: Option<Arc<Error>>,
}

impl LogWriter {
    /// Continues the log at the end that a reader found. `incarnation` is larger than
    /// that of any earlier incarnation; `secret` is random. Makes durable
    /// whatever the reader found.
    pub fn start(
        files: Arc<dyn Files>,
        dir: &Path,
        incarnation: u64,
        secret: u64,
        end: LogEnd,
        options: &LogOptions,
    ) -> Result<LogWriter> {
        assert!(
            incarnation > end.incarnation,
            "incarnation {incarnation} does not follow incarnation {}",
            end.incarnation
        );
        create_dir(&*files, dir, options.sync)?;
        if options.sync {
            let found = end.segments.iter().map(|found| (found.path.clone(), found.bytes));
            recovered::make_durable(&*files, dir, &found.collect::<Vec<_>>())?;
        }
        let mut pool = Pool::new(files, dir, options.recycle_max, options.sync);
        for path in end.free {
            pool.release(path)?;
        }
        let state_bytes = state_bytes(&end.states);
        let segment_bytes = options.segment_bytes(state_bytes);
        Ok(LogWriter {
            incarnation,
            secret,
            tag: 0,
            sync: options.sync,
            estimate: SpaceEstimate {
                segment_bytes,
                part_bytes_max: options.part_bytes_max(segment_bytes),
            },
            pool,
            counters: Arc::default(),
            segments: end.segments,
            active: None,
            buffer: Vec::new(),
            buffered_records: 0,
            next_segment: end.next_segment,
            next_record: end.next_record,
            synced: Arc::new(AtomicU64::new(if options.sync { end.next_record - 1 } else { 0 })),
            dirty: false,
            states: end.states,
            state_bytes,
            reserved: 0,
            closed: false,
            stopped: None,
        })
    }

    /// Writes entries, with one write per segment that they touch. If there is
    /// not enough space, nothing is written and the log stays usable.
    pub fn append(&mut self, entries: &[LogEntry]) -> Result<()> {
        entries.iter().try_for_each(LogEntry::check)?;
        self.reserve(entries.iter().map(|entry| self.estimate.entry(entry.payload.len())).sum())?;
        self.guarded(|writer| {
            for entry in entries {
                writer.put_entry(entry)?;
            }
            writer.flush()
        })
    }

    /// Makes everything written so far durable.
    pub fn sync(&mut self) -> Result<()> {
        self.guarded(LogWriter::sync_active)
    }

    /// Invalidates the stream's entries from `from_index` on.
    pub fn cut(&mut self, stream: u16, from_index: u64) -> Result<()> {
        self.reserve(self.reserved + self.estimate.entry(0))?;
        self.guarded(|writer| {
            writer.ensure_space(record::record_bytes(0))?;
            writer.encode(RecordKind::Cut, stream, from_index, &[], &[]);
            writer.flush()
        })
    }

    /// Replaces the stream's state; durable after the next `sync`. The state
    /// survives the release of segments.
    pub fn put_state(&mut self, stream: u16, state: &[u8]) -> Result<()> {
        let others = state_bytes(&self.states)
            - self.states.get(&stream).map_or(0, |old| record::record_bytes(old.len()) as u64);
        let limit = (self.estimate.segment_bytes / 4).saturating_sub(others) as usize;
        let bytes = record::record_bytes(state.len());
        if bytes > limit {
            return Err(Error::TooLarge { what: "log state", size: state.len(), limit });
        }
        // The state is also repeated at the start of every later segment.
        let before = self.state_bytes;
        self.state_bytes = before.max(others + bytes as u64);
        let reserved = self.reserve(self.reserved + bytes as u64);
        reserved.inspect_err(|_| self.state_bytes = before)?;
        self.guarded(|writer| {
            writer.ensure_space(bytes)?;
            writer.encode(RecordKind::State, stream, 0, &[], state);
            writer.flush()?;
            writer.states.insert(stream, Bytes::copy_from_slice(state));
            writer.state_bytes = others + bytes as u64;
            Ok(())
        })
    }

    /// Returns the first segment to keep if each listed stream is needed from
    /// the given index on, and other streams not at all. The last segment is
    /// always kept: it holds the states.
    pub fn head_for(&self, floors: &[(u16, u64)]) -> u64 {
        let needed = |segment: &&SegmentInfo| {
            floors.iter().any(|(stream, floor)| segment.holds(*stream, *floor))
        };
        let first = self.segments.iter().find(needed).or(self.segments.last());
        first.map_or(self.next_segment, |segment| segment.sequence)
    }

    /// Releases the segments before `head` for reuse or deletion. The caller
    /// must have durably recorded `head` as the start of the log.
    pub fn release_below(&mut self, head: u64) -> Result<()> {
        let below = self.segments.partition_point(|segment| segment.sequence < head);
        let released = below.min(self.segments.len().saturating_sub(1));
        let released: Vec<SegmentInfo> = self.segments.drain(..released).collect();
        released.into_iter().try_for_each(|segment| self.pool.release(segment.path))
    }

    /// Returns the size of the segments that hold entries of `stream` at or
    /// after `index`.
    pub fn pinned_bytes(&self, stream: u16, index: u64) -> u64 {
        let pinned = self.segments.iter().filter(|segment| segment.holds(stream, index));
        pinned.map(|segment| segment.bytes).sum()
    }

    /// Returns the live segments, in order.
    pub fn segments(&self) -> &[SegmentInfo] {
        &self.segments
    }

    pub fn stats(&self) -> LogStats {
        self.counters.snapshot()
    }

    /// Closes the log cleanly, so that a reader knows that no write was in
    /// flight. Later calls fail with `Closed`.
    pub fn close(&mut self) -> Result<()> {
        self.guarded(|writer| {
            writer.sync_active()?;
            if writer.active.is_some() {
                // Space for this record is always kept free. It states that
                // everything before it is synced, so that damage found later is
                // recognized as data loss.
                writer.encode(RecordKind::Close, 0, 0, &[], &[]);
                writer.flush()?;
                writer.sync_active()?;
            }
            writer.closed = true;
            Ok(())
        })
    }

    pub(super) fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Returns the highest synced record, which the owner of the groups raises.
    pub(super) fn synced(&self) -> Arc<AtomicU64> {
        self.synced.clone()
    }

    /// Stops the writer, because a group that it began has failed.
    pub(super) fn stop(&mut self, cause: &Error) {
        self.stopped.get_or_insert_with(|| Arc::new(cause.clone()));
    }

    /// Runs a step that modifies the log; a failure stops the writer.
    fn guarded(&mut self, step: impl FnOnce(&mut LogWriter) -> Result<()>) -> Result<()> {
        self.check()?;
        step(self).inspect_err(|error| self.stopped = Some(Arc::new(error.clone())))
    }

    fn check(&self) -> Result<()> {
        match &self.stopped {
            Some(cause) => Err(Error::Stopped(cause.clone())),
            None if self.closed => Err(Error::Closed),
            None => Ok(()),
        }
    }

    fn put_entry(&mut self, entry: &LogEntry) -> Result<()> {
        if entry.payload.len() > self.estimate.part_bytes_max {
            return self.put_parts(entry);
        }
        self.ensure_space(record::record_bytes(entry.payload.len()))?;
        self.encode(RecordKind::Full, entry.stream, entry.index, &[], &entry.payload);
        Ok(())
    }

    fn put_parts(&mut self, entry: &LogEntry) -> Result<()> {
        let total = (entry.payload.len() as u64).to_le_bytes();
        let mut prefix = &total[..];
        let mut rest = &entry.payload[..];
        while !rest.is_empty() {
            let wanted = rest.len().min(self.estimate.part_bytes_max);
            self.ensure_space(record::record_bytes(TOTAL_BYTES + wanted.min(PART_BYTES_MIN)))?;
            let free = self.free_bytes() as usize - HEADER_BYTES - TOTAL_BYTES;
            let (part, after) = rest.split_at(wanted.min(free));
            let kind = match (prefix.is_empty(), after.is_empty()) {
                (false, _) => RecordKind::First,
                (true, false) => RecordKind::Middle,
                (true, true) => RecordKind::Last,
            };
            self.encode(kind, entry.stream, entry.index, prefix, part);
            prefix = &[];
            rest = after;
        }
        Ok(())
    }

    /// Ends the active segment, if any, and starts the next.
    fn roll(&mut self) -> Result<()> {
        self.flush()?;
        self.sync_active()?;
        let mut header = SegmentHeader {
            sequence: self.next_segment,
            incarnation: self.incarnation,
            first_record: self.next_record,
            synced_end: 0,
            tag: xxh3_64_with_seed(&self.next_segment.to_le_bytes(), self.secret),
        };
        let mut head = vec![0; segment::HEADER_BYTES];
        for (record, (stream, state)) in (self.next_record..).zip(&self.states) {
            RecordHeader {
                tag: header.tag,
                record,
                synced: self.synced.load(Ordering::Acquire),
                index: 0,
                stream: *stream,
                kind: RecordKind::State,
            }
            .encode(&[], state, &mut head);
        }
        header.synced_end = head.len() as u64;
        head[..segment::HEADER_BYTES].copy_from_slice(&header.encode());
        let space = self.pool.create(&header, &head)?;
        self.next_segment += 1;
        self.next_record += self.states.len() as u64;
        if self.sync {
            self.synced.store(self.next_record - 1, Ordering::Release);
        }
        if !self.states.is_empty() {
            self.counters.wrote(self.states.len() as u64, head.len() as u64);
        }
        let bytes = head.len() as u64;
        let (path, index_max) = (space.path.clone(), BTreeMap::new());
        self.segments.push(SegmentInfo { sequence: header.sequence, path, bytes, index_max });
        self.tag = header.tag;
        self.active = Some(ActiveSegment { space, at: bytes });
        Ok(())
    }

    /// Appends a record to the buffer. The caller has ensured that it fits.
    fn encode(&mut self, kind: RecordKind, stream: u16, index: u64, prefix: &[u8], body: &[u8]) {
        let header = self.next_header(kind, stream, index);
        header.encode(prefix, body, &mut self.buffer);
        self.buffered_records += 1;
    }

    /// Assigns the next record number, in the active segment.
    fn next_header(&mut self, kind: RecordKind, stream: u16, index: u64) -> RecordHeader {
        let segment = self.segments.last_mut().expect("the record has space in a segment");
        if kind.is_data() {
            segment.note(stream, index);
        }
        let (record, synced) = (self.next_record, self.synced.load(Ordering::Acquire));
        self.next_record += 1;
        RecordHeader { tag: self.tag, record, synced, index, stream, kind }
    }

    fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let active = self.active.as_mut().expect("records are encoded for an active segment");
        let segment = self.segments.last_mut().expect("the active segment is in the list");
        let bytes = self.buffer.len() as u64;
        let end = active.at + bytes;
        let written = active.space.file.write_all_at(&self.buffer, active.at);
        written.map_err(|error| Error::io("writing log segment", &segment.path, error))?;
        self.counters.wrote(self.buffered_records, bytes);
        active.at = end;
        segment.bytes = end;
        self.dirty = true;
        self.buffered_records = 0;
        self.buffer.clear();
        if self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    fn sync_active(&mut self) -> Result<()> {
        if !self.dirty || !self.sync {
            return Ok(());
        }
        let active = self.active.as_ref().expect("only an active segment gets dirty");
        let SegmentFile { file, path, .. } = &active.space;
        file.sync_data().map_err(|error| Error::io("syncing log segment", path, error))?;
        self.counters.synced();
        self.synced.store(self.next_record - 1, Ordering::Release);
        self.dirty = false;
        Ok(())
    }
}

/// Returns the size of the state records at the start of every segment.
fn state_bytes(states: &BTreeMap<u16, Bytes>) -> u64 {
    states.values().map(|state| record::record_bytes(state.len()) as u64).sum()
}

fn create_dir(files: &dyn Files, dir: &Path, sync: bool) -> Result<()> {
    files.create_dir_all(dir).map_err(|error| Error::io("creating log directory", dir, error))?;
    match dir.parent().filter(|parent| sync && !parent.as_os_str().is_empty()) {
        Some(parent) => files
            .sync_dir(parent)
            .map_err(|error| Error::io("syncing log directory", parent, error)),
        None => Ok(()),
    }
}
