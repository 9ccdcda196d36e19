//! Appends records to the log. One owner at a time; `GroupLog` shares it among
//! threads. After the first failure it does nothing more, because what a failed
//! write or sync left on disk is unknown until the log is read again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::counters::{Counters, LogStats};
use super::end::{LogEnd, SegmentInfo};
use super::entry::Entry;
use super::options::LogOptions;
use super::pool::{Pool, Space};
use super::record::{self, HEADER_BYTES, Kind, RecordHeader, TOTAL_BYTES};
use super::room::Measure;
use super::segment::{self, SegmentHeader};
use super::settle;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{Error, Result};
use crate::world::{File, Files};

/// A part this short is not worth a record of its own at a segment's end.
const PART_BYTES_MIN: usize = 512;
/// A larger buffer is given back after the write.
const BUFFER_BYTES_KEPT: usize = 8 << 20;

/// How far ahead of its records a segment's file is grown, with zeros. The
/// sync after that has a longer file to record; all others touch data alone.
const GROW_BYTES: u64 = 1 << 20;

/// The segment being written.
struct Active {
    space: Space,
    /// Where the buffer goes.
    at: u64,
}

pub struct LogWriter {
    epoch: u64,
    /// What the tags of segments are made from.
    secret: u64,
    /// That of the active segment.
    tag: u64,
    sync: bool,
    measure: Measure,
    pool: Pool,
    counters: Arc<Counters>,
    /// All that are kept, in order. The last one is `active`, if that is there.
    segments: Vec<SegmentInfo>,
    active: Option<Active>,
    /// Records encoded and not yet written.
    buffer: Vec<u8>,
    buffered_records: u64,
    next_segment: u64,
    next_record: u64,
    /// Highest record known to be synced.
    synced: u64,
    /// Whether something was written since the last sync.
    dirty: bool,
    states: BTreeMap<u16, Bytes>,
    /// Room for them at the head of each segment to come.
    state_bytes: u64,
    /// Room that has been promised to entries not yet appended.
    promised: u64,
    closed: bool,
    stopped: Option<Arc<Error>>,
}

impl LogWriter {
    /// Goes on where a reader found the end. `epoch` is larger than that of any
    /// incarnation before; `secret` is random. What was read is settled here.
    pub fn start(
        files: Arc<dyn Files>,
        dir: &Path,
        epoch: u64,
        secret: u64,
        end: LogEnd,
        options: &LogOptions,
    ) -> Result<LogWriter> {
        assert!(epoch > end.epoch, "epoch {epoch} does not follow epoch {}", end.epoch);
        make_dir(&*files, dir, options.sync)?;
        if options.sync {
            let found = end.segments.iter().map(|found| (found.path.clone(), found.bytes));
            settle::settle(&*files, dir, &found.collect::<Vec<_>>())?;
        }
        let mut pool = Pool::new(files, dir, options.recycle_max, options.sync);
        for path in end.free {
            pool.give(path)?;
        }
        let state_bytes = state_bytes(&end.states);
        let segment_bytes = options.segment_bytes(state_bytes);
        Ok(LogWriter {
            epoch,
            secret,
            tag: 0,
            sync: options.sync,
            measure: Measure {
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
            synced: if options.sync { end.next_record - 1 } else { 0 },
            dirty: false,
            states: end.states,
            state_bytes,
            promised: 0,
            closed: false,
            stopped: None,
        })
    }

    /// Makes room for one entry with a payload of so many bytes, so that the
    /// next `append` of such an entry cannot find the disk full. A failure
    /// changes nothing and can be tried again.
    pub fn reserve_entry(&mut self, payload_bytes: usize) -> Result<()> {
        self.reserve(self.measure.entry(payload_bytes))
    }

    /// Makes room for entries of so many bytes, as `Measure` counts them, and
    /// for nobody else. A failure changes nothing and can be tried again.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.check()?;
        loop {
            let missing = bytes.saturating_sub(self.capacity());
            if missing == 0 {
                return Ok(());
            }
            let grown = self.grow(missing);
            // What was gained before the disk was full may do.
            if self.capacity() < bytes {
                grown?;
            }
        }
    }

