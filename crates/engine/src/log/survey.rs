//! A damage-tolerant scan of a log for the offline tools: reports every record
//! with its position, and all damage. Unlike the regular reader, it continues
//! after data loss.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::end::Torn;
use super::parts::Place;
use super::reader::{Found, LogItem, LogReader, Replay, check_joint, check_tail, read_record};
use super::record::{self, Framed};
use super::segment::{self, Name};
use super::tail;
use super::window::Window;
use crate::error::{Error, Result};
use crate::world::Files;

/// A record, described for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordInfo {
    pub segment: u64,
    pub offset: u64,
    /// Number of the record, consecutive over the whole log.
    pub record: u64,
    /// Highest record known to be synced when this one was written.
    pub synced: u64,
    pub stream: u16,
    pub index: u64,
    /// The name used in `docs/format-log.md`.
    pub kind: &'static str,
    pub payload_bytes: usize,
}

/// What a survey finds, in log order.
#[derive(Debug)]
pub enum Seen<'a> {
    /// The start of a segment.
    Segment {
        path: &'a Path,
        sequence: u64,
        epoch: u64,
        first_record: u64,
        file_bytes: u64,
    },
    Record(RecordInfo),
    /// What the previous record completed: an entry, a cut or a state.
    Item(LogItem),
    Damage(Error),
    /// The log ends with an incomplete write that was never acknowledged.
    Torn(Torn),
}

pub struct LogSurvey {
    reader: LogReader,
    strange: Vec<PathBuf>,
    damage: Vec<Error>,
}

impl LogSurvey {
    /// Opens the segments in `dir` from `head_segment` on, or all if it is
    /// `None`.
    pub fn open(files: &dyn Files, dir: &Path, head_segment: Option<u64>) -> Result<LogSurvey> {
        let names = files.list(dir).map_err(|error| Error::io("listing log", dir, error))?;
        let (mut free, mut strange, mut damage) = (Vec::new(), Vec::new(), Vec::new());
        let mut needed: BTreeMap<u64, PathBuf> = BTreeMap::new();
        for name in names {
            let path = dir.join(&name);
            match segment::parse_name(&name) {
                Name::Segment { sequence, .. } if head_segment.is_none_or(|at| sequence >= at) => {
                    if let Some(other) = needed.insert(sequence, path.clone()) {
                        let what =
                            format!("{} is segment {sequence} of the log too", other.display());
                        damage.push(Error::data_loss(&path, 0, what));
                    }
                }
                Name::Segment { .. } | Name::Unfinished => free.push(path),
                Name::Unknown => strange.push(path),
            }
        }
        let first = needed.keys().next().copied();
        let head_segment = head_segment.or(first).unwrap_or(1).max(1);
        let segments = open_all(files, needed, head_segment, &mut damage);
        let reader = LogReader { head_segment, segments, free };
        Ok(LogSurvey { reader, strange, damage })
    }

    /// Opens a single segment.
    pub fn open_segment(files: &dyn Files, path: &Path) -> Result<LogSurvey> {
        let found = Found::open(files, path.to_path_buf())?;
        let head_segment = found.header.sequence;
        let reader = LogReader { head_segment, segments: vec![found], free: Vec::new() };
        Ok(LogSurvey { reader, strange: Vec::new(), damage: Vec::new() })
    }

    /// Whether there are no segments at all, valid or damaged.
    pub fn is_empty(&self) -> bool {
        self.reader.segments.is_empty() && self.damage.is_empty()
    }

    /// Returns the segments that hold nothing needed and can be reused.
    pub fn free(&self) -> &[PathBuf] {
        &self.reader.free
    }

    /// Returns the files that are not segments.
    pub fn strange(&self) -> &[PathBuf] {
        &self.strange
    }

