//! Reads a log after a restart, entry by entry, and finds its end. The reader
//! never guesses: either all synced records are there, or it reports data loss.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::end::{LogEnd, SegmentInfo, Torn};
use super::parts::{Parts, Place};
use super::record::{self, Framed, HEADER_BYTES, Kind};
use super::segment::{self, Name, SegmentHeader};
use super::settle::Extent;
use super::tail;
use super::window::Window;
use crate::error::{Error, Result};
use crate::world::{File, Files};

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

pub(super) struct Found {
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    pub file_bytes: u64,
    pub header: SegmentHeader,
}

pub struct LogReader {
    pub(super) head_segment: u64,
    pub(super) segments: Vec<Found>,
    pub(super) free: Vec<PathBuf>,
}

impl LogReader {
    /// Finds the segments in `dir` from `head_segment` on. A missing directory
    /// is an empty log.
    pub fn open(files: &dyn Files, dir: &Path, head_segment: u64) -> Result<LogReader> {
        let head_segment = head_segment.max(1);
        let names = match files.list(dir) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::io("listing log", dir, error)),
        };
        let mut free = Vec::new();
        let mut needed: BTreeMap<u64, PathBuf> = BTreeMap::new();
        for name in names {
            let path = dir.join(&name);
            match segment::parse_name(&name) {
                Name::Segment { sequence, .. } if sequence >= head_segment => {
                    if let Some(other) = needed.insert(sequence, path.clone()) {
                        let what =
                            format!("{} is segment {sequence} of the log too", other.display());
                        return Err(Error::data_loss(&path, 0, what));
                    }
                }
                Name::Segment { .. } | Name::Unfinished => free.push(path),
                Name::Unknown => {
                    tracing::warn!(path = %path.display(), "not a log segment: ignored");
                }
            }
        }
        let segments = open_dense(files, needed, head_segment)?;
        Ok(LogReader { head_segment, segments, free })
    }

    /// Returns the path of each segment.
    pub fn paths(&self) -> BTreeMap<u64, PathBuf> {
        let sequence = |found: &Found| found.header.sequence;
        self.segments.iter().map(|found| (sequence(found), found.path.clone())).collect()
    }

    /// Returns the segments found, for `settle`.
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
) -> Result<Vec<Found>> {
    let mut segments: Vec<Found> = Vec::with_capacity(needed.len());
    for (expected, (sequence, path)) in (head_segment..).zip(needed) {
        if sequence != expected {
            let what = format!("segment {expected}, which comes before this one, is missing");
            return Err(Error::data_loss(&path, 0, what));
        }
        let found = Found::open(files, path)?;
        if let Some(before) = segments.last()
            && before.header.epoch > found.header.epoch
        {
            let what = format!("epoch {} follows {}", found.header.epoch, before.header.epoch);
            return Err(Error::data_loss(&found.path, 0, what));
        }
        segments.push(found);
    }
    Ok(segments)
}

impl Found {
    pub(super) fn open(files: &dyn Files, path: PathBuf) -> Result<Found> {
        let reading = |error| Error::io("reading log segment", &path, error);
        let file = files.open_read(&path).map_err(reading)?;
        let file_bytes = file.len().map_err(reading)?;
        if file_bytes < segment::HEADER_BYTES as u64 {
            return Err(Error::data_loss(&path, file_bytes, "the segment header is cut off"));
        }
        let mut header = [0; segment::HEADER_BYTES];
        file.read_exact_at(&mut header, 0).map_err(reading)?;
        let header = SegmentHeader::decode(&header, &path)?;
        Ok(Found { path, file, file_bytes, header })
    }
}

/// A replay in progress.
pub(super) struct Replay {
    end: LogEnd,
    pub(super) parts: Parts,
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
            epoch: last.map_or(0, |found| found.header.epoch),
            torn: None,
            closed: false,
            segments: Vec::with_capacity(reader.segments.len()),
            states: BTreeMap::new(),
            free: Vec::new(),
        };
        let bytes_left = reader.segments.iter().map(|found| found.file_bytes).sum();
        Replay { end, parts: Parts::default(), bytes_left }
    }

    fn segment(
        &mut self,
        found: &Found,
        next: Option<&Found>,
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
        self.parts.enter(found.header.epoch);
        self.end.closed = false;
        while let Some((framed, payload)) =
            read_record(&mut window, info.bytes, found.header.tag, self.end.next_record)?
        {
            let place = Place { segment: sequence, offset: info.bytes };
            if framed.header.kind.is_data() {
                info.note(framed.header.stream, framed.header.index);
            }
            let item = self
                .item(&framed, payload, place)
                .map_err(|what| Error::data_loss(&found.path, place.offset, what))?;
            self.end.next_record += 1;
            info.bytes += record::record_bytes(framed.payload_bytes) as u64;
            if let Some(item) = item {
                each(item)?;
            }
        }
        match next {
            Some(next) => check_joint(found, info.bytes, self.end.next_record, next)?,
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
        framed: &Framed,
        payload: Bytes,
        place: Place,
    ) -> Result<Option<LogItem>, &'static str> {
        let header = &framed.header;
        self.end.closed = header.kind == Kind::Close;
        let (kind, payload, place) = match header.kind {
            Kind::State => {
                self.end.states.insert(header.stream, Bytes::copy_from_slice(&payload));
                (ItemKind::State, payload, place)
            }
            Kind::Cut => {
                self.parts.between()?;
                (ItemKind::Cut, payload, place)
            }
            Kind::Close => {
                self.parts.between()?;
                return Ok(None);
            }
            Kind::Full | Kind::First | Kind::Middle | Kind::Last => {
                match self.parts.accept(header, payload, place, self.bytes_left)? {
                    Some((payload, begun)) => (ItemKind::Data, payload, begun),
                    None => return Ok(None),
                }
            }
        };
        let Place { segment, offset } = place;
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
pub(super) fn check_joint(found: &Found, at: u64, expected: u64, next: &Found) -> Result<()> {
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
    found: &Found,
    at: u64,
    bad: u64,
    window: &mut Window<'_>,
) -> Result<Option<Torn>> {
    if at < found.header.settled_end {
        let what = format!("record {bad}, synced with the segment header, is damaged");
        return Err(Error::data_loss(&found.path, at, what));
    }
    let torn = tail::judge(window, &found.path, found.header.tag, at, bad)?;
    Ok(torn.then(|| Torn { path: found.path.clone(), offset: at }))
}

/// Reads the record at `at`; `None` if there is no valid record with this
/// number.
pub(super) fn read_record(
    window: &mut Window<'_>,
    at: u64,
    tag: u64,
    expected: u64,
) -> Result<Option<(Framed, Bytes)>> {
    let Some(header) = window.peek(at, HEADER_BYTES)? else { return Ok(None) };
    let Some(framed) = record::decode(header) else { return Ok(None) };
    if framed.header.tag != tag || framed.header.record != expected {
        return Ok(None);
    }
    let Some(whole) = window.slice(at, HEADER_BYTES + framed.payload_bytes)? else {
        return Ok(None);
    };
    Ok(record::is_sound(&whole).then(|| (framed, whole.slice(HEADER_BYTES..))))
}