    /// Room that entries can take, as `Measure` counts them.
    pub(super) fn capacity(&self) -> u64 {
        let fresh = |bytes| self.measure.fresh(bytes, self.state_bytes);
        let ready = self.pool.ready_bytes().map(fresh);
        self.measure.capacity(std::iter::once(self.room()).chain(ready))
    }

    /// Takes more room: in the last segment, or in one more.
    fn grow(&mut self, missing: u64) -> Result<()> {
        let segment_bytes = self.measure.segment_bytes;
        let active = self.active.as_mut().map(|active| &mut active.space);
        let last = self.pool.last_ready().or(active);
        let Some(space) = last.filter(|space| space.file_bytes < segment_bytes) else {
            return self.pool.prepare(self.next_segment, self.epoch);
        };
        let wanted = space.file_bytes + missing.max(GROW_BYTES);
        match space.grow(wanted.min(segment_bytes)) {
            Err(_) if self.pool.prepare_released(segment_bytes)? => Ok(()),
            grown => grown,
        }
    }

    /// Keeps room for entries that were promised it away from other records.
    pub(super) fn keep_promised(&mut self, bytes: u64) {
        self.promised = bytes;
    }

    pub(super) fn measure(&self) -> Measure {
        self.measure
    }

    /// Writes the entries, in one write for each segment they touch. Without
    /// room for all of them nothing is written, and nothing is wrong.
    pub fn append(&mut self, entries: &[Entry]) -> Result<()> {
        entries.iter().try_for_each(Entry::check)?;
        self.reserve(entries.iter().map(|entry| self.measure.entry(entry.payload.len())).sum())?;
        self.guarded(|writer| {
            for entry in entries {
                writer.put_entry(entry)?;
            }
            writer.flush()
        })
    }

    /// Makes everything written durable.
    pub fn sync(&mut self) -> Result<()> {
        self.guarded(LogWriter::sync_active)
    }

    /// What has to be synced for everything appended so far to be durable, so
    /// that others may append meanwhile; `None` when it is durable already.
    pub(super) fn begin_sync(&mut self) -> Result<Option<SyncPoint>> {
        self.guarded(|_| Ok(()))?;
        if !self.dirty || !self.sync {
            return Ok(None);
        }
        let active = self.active.as_ref().expect("only an active segment gets dirty");
        let segment = self.segments.last().expect("the active segment is in the list");
        Ok(Some(SyncPoint {
            file: active.space.file.clone(),
            path: active.space.path.clone(),
            segment: segment.sequence,
            record: self.next_record - 1,
        }))
    }

    /// Takes note of how the sync went.
    pub(super) fn end_sync(&mut self, point: &SyncPoint, outcome: Result<()>) -> Result<()> {
        self.guarded(|writer| {
            outcome?;
            writer.counters.synced();
            writer.synced = writer.synced.max(point.record);
            let active = writer.segments.last().map(|segment| segment.sequence);
            if active == Some(point.segment) && point.record == writer.next_record - 1 {
                writer.dirty = false;
            }
            Ok(())
        })
    }

    /// Declares the stream's entries from `from_index` up void.
    pub fn cut(&mut self, stream: u16, from_index: u64) -> Result<()> {
        self.reserve(self.promised + self.measure.entry(0))?;
        self.guarded(|writer| {
            writer.make_room(record::record_bytes(0))?;
            writer.encode(Kind::Cut, stream, from_index, &[], &[]);
            writer.flush()
        })
    }