    /// Passes everything found to `each`. An error from `each` ends the walk.
    pub fn walk<E>(self, each: &mut dyn FnMut(Seen<'_>) -> Result<(), E>) -> Result<(), E> {
        for error in self.damage {
            each(Seen::Damage(error))?;
        }
        let mut replay = Replay::new(&self.reader);
        let segments = &self.reader.segments;
        for (position, found) in segments.iter().enumerate() {
            let next = segments.get(position + 1);
            let next = next.filter(|next| next.header.sequence == found.header.sequence + 1);
            if position > 0 && segments[position - 1].header.sequence + 1 != found.header.sequence {
                replay.parts.lose();
            }
            each(Seen::Segment {
                path: &found.path,
                sequence: found.header.sequence,
                epoch: found.header.epoch,
                first_record: found.header.first_record,
                file_bytes: found.file_bytes,
            })?;
            walk_segment(&mut replay, found, next, each)?;
        }
        Ok(())
    }
}

/// Opens all segments it can, and records which are missing or out of order.
fn open_all(
    files: &dyn Files,
    needed: BTreeMap<u64, PathBuf>,
    head_segment: u64,
    damage: &mut Vec<Error>,
) -> Vec<Found> {
    let mut segments: Vec<Found> = Vec::with_capacity(needed.len());
    let mut expected = head_segment;
    for (sequence, path) in needed {
        if sequence != expected {
            let what = match sequence - expected {
                1 => format!("segment {expected}, which comes before this one, is missing"),
                _ => format!("segments {expected} to {} are missing", sequence - 1),
            };
            damage.push(Error::data_loss(&path, 0, what));
        }
        expected = sequence + 1;
        match Found::open(files, path) {
            Ok(found) => {
                if let Some(before) = segments.last()
                    && before.header.epoch > found.header.epoch
                {
                    let what =
                        format!("epoch {} follows {}", found.header.epoch, before.header.epoch);
                    damage.push(Error::data_loss(&found.path, 0, what));
                }
                segments.push(found);
            }
            Err(error) => damage.push(error),
        }
    }
    segments
}

fn walk_segment<E>(
    replay: &mut Replay,
    found: &Found,
    next: Option<&Found>,
    each: &mut dyn FnMut(Seen<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let sequence = found.header.sequence;
    let mut window = match Window::open(found.file.clone(), &found.path) {
        Ok(window) => window,
        Err(error) => return each(Seen::Damage(error)),
    };
    replay.parts.enter(found.header.epoch);
    let (mut at, mut expected) = (segment::HEADER_BYTES as u64, found.header.first_record);
    loop {
        match read_record(&mut window, at, found.header.tag, expected) {
            Ok(Some((framed, payload))) => {
                each(Seen::Record(info(&framed, sequence, at)))?;
                match replay.item(&framed, payload, Place { segment: sequence, offset: at }) {
                    Ok(Some(item)) => each(Seen::Item(item))?,
                    Ok(None) => {}
                    Err(what) => {
                        replay.parts.lose();
                        each(Seen::Damage(Error::data_loss(&found.path, at, what)))?;
                    }
                }
                expected += 1;
                at += record::record_bytes(framed.payload_bytes) as u64;
                continue;
            }
            Ok(None) => {}
            Err(error) => return each(Seen::Damage(error)),
        }
        let end = match next {
            Some(next) => check_joint(found, at, expected, next).map(|()| None),
            None => check_tail(found, at, expected, &mut window),
        };
        match end {
            Ok(None) => return Ok(()),
            Ok(Some(torn)) => return each(Seen::Torn(torn)),
            Err(error) => each(Seen::Damage(error))?,
        }
        replay.parts.lose();
        match tail::next_sound(&mut window, found.header.tag, at, expected) {
            Ok(Some(behind)) => (at, expected) = behind,
            Ok(None) => return Ok(()),
            Err(error) => return each(Seen::Damage(error)),
        }
    }
}

fn info(framed: &Framed, segment: u64, offset: u64) -> RecordInfo {
    let header = &framed.header;
    RecordInfo {
        segment,
        offset,
        record: header.record,
        synced: header.synced,
        stream: header.stream,
        index: header.index,
        kind: header.kind.name(),
        payload_bytes: framed.payload_bytes,
    }
}
