//! Reads a log after a restart, entry by entry, and finds its end. The reader
//! never guesses: either all synced records are there, or it reports data loss.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::assembler::{PayloadAssembler, RecordPosition};
use super::directory::LogDirectory;
use super::end::{LogEnd, SegmentInfo, Torn};
use super::record::{self, DecodedHeader, HEADER_BYTES, RecordKind};
use super::recovered::Extent;
use super::segment::{self, SegmentHeader};
use super::tail;
use super::window::Window;
use crate::error::{Error, Result};
use crate::world::{File, Files};

/// What an item of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// An entry.
    Data,
    /// Invalidates the stream's entries from `index` on.
    Cut,
    /// The stream's state, which replaces the previous one.
    State,
}

/// An item read from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogItem {
    pub stream: u16,
    pub index: u64,
    pub kind: ItemKind,
    /// May share memory with a large read buffer: copy it to keep it for long.
    pub payload: Bytes,
    /// The segment and the offset at which the item starts.
    pub segment: u64,
    pub offset: u64,
}

/// A segment file with its header.
pub(super) struct FoundSegment {
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    pub file_bytes: u64,
    pub header: SegmentHeader,
}

/// The segments of a log, ready to be read in order.
pub struct LogReader {
    pub(super) head_segment: u64,
    pub(super) segments: Vec<FoundSegment>,
    pub(super) free: Vec<PathBuf>,
}

impl LogReader {
    /// Finds the segments in `dir` from `head_segment` on. A missing directory
    /// is an empty log.
    pub fn open(files: &dyn Files, dir: &Path, head_segment: u64) -> Result<LogReader> {
        let head_segment = head_segment.max(1);
        let found = match LogDirectory::list(files, dir, head_segment) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => LogDirectory::default(),
            Err(error) => return Err(Error::io("listing log", dir, error)),
        };
        for path in &found.unknown_files {
            tracing::warn!(path = %path.display(), "ignored a file that is not a log segment");
        }
        if let Some(duplicate) = found.duplicates.into_iter().next() {
            return Err(duplicate);
        }
        let segments = open_dense(files, found.segments, head_segment)?;
        Ok(LogReader { head_segment, segments, free: found.free })
    }

    /// Returns the path of each segment.
    pub fn paths(&self) -> BTreeMap<u64, PathBuf> {
        let sequence = |found: &FoundSegment| found.header.sequence;
        self.segments.iter().map(|found| (sequence(found), found.path.clone())).collect()
    }

    /// Returns the segments found, for `make_durable`.
    pub fn extents(&self) -> Vec<Extent> {
        self.segments.iter().map(|found| (found.path.clone(), found.file_bytes)).collect()
    }

    /// Calls `each` for every item in log order. An error from `each` ends the
    /// replay.
    pub fn replay(self, mut each: impl FnMut(LogItem) -> Result<()>) -> Result<LogEnd> {
        let mut replay = Replay::new(&self);
        for (position, found) in self.segments.iter().enumerate() {
            replay.segment(found, self.segments.get(position + 1), &mut each)?;
        }
        Ok(LogEnd { free: self.free, ..replay.end })
    }
}

/// Opens the segments. A segment missing between the head and the last one is
/// data loss.
fn open_dense(
    files: &dyn Files,
    needed: BTreeMap<u64, PathBuf>,
    head_segment: u64,
) -> Result<Vec<FoundSegment>> {
    let mut segments: Vec<FoundSegment> = Vec::with_capacity(needed.len());
    for (expected, (sequence, path)) in (head_segment..).zip(needed) {
        if sequence != expected {
            let what = format!("segment {expected}, which comes before this one, is missing");
            return Err(Error::data_loss(&path, 0, what));
        }
        let found = FoundSegment::open(files, path)?;
        found.check_incarnation(segments.last())?;
        segments.push(found);
    }
    Ok(segments)
}

impl FoundSegment {
    pub(super) fn open(files: &dyn Files, path: PathBuf) -> Result<FoundSegment> {
        let reading = |error| Error::io("reading log segment", &path, error);
        let file = files.open_read(&path).map_err(reading)?;
        let file_bytes = file.len().map_err(reading)?;
        if file_bytes < segment::HEADER_BYTES as u64 {
            return Err(Error::data_loss(&path, file_bytes, "the segment header is truncated"));
        }
        let mut header = [0; segment::HEADER_BYTES];
        file.read_exact_at(&mut header, 0).map_err(reading)?;
        let header = SegmentHeader::decode(&header, &path)?;
        Ok(FoundSegment { path, file, file_bytes, header })
    }

    /// Checks that the segment was not created by an earlier incarnation than
    /// the one before it.
    pub(super) fn check_incarnation(&self, before: Option<&FoundSegment>) -> Result<()> {
        let Some(before) = before.map(|before| before.header.incarnation) else { return Ok(()) };
        let incarnation = self.header.incarnation;
        if before > incarnation {
            let what = format!("incarnation {incarnation} follows {before}");
            return Err(Error::data_loss(&self.path, 0, what));
        }
        Ok(())
    }
}

/// A replay in progress.
pub(super) struct Replay {
    end: LogEnd,
    pub(super) assembler: PayloadAssembler,
    /// Total size of the segments not yet completely read.
    bytes_left: u64,
}

