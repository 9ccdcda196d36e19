//! The end of the last segment: tells a write interrupted by a crash from the
//! loss of synced data. Each record states which records were synced before it
//! was written, so later records are the evidence.

use std::path::Path;

use super::record::{self, ALIGN, HEADER_BYTES, RecordHeader};
use super::window::Window;
use crate::error::{Error, Result};

/// Number of bytes examined per step.
const STEP_BYTES: usize = 256 << 10;

/// Examines offset `at`, where record number `bad` should be but is not.
/// `Ok(true)` means a torn tail, `Ok(false)` an end with no trace of a record.
pub(super) fn is_torn(
    window: &mut Window<'_>,
    path: &Path,
    tag: u64,
    at: u64,
    bad: u64,
) -> Result<bool> {
    let mut torn =
        window.peek(at, HEADER_BYTES)?.is_some_and(|header| record::tag_of(header) == tag);
    let search = search(window, tag, at, |header| {
        if header.record <= bad || header.record <= header.synced {
            return false;
        }
        torn = true;
        header.synced >= bad
    })?;
    let what = match search {
        Search::Nothing => return Ok(torn),
        Search::GaveUp => "too many damaged records follow".to_string(),
        Search::FoundSegment { at, record } => format!(
            "record {bad} is damaged; it had been synced before record {record} at byte {at}"
        ),
    };
    Err(Error::data_loss(path, at, what))
}

/// Returns the offset and number of the next valid record after the bad one at
/// `at` whose number is above `bad`.
pub(super) fn next_valid(
    window: &mut Window<'_>,
    tag: u64,
    at: u64,
    bad: u64,
) -> Result<Option<(u64, u64)>> {
    match search(window, tag, at, |header| header.record > bad)? {
        Search::FoundSegment { at, record } => Ok(Some((at, record))),
        Search::Nothing | Search::GaveUp => Ok(None),
    }
}

enum Search {
    FoundSegment {
        at: u64,
        record: u64,
    },
    Nothing,
    /// Too many bytes looked like records but were not.
    GaveUp,
}

/// Finds the first valid record after `at` whose header satisfies `wanted`.
fn search(
    window: &mut Window<'_>,
    tag: u64,
    at: u64,
    mut wanted: impl FnMut(&RecordHeader) -> bool,
) -> Result<Search> {
    // Valid records add up to far less than this. Bytes crafted to look like
    // many long records are neither worth the time nor trustworthy.
    let mut budget = 2 * window.file_bytes();
    let mut from = at + ALIGN as u64;
    while let Some(candidate) = next_candidate(window, from, tag)? {
        from = candidate + ALIGN as u64;
        let header = window.peek(candidate, HEADER_BYTES)?.expect("a candidate is a whole header");
        let Some(decoded) = record::decode(header).filter(|decoded| wanted(&decoded.header)) else {
            continue;
        };
        let bytes = HEADER_BYTES + decoded.payload_bytes;
        if candidate + bytes as u64 > window.file_bytes() {
            // Not a record: payload bytes that look like one.
            continue;
        }
        let Some(left) = budget.checked_sub(bytes as u64) else { return Ok(Search::GaveUp) };
        budget = left;
        if window.peek(candidate, bytes)?.is_some_and(record::checksum_matches) {
            return Ok(Search::FoundSegment { at: candidate, record: decoded.header.record });
        }
    }
    Ok(Search::Nothing)
}

/// Returns the next offset at or after `from` with a complete header that
/// carries the tag.
fn next_candidate(window: &mut Window<'_>, from: u64, tag: u64) -> Result<Option<u64>> {
    const TAG_AT: u64 = 8;
    let word = tag.to_le_bytes();
    let last = (window.file_bytes() & !(ALIGN as u64 - 1)).saturating_sub(HEADER_BYTES as u64);
    let mut at = from;
    while at <= last {
        let bytes = ((last - at) as usize + ALIGN).min(STEP_BYTES);
        let words = window.peek(at + TAG_AT, bytes)?.expect("headers end within the file");
        if let Some(found) = words.chunks_exact(ALIGN).position(|found| found == word) {
            return Ok(Some(at + (found * ALIGN) as u64));
        }
        at += bytes as u64;
    }
    Ok(None)
}