    /// Replaces the stream's state, durably after the next `sync`. It stays in
    /// the log, whatever is released.
    pub fn put_state(&mut self, stream: u16, state: &[u8]) -> Result<()> {
        let others = state_bytes(&self.states)
            - self.states.get(&stream).map_or(0, |old| record::record_bytes(old.len()) as u64);
        let limit = (self.measure.segment_bytes / 4).saturating_sub(others) as usize;
        let bytes = record::record_bytes(state.len());
        if bytes > limit {
            return Err(Error::TooLarge { what: "log state", size: state.len(), limit });
        }
        // It will stand at the head of every segment to come too.
        let before = self.state_bytes;
        self.state_bytes = before.max(others + bytes as u64);
        let reserved = self.reserve(self.promised + bytes as u64);
        reserved.inspect_err(|_| self.state_bytes = before)?;
        self.guarded(|writer| {
            writer.make_room(bytes)?;
            writer.encode(Kind::State, stream, 0, &[], state);
            writer.flush()?;
            writer.states.insert(stream, Bytes::copy_from_slice(state));
            writer.state_bytes = others + bytes as u64;
            Ok(())
        })
    }

    /// The first segment that must stay, when of each named stream everything
    /// below the given index, and of other streams everything, is no longer
    /// needed. The last segment always stays: it holds the states.
    pub fn head_for(&self, floors: &[(u16, u64)]) -> u64 {
        let needed = |segment: &&SegmentInfo| {
            floors.iter().any(|(stream, floor)| segment.holds(*stream, *floor))
        };
        let first = self.segments.iter().find(needed).or(self.segments.last());
        first.map_or(self.next_segment, |segment| segment.sequence)
    }

    /// Frees the segments before `head`, to be reused or deleted. The caller
    /// has durably recorded `head` as the place to read from.
    pub fn release_below(&mut self, head: u64) -> Result<()> {
        let below = self.segments.partition_point(|segment| segment.sequence < head);
        let released = below.min(self.segments.len().saturating_sub(1));
        let released: Vec<SegmentInfo> = self.segments.drain(..released).collect();
        released.into_iter().try_for_each(|segment| self.pool.give(segment.path))
    }

    /// Bytes of the segments that hold entries of `stream` from `index` up.
    pub fn pinned_bytes(&self, stream: u16, index: u64) -> u64 {
        let pinned = self.segments.iter().filter(|segment| segment.holds(stream, index));
        pinned.map(|segment| segment.bytes).sum()
    }

    /// The segments kept, in order.
    pub fn segments(&self) -> &[SegmentInfo] {
        &self.segments
    }

    pub fn stats(&self) -> LogStats {
        self.counters.snapshot()
    }

