//! A damage-tolerant scan of a log for the offline tools: reports every record
//! with its position, and all damage. Unlike the regular reader, it continues
//! after data loss.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::assembler::RecordPosition;
use super::directory::LogDirectory;
use super::end::Torn;
use super::reader::{
    FoundSegment, LogItem, LogReader, Replay, check_continuation, check_tail, read_record,
};
use super::record::{self, DecodedHeader};
use super::segment;
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
pub enum SurveyItem<'a> {
    /// The start of a segment.
    Segment {
        path: &'a Path,
        sequence: u64,
        incarnation: u64,
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

/// A log opened for a survey.
pub struct LogSurvey {
    reader: LogReader,
    unknown_files: Vec<PathBuf>,
    damage: Vec<Error>,
}

impl LogSurvey {
    /// Opens the segments in `dir` from `head_segment` on, or all if it is
    /// `None`.
    pub fn open(files: &dyn Files, dir: &Path, head_segment: Option<u64>) -> Result<LogSurvey> {
        let found = LogDirectory::list(files, dir, head_segment.unwrap_or(0))
            .map_err(|error| Error::io("listing log", dir, error))?;
        let first = found.segments.keys().next().copied();
        let head_segment = head_segment.or(first).unwrap_or(1).max(1);
        let mut damage = found.duplicates;
        let segments = open_all(files, found.segments, head_segment, &mut damage);
        let reader = LogReader { head_segment, segments, free: found.free };
        Ok(LogSurvey { reader, unknown_files: found.unknown_files, damage })
    }

    /// Opens a single segment.
    pub fn open_segment(files: &dyn Files, path: &Path) -> Result<LogSurvey> {
        let found = FoundSegment::open(files, path.to_path_buf())?;
        let head_segment = found.header.sequence;
        let reader = LogReader { head_segment, segments: vec![found], free: Vec::new() };
        Ok(LogSurvey { reader, unknown_files: Vec::new(), damage: Vec::new() })
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
    pub fn unknown_files(&self) -> &[PathBuf] {
        &self.unknown_files
    }

    /// Passes everything found to `each`. An error from `each` ends the walk.
    pub fn walk<E>(self, each: &mut dyn FnMut(SurveyItem<'_>) -> Result<(), E>) -> Result<(), E> {
        for error in self.damage {
            each(SurveyItem::Damage(error))?;
        }
        let mut replay = Replay::new(&self.reader);
        let segments = &self.reader.segments;
        for (position, found) in segments.iter().enumerate() {
            let next = segments.get(position + 1);
            let next = next.filter(|next| next.header.sequence == found.header.sequence + 1);
            if position > 0 && segments[position - 1].header.sequence + 1 != found.header.sequence {
                replay.assembler.skip_gap();
            }
            each(SurveyItem::Segment {
                path: &found.path,
                sequence: found.header.sequence,
                incarnation: found.header.incarnation,
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
) -> Vec<FoundSegment> {
    let mut segments: Vec<FoundSegment> = Vec::with_capacity(needed.len());
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
        match FoundSegment::open(files, path) {
            Ok(found) => {
                damage.extend(found.check_incarnation(segments.last()).err());
                segments.push(found);
            }
            Err(error) => damage.push(error),
        }
    }
    segments
}

fn walk_segment<E>(
    replay: &mut Replay,
    found: &FoundSegment,
    next: Option<&FoundSegment>,
    each: &mut dyn FnMut(SurveyItem<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let sequence = found.header.sequence;
    let mut window = match Window::open(found.file.clone(), &found.path) {
        Ok(window) => window,
        Err(error) => return each(SurveyItem::Damage(error)),
    };
    replay.assembler.begin_segment(found.header.incarnation);
    let (mut at, mut expected) = (segment::HEADER_BYTES as u64, found.header.first_record);
    loop {
        match read_record(&mut window, at, found.header.tag, expected) {
            Ok(Some((decoded, payload))) => {
                each(SurveyItem::Record(info(&decoded, sequence, at)))?;
                match replay.item(
                    &decoded,
                    payload,
                    RecordPosition { segment: sequence, offset: at },
                ) {
                    Ok(Some(item)) => each(SurveyItem::Item(item))?,
                    Ok(None) => {}
                    Err(what) => {
                        replay.assembler.skip_gap();
                        each(SurveyItem::Damage(Error::data_loss(&found.path, at, what)))?;
                    }
                }
                expected += 1;
                at += record::record_bytes(decoded.payload_bytes) as u64;
                continue;
            }
            Ok(None) => {}
            Err(error) => return each(SurveyItem::Damage(error)),
        }
        let end = match next {
            Some(next) => check_continuation(found, at, expected, next).map(|()| None),
            None => check_tail(found, at, expected, &mut window),
        };
        match end {
            Ok(None) => return Ok(()),
            Ok(Some(torn)) => return each(SurveyItem::Torn(torn)),
            Err(error) => each(SurveyItem::Damage(error))?,
        }
        replay.assembler.skip_gap();
        match tail::next_valid(&mut window, found.header.tag, at, expected) {
            Ok(Some(behind)) => (at, expected) = behind,
            Ok(None) => return Ok(()),
            Err(error) => return each(SurveyItem::Damage(error)),
        }
    }
}

fn info(decoded: &DecodedHeader, segment: u64, offset: u64) -> RecordInfo {
    let header = &decoded.header;
    RecordInfo {
        segment,
        offset,
        record: header.record,
        synced: header.synced,
        stream: header.stream,
        index: header.index,
        kind: header.kind.name(),
        payload_bytes: decoded.payload_bytes,
    }
}
