//! The directory of a log: its files, classified by name.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::segment::{self, SegmentName};
use crate::error::Error;
use crate::world::Files;

#[derive(Default)]
pub(super) struct LogDirectory {
    /// The segments from the head on, by sequence.
    pub segments: BTreeMap<u64, PathBuf>,
    /// Files that hold nothing needed and can be reused.
    pub free: Vec<PathBuf>,
    /// Files that are not segments.
    pub unknown_files: Vec<PathBuf>,
    /// An error for each sequence that several files have.
    pub duplicates: Vec<Error>,
}

impl LogDirectory {
    /// Lists `dir`. Segments before `head_segment` are free.
    pub(super) fn list(files: &dyn Files, dir: &Path, head_segment: u64) -> io::Result<Self> {
        let mut found = LogDirectory::default();
        for name in files.list(dir)? {
            let path = dir.join(&name);
            match segment::parse_name(&name) {
                SegmentName::Segment { sequence, .. } if sequence >= head_segment => {
                    if let Some(other) = found.segments.insert(sequence, path.clone()) {
                        let what = format!("{} is segment {sequence}, too", other.display());
                        found.duplicates.push(Error::data_loss(&path, 0, what));
                    }
                }
                SegmentName::Segment { .. } | SegmentName::Unfinished => found.free.push(path),
                SegmentName::Unknown => found.unknown_files.push(path),
            }
        }
        Ok(found)
    }
}
