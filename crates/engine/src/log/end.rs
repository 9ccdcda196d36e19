//! Where a log was found to end, and what its segments hold: all that a writer
//! needs to go on. The reader makes it, the writer takes it over.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;

/// One segment that may still be needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    pub sequence: u64,
    pub path: PathBuf,
    /// Bytes in use, from the header to the end of the last record.
    pub bytes: u64,
    /// The highest index of each stream with an entry, or a part of one, in
    /// this segment.
    pub index_max: BTreeMap<u16, u64>,
}

impl SegmentInfo {
    pub(super) fn note(&mut self, stream: u16, index: u64) {
        let max = self.index_max.entry(stream).or_insert(index);
        *max = index.max(*max);
    }

    /// Whether it holds an entry of `stream` at or above `index`.
    pub(super) fn holds(&self, stream: u16, index: u64) -> bool {
        self.index_max.get(&stream).is_some_and(|max| *max >= index)
    }
}

/// The place of a record that was being written when the writer died.
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
    /// The incarnation that wrote the last segment; zero when there is none.
    pub epoch: u64,
    pub torn: Option<Torn>,
    /// Whether the last writer closed the log.
    pub closed: bool,
    /// In log order.
    pub segments: Vec<SegmentInfo>,
    /// The latest state of each stream.
    pub states: BTreeMap<u16, Bytes>,
    /// Files that hold nothing needed and can be reused.
    pub free: Vec<PathBuf>,
}
