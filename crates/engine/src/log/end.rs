//! The end of a log and the contents of its segments: all that a writer needs
//! to continue. Produced by the reader, consumed by the writer.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;

/// A segment that may still be needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    pub sequence: u64,
    pub path: PathBuf,
    /// Bytes in use, from the header to the end of the last record.
    pub bytes: u64,
    /// For each stream with an entry, or part of one, in this segment: the
    /// highest index.
    pub index_max: BTreeMap<u16, u64>,
}

impl SegmentInfo {
    pub(super) fn note(&mut self, stream: u16, index: u64) {
        let max = self.index_max.entry(stream).or_insert(index);
        *max = index.max(*max);
    }

    /// Whether the segment holds an entry of `stream` at or above `index`.
    pub(super) fn holds(&self, stream: u16, index: u64) -> bool {
        self.index_max.get(&stream).is_some_and(|max| *max >= index)
    }
}

/// The position of a record that was being written when the writer crashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    pub path: PathBuf,
    pub offset: u64,
}

/// The end of a log.
#[derive(Clone, Debug)]
pub struct LogEnd {
    pub next_record: u64,
    pub next_segment: u64,
    /// The incarnation of the last segment; zero if there is none.
    pub incarnation: u64,
    pub torn: Option<Torn>,
    /// Whether the last writer closed the log cleanly.
    pub closed: bool,
    /// In log order.
    pub segments: Vec<SegmentInfo>,
    /// The latest state of each stream.
    pub states: BTreeMap<u16, Bytes>,
    /// Files that hold nothing needed and can be reused.
    pub free: Vec<PathBuf>,
}