impl Replay {
    pub(super) fn new(reader: &LogReader) -> Replay {
        let first = reader.segments.first();
        let last = reader.segments.last();
        let end = LogEnd {
            next_record: first.map_or(1, |found| found.header.first_record),
            next_segment: last.map_or(reader.head_segment, |found| found.header.sequence + 1),
            incarnation: last.map_or(0, |found| found.header.incarnation),
            torn: None,
            closed: false,
            segments: Vec::with_capacity(reader.segments.len()),
            states: BTreeMap::new(),
            free: Vec::new(),
        };
        let bytes_left = reader.segments.iter().map(|found| found.file_bytes).sum();
        Replay { end, assembler: PayloadAssembler::default(), bytes_left }
    }

    fn segment(
        &mut self,
        found: &FoundSegment,
        next: Option<&FoundSegment>,
        each: &mut impl FnMut(LogItem) -> Result<()>,
    ) -> Result<()> {
        let sequence = found.header.sequence;
        let mut window = Window::open(found.file.clone(), &found.path)?;
        let mut info = SegmentInfo {
            sequence,
            path: found.path.clone(),
            bytes: segment::HEADER_BYTES as u64,
            index_max: BTreeMap::new(),
        };
        self.assembler.begin_segment(found.header.incarnation);
        self.end.closed = false;
        while let Some((decoded, payload)) =
            read_record(&mut window, info.bytes, found.header.tag, self.end.next_record)?
        {
            let position = RecordPosition { segment: sequence, offset: info.bytes };
            if decoded.header.kind.is_data() {
                info.note(decoded.header.stream, decoded.header.index);
            }
            let item = self
                .item(&decoded, payload, position)
                .map_err(|what| Error::data_loss(&found.path, position.offset, what))?;
            self.end.next_record += 1;
            info.bytes += record::record_bytes(decoded.payload_bytes) as u64;
            if let Some(item) = item {
                each(item)?;
            }
        }
        match next {
            Some(next) => check_continuation(found, info.bytes, self.end.next_record, next)?,
            None => {
                self.end.torn = check_tail(found, info.bytes, self.end.next_record, &mut window)?;
            }
        }
        self.bytes_left -= found.file_bytes;
        self.end.segments.push(info);
        Ok(())
    }

    /// Converts a record to an item for the caller, if it completes one.
    pub(super) fn item(
        &mut self,
        decoded: &DecodedHeader,
        payload: Bytes,
        position: RecordPosition,
    ) -> Result<Option<LogItem>, &'static str> {
        let header = &decoded.header;
        self.end.closed = header.kind == RecordKind::Close;
        let (kind, payload, position) = match header.kind {
            RecordKind::State => {
                self.end.states.insert(header.stream, Bytes::copy_from_slice(&payload));
                (ItemKind::State, payload, position)
            }
            RecordKind::Cut => {
                self.assembler.check_complete()?;
                (ItemKind::Cut, payload, position)
            }
            RecordKind::Close => {
                self.assembler.check_complete()?;
                return Ok(None);
            }
            RecordKind::Full | RecordKind::First | RecordKind::Middle | RecordKind::Last => {
                match self.assembler.accept(header, payload, position, self.bytes_left)? {
                    Some((payload, begun)) => (ItemKind::Data, payload, begun),
                    None => return Ok(None),
                }
            }
        };
        let RecordPosition { segment, offset } = position;
        Ok(Some(LogItem {
            stream: header.stream,
            index: header.index,
            kind,
            payload,
            segment,
            offset,
        }))
    }
}

/// Checks the end of a segment that has a successor: it must end where the
/// successor says, because the writer had read or written everything before it.
/// `expected` is the number of the record that was not found at `at`.
pub(super) fn check_continuation(
    found: &FoundSegment,
    at: u64,
    expected: u64,
    next: &FoundSegment,
) -> Result<()> {
    let stated = next.header.first_record;
    if stated == expected {
        return Ok(());
    }
    let what = if stated > expected {
        format!("records {expected} to {} are missing or damaged", stated - 1)
    } else {
        format!("the next segment begins at record {stated}, before the end of this one")
    };
    Err(Error::data_loss(&found.path, at, what))
}

/// Examines the end of the last segment, where record `bad` was not found.
pub(super) fn check_tail(
    found: &FoundSegment,
    at: u64,
    bad: u64,
    window: &mut Window<'_>,
) -> Result<Option<Torn>> {
    if at < found.header.synced_end {
        let what = format!("record {bad}, synced with the segment header, is damaged");
        return Err(Error::data_loss(&found.path, at, what));
    }
    let torn = tail::is_torn(window, &found.path, found.header.tag, at, bad)?;
    Ok(torn.then(|| Torn { path: found.path.clone(), offset: at }))
}

/// Reads the record at `at`; `None` if there is no valid record with this
/// number.
pub(super) fn read_record(
    window: &mut Window<'_>,
    at: u64,
    tag: u64,
    expected: u64,
) -> Result<Option<(DecodedHeader, Bytes)>> {
    let Some(header) = window.peek(at, HEADER_BYTES)? else { return Ok(None) };
    let Some(decoded) = record::decode(header) else { return Ok(None) };
    if decoded.header.tag != tag || decoded.header.record != expected {
        return Ok(None);
    }
    let Some(whole) = window.slice(at, HEADER_BYTES + decoded.payload_bytes)? else {
        return Ok(None);
    };
    Ok(record::checksum_matches(&whole).then(|| (decoded, whole.slice(HEADER_BYTES..))))
}
