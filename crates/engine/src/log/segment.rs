//! A segment: a file named after its position in the log, with a header. The
//! header is synced before the file gets its final name, so a segment with that
//! name either has a valid header or is damaged.

use std::path::Path;

use super::record::{read_u32, read_u64};
use crate::error::{Error, Result};

/// Size of a segment header; the first record follows it.
pub(super) const HEADER_BYTES: usize = 64;
/// The format version that is written, and the newest that can be read.
pub(super) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"STELELOG";
const CRC_AT: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// Position in the log, one more than that of the previous segment.
    pub sequence: u64,
    /// The incarnation that created the segment.
    pub incarnation: u64,
    /// Number of the first record.
    pub first_record: u64,
    /// Records before this offset were synced before the file got its final
    /// name, so they cannot be part of a torn tail.
    pub synced_end: u64,
    /// Part of every record of the segment. Unpredictable, so that no stored
    /// value can be crafted to look like a record.
    pub tag: u64,
}

impl SegmentHeader {
    pub(super) fn file_name(&self) -> String {
        file_name(self.sequence, self.incarnation)
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        out[24..32].copy_from_slice(&self.incarnation.to_le_bytes());
        out[32..40].copy_from_slice(&self.first_record.to_le_bytes());
        out[40..48].copy_from_slice(&self.synced_end.to_le_bytes());
        out[48..56].copy_from_slice(&self.tag.to_le_bytes());
        let crc = crc32c::crc32c(&out[..CRC_AT]);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes and verifies the header of the segment at `path`.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES], path: &Path) -> Result<SegmentHeader> {
        let damaged = |what: &str| Err(Error::data_loss(path, 0, what));
        if bytes[..8] != MAGIC {
            return damaged("not a log segment");
        }
        if crc32c::crc32c(&bytes[..CRC_AT]) != read_u32(bytes, CRC_AT) {
            return damaged("the checksum of the segment header is wrong");
        }
        let version = read_u32(bytes, 8);
        if version > VERSION {
            let path = path.to_path_buf();
            return Err(Error::NewerFormat { path, found: version, known: VERSION });
        }
        let header = SegmentHeader {
            sequence: read_u64(bytes, 16),
            incarnation: read_u64(bytes, 24),
            first_record: read_u64(bytes, 32),
            synced_end: read_u64(bytes, 40),
            tag: read_u64(bytes, 48),
        };
        if path.file_name().is_none_or(|name| name != header.file_name().as_str()) {
            return damaged("the segment header belongs to another segment");
        }
        // Rules out overflow in later arithmetic on record numbers.
        if header.first_record == 0 || header.first_record > u64::MAX / 2 {
            return damaged("the number of the first record is out of range");
        }
        Ok(header)
    }
}

pub(super) fn file_name(sequence: u64, incarnation: u64) -> String {
    format!("{sequence:012}-{incarnation:08}.log")
}

/// Returns the temporary name of a segment under construction.
pub(super) fn unfinished_name(sequence: u64, incarnation: u64) -> String {
    format!("{sequence:012}-{incarnation:08}.new")
}

/// The meaning of a file name in the log's directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SegmentName {
    Segment {
        sequence: u64,
        incarnation: u64,
    },
    /// A segment that was under construction when the writer crashed.
    Unfinished,
    Unknown,
}

pub(super) fn parse_name(name: &Path) -> SegmentName {
    let parsed = || {
        let name = name.to_str()?;
        let (stem, _) = name.rsplit_once('.')?;
        let (sequence, incarnation) = stem.split_once('-')?;
        let (sequence, incarnation) = (sequence.parse().ok()?, incarnation.parse().ok()?);
        // Accept only the canonical spelling: `+1` and `01` parse too.
        if name == file_name(sequence, incarnation) {
            return Some(SegmentName::Segment { sequence, incarnation });
        }
        (name == unfinished_name(sequence, incarnation)).then_some(SegmentName::Unfinished)
    };
    parsed().unwrap_or(SegmentName::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: SegmentHeader =
        SegmentHeader { sequence: 7, incarnation: 3, first_record: 40, synced_end: 64, tag: 99 };

    #[test]
    fn names_sort_in_log_order_and_read_back() {
        assert_eq!(file_name(7, 3), "000000000007-00000003.log");
        assert!(file_name(99, 9) < file_name(100, 1));
        for (sequence, incarnation) in [(1, 1), (u64::MAX, u64::MAX), (0, 0)] {
            let name = file_name(sequence, incarnation);
            assert_eq!(
                parse_name(Path::new(&name)),
                SegmentName::Segment { sequence, incarnation }
            );
            let name = unfinished_name(sequence, incarnation);
            assert_eq!(parse_name(Path::new(&name)), SegmentName::Unfinished);
        }
        for name in
            ["", "x", "7-3.log", "000000000007-00000003.log.bak", "+00000000007-00000003.log"]
        {
            assert_eq!(parse_name(Path::new(name)), SegmentName::Unknown, "{name}");
        }
    }

    #[test]
    fn a_damaged_header_is_data_loss_whichever_bit_it_is() {
        let path = Path::new("/log/000000000007-00000003.log");
        let mut bytes = HEADER.encode();
        assert_eq!(SegmentHeader::decode(&bytes, path).unwrap(), HEADER);
        for bit in 0..HEADER_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let outcome = SegmentHeader::decode(&bytes, path);
            assert!(matches!(outcome, Err(Error::DataLoss { .. })), "bit {bit}: {outcome:?}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let elsewhere = Path::new("/log/000000000008-00000003.log");
        assert!(matches!(SegmentHeader::decode(&bytes, elsewhere), Err(Error::DataLoss { .. })));
    }

    #[test]
    fn a_later_format_version_is_refused_by_name() {
        let mut bytes = HEADER.encode();
        bytes[8] = 2;
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        let outcome = SegmentHeader::decode(&bytes, Path::new("000000000007-00000003.log"));
        assert!(matches!(outcome, Err(Error::NewerFormat { found: 2, known: 1, .. })));
    }
}