    /// Ends the log in good order: a later reader can tell that nothing before
    /// was in flight. Later calls give `Closed`.
    pub fn close(&mut self) -> Result<()> {
        self.guarded(|writer| {
            writer.sync_active()?;
            if writer.active.is_some() {
                // Its room is never given to other records. It says that all
                // before it is synced, which is what convicts later damage.
                writer.encode(Kind::Close, 0, 0, &[], &[]);
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

    /// Runs a step that touches what the log holds; its failure is the last.
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

    fn put_entry(&mut self, entry: &Entry) -> Result<()> {
        if entry.payload.len() > self.measure.part_bytes_max {
            return self.put_parts(entry);
        }
        self.make_room(record::record_bytes(entry.payload.len()))?;
        self.encode(Kind::Full, entry.stream, entry.index, &[], &entry.payload);
        Ok(())
    }

    fn put_parts(&mut self, entry: &Entry) -> Result<()> {
        let total = (entry.payload.len() as u64).to_le_bytes();
        let mut prefix = &total[..];
        let mut rest = &entry.payload[..];
        while !rest.is_empty() {
            let wanted = rest.len().min(self.measure.part_bytes_max);
            self.make_room(record::record_bytes(TOTAL_BYTES + wanted.min(PART_BYTES_MIN)))?;
            let room = self.room() as usize - HEADER_BYTES - TOTAL_BYTES;
            let (part, after) = rest.split_at(wanted.min(room));
            let kind = match (prefix.is_empty(), after.is_empty()) {
                (false, _) => Kind::First,
                (true, false) => Kind::Middle,
                (true, true) => Kind::Last,
            };
            self.encode(kind, entry.stream, entry.index, prefix, part);
            prefix = &[];
            rest = after;
        }
        Ok(())
    }

    /// Bytes left for records in what is on disk of the active segment.
    fn room(&self) -> u64 {
        self.active.as_ref().map_or(0, |active| {
            let end = self.measure.records_end(active.space.file_bytes);
            end.saturating_sub(active.at + self.buffer.len() as u64)
        })
    }

    fn make_room(&mut self, bytes: usize) -> Result<()> {
        if self.room() < bytes as u64 {
            self.roll()?;
        }
        assert!(self.room() >= bytes as u64, "room was reserved for {bytes} bytes");
        Ok(())
    }

    /// Ends the active segment, if there is one, and begins the next.
    fn roll(&mut self) -> Result<()> {
        self.flush()?;
        self.sync_active()?;
        let mut header = SegmentHeader {
            sequence: self.next_segment,
            epoch: self.epoch,
            first_record: self.next_record,
            settled_end: 0,
            tag: xxh3_64_with_seed(&self.next_segment.to_le_bytes(), self.secret),
        };
        let mut head = vec![0; segment::HEADER_BYTES];
        for (record, (stream, state)) in (self.next_record..).zip(&self.states) {
            RecordHeader {
                tag: header.tag,
                record,
                synced: self.synced,
                index: 0,
                stream: *stream,
                kind: Kind::State,
            }
            .encode(&[], state, &mut head);
        }
        header.settled_end = head.len() as u64;
        head[..segment::HEADER_BYTES].copy_from_slice(&header.encode());
        let space = self.pool.make(&header, &head)?;
        self.next_segment += 1;
        self.next_record += self.states.len() as u64;
        if self.sync {
            self.synced = self.next_record - 1;
        }
        if !self.states.is_empty() {
            self.counters.wrote(self.states.len() as u64, head.len() as u64);
        }
        let bytes = head.len() as u64;
        let (path, index_max) = (space.path.clone(), BTreeMap::new());
        self.segments.push(SegmentInfo { sequence: header.sequence, path, bytes, index_max });
        self.tag = header.tag;
        self.active = Some(Active { space, at: bytes });
        Ok(())
    }

    /// Puts one record into the buffer. The caller has made room.
    fn encode(&mut self, kind: Kind, stream: u16, index: u64, prefix: &[u8], body: &[u8]) {
        let segment = self.segments.last_mut().expect("room was made in a segment");
        let (record, synced) = (self.next_record, self.synced);
        RecordHeader { tag: self.tag, record, synced, index, stream, kind }.encode(
            prefix,
            body,
            &mut self.buffer,
        );
        self.next_record += 1;
        self.buffered_records += 1;
        if kind.is_data() {
            segment.note(stream, index);
        }
    }

    /// Writes the buffer.
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
        let Space { file, path, .. } = &active.space;
        file.sync_data().map_err(|error| Error::io("syncing log segment", path, error))?;
        self.counters.synced();
        self.synced = self.next_record - 1;
        self.dirty = false;
        Ok(())
    }
}

/// A sync under way: everything up to `record` is in `file` or before it.
pub(super) struct SyncPoint {
    file: Arc<dyn File>,
    path: PathBuf,
    segment: u64,
    record: u64,
}

impl SyncPoint {
    pub(super) fn sync(&self) -> Result<()> {
        let synced = self.file.sync_data();
        synced.map_err(|error| Error::io("syncing log segment", &self.path, error))
    }
}

/// Bytes of the state records that every segment begins with.
fn state_bytes(states: &BTreeMap<u16, Bytes>) -> u64 {
    states.values().map(|state| record::record_bytes(state.len()) as u64).sum()
}

fn make_dir(files: &dyn Files, dir: &Path, sync: bool) -> Result<()> {
    files.create_dir_all(dir).map_err(|error| Error::io("making log directory", dir, error))?;
    match dir.parent().filter(|parent| sync && !parent.as_os_str().is_empty()) {
        Some(parent) => files
            .sync_dir(parent)
            .map_err(|error| Error::io("syncing log directory", parent, error)),
        None => Ok(()),
    }
}
