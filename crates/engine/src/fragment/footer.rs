//! The metadata of a fragment, written last: the footer message and the fixed-size tail
//! that locates it.

use std::path::Path;

use crate::error::{Error, Result};
use crate::schema::Compression;
use crate::txn::Txn;
use crate::varint::ByteReader;

pub const MAGIC: [u8; 8] = *b"STELEFRG";
pub const FORMAT_VERSION: u32 = 1;
/// The length of the tail in every version of the format.
pub const TAIL_BYTES: usize = 48;

/// Everything known about a fragment without reading its blocks.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FragmentMeta {
    /// Entries that are cells: values, markers and merge operands.
    pub cells: u64,
    /// Entries that are row, family or column tombstones.
    pub tombstones: u64,
    /// Rows with at least one entry.
    pub rows: u64,
    pub blocks: u64,
    /// Ranges of rows deleted as a whole.
    pub range_tombstones: u64,
    /// Bytes of all keys and values.
    pub raw_bytes: u64,
    /// Bytes of all keys and values not covered by a tombstone of this file.
    pub live_bytes: u64,
    /// Bytes of all blocks as stored.
    pub data_bytes: u64,
    /// Bytes of the whole file.
    pub stored_bytes: u64,
    /// The minimum txn of any entry or range tombstone; zero if there is none.
    pub txn_min: Txn,
    pub txn_max: Txn,
    /// The minimum and maximum timestamp of the cells, if there are any.
    pub timestamps: Option<(i64, i64)>,
    /// In order of first appearance.
    pub families: Vec<Vec<u8>>,
    /// The first and last row with an entry. Range tombstones may extend further.
    pub row_bounds: Option<(Vec<u8>, Vec<u8>)>,
    pub compression: Compression,
    pub block_bytes: u32,
    /// xxh3-64 of everything after the blocks. That includes a checksum of every block,
    /// so the hash identifies the whole file.
    pub hash: u64,
}

impl FragmentMeta {
    /// Returns the size of everything after the blocks: index, filters, range
    /// tombstones and footer.
    pub fn meta_bytes(&self) -> u64 {
        self.stored_bytes - self.data_bytes
    }
}

/// A section of the file with a checksum.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Section {
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    #[prost(uint32, tag = "2")]
    pub len: u32,
    #[prost(fixed32, tag = "3")]
    pub crc: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct IndexSection {
    #[prost(message, required, tag = "1")]
    pub section: Section,
    #[prost(bytes = "vec", tag = "2")]
    pub first_separator: Vec<u8>,
    #[prost(uint64, tag = "3")]
    pub data_offset: u64,
    #[prost(uint64, tag = "4")]
    pub blocks: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct FilterSection {
    #[prost(message, required, tag = "1")]
    pub section: Section,
    #[prost(bytes = "vec", tag = "2")]
    pub first_row: Vec<u8>,
}

/// The footer message as stored.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Footer {
    #[prost(uint64, tag = "1")]
    pub cells: u64,
    #[prost(uint64, tag = "2")]
    pub tombstones: u64,
    #[prost(uint64, tag = "3")]
    pub rows: u64,
    #[prost(uint64, tag = "4")]
    pub raw_bytes: u64,
    #[prost(uint64, tag = "5")]
    pub live_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub data_bytes: u64,
    #[prost(uint64, tag = "7")]
    pub txn_min: u64,
    #[prost(uint64, tag = "8")]
    pub txn_max: u64,
    #[prost(sint64, optional, tag = "9")]
    pub timestamp_min: Option<i64>,
    #[prost(sint64, optional, tag = "10")]
    pub timestamp_max: Option<i64>,
    #[prost(bytes = "vec", repeated, tag = "11")]
    pub families: Vec<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "12")]
    pub first_row: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "13")]
    pub last_row: Option<Vec<u8>>,
    #[prost(uint32, tag = "14")]
    pub compression: u32,
    #[prost(uint32, tag = "15")]
    pub block_bytes: u32,
    #[prost(message, repeated, tag = "16")]
    pub index: Vec<IndexSection>,
    #[prost(message, repeated, tag = "17")]
    pub filters: Vec<FilterSection>,
    #[prost(message, optional, tag = "18")]
    pub range_tombstones: Option<Section>,
    #[prost(uint64, tag = "19")]
    pub range_tombstone_count: u64,
}

impl Footer {
    /// Returns the metadata for the caller; `None` if it is inconsistent.
    pub fn meta(&self, stored_bytes: u64, hash: u64) -> Option<FragmentMeta> {
        let timestamps = both(self.timestamp_min, self.timestamp_max)?;
        let row_bounds = both(self.first_row.clone(), self.last_row.clone())?;
        let consistent = timestamps.is_none_or(|(min, max)| min <= max)
            && row_bounds.as_ref().is_none_or(|(first, last)| first <= last)
            && self.txn_min <= self.txn_max
            && self.first_row.is_some() != self.index.is_empty()
            && self.first_row.is_some() != self.filters.is_empty();
        consistent.then_some(())?;
        Some(FragmentMeta {
            cells: self.cells,
            tombstones: self.tombstones,
            rows: self.rows,
            blocks: self
                .index
                .iter()
                .try_fold(0u64, |sum, partition| sum.checked_add(partition.blocks))?,
            range_tombstones: self.range_tombstone_count,
            raw_bytes: self.raw_bytes,
            live_bytes: self.live_bytes,
            data_bytes: self.data_bytes,
            stored_bytes,
            txn_min: Txn::from_raw(self.txn_min)?,
            txn_max: Txn::from_raw(self.txn_max)?,
            timestamps,
            families: self.families.clone(),
            row_bounds,
            compression: Compression::from_byte(u8::try_from(self.compression).ok()?)?,
            block_bytes: self.block_bytes,
            hash,
        })
    }

    /// Returns whether the sections of the file are contiguous: blocks, index, filters,
    /// range tombstones, up to `end`.
    pub fn sections_fit(&self, end: u64) -> bool {
        let mut at = self.data_bytes;
        let index = self.index.iter().map(|partition| partition.section);
        let filters = self.filters.iter().map(|filter| filter.section);
        for section in index.chain(filters).chain(self.range_tombstones) {
            let next = at.checked_add(section.len.into());
            let (true, Some(next)) = (section.offset == at, next) else { return false };
            at = next;
        }
        let mut data_offset = 0;
        for (number, partition) in self.index.iter().enumerate() {
            if partition.data_offset < data_offset || (number == 0 && partition.data_offset != 0) {
                return false;
            }
            data_offset = partition.data_offset;
        }
        at == end && data_offset <= self.data_bytes
    }
}

/// Returns both or neither; the outer `None` means that only one is set.
fn both<T>(a: Option<T>, b: Option<T>) -> Option<Option<(T, T)>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(Some((a, b))),
        (None, None) => Some(None),
        _ => None,
    }
}

/// The fixed-size tail of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileTail {
    pub footer_offset: u64,
    pub footer_len: u32,
    pub footer_crc: u32,
    pub hash: u64,
}

impl FileTail {
    pub fn encode(&self) -> [u8; TAIL_BYTES] {
        let mut tail = Vec::with_capacity(TAIL_BYTES);
        tail.extend_from_slice(&self.footer_offset.to_le_bytes());
        tail.extend_from_slice(&self.footer_len.to_le_bytes());
        tail.extend_from_slice(&self.footer_crc.to_le_bytes());
        tail.extend_from_slice(&self.hash.to_le_bytes());
        tail.extend_from_slice(&[0; 8]);
        tail.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        tail.extend_from_slice(&crc32c::crc32c(&tail).to_le_bytes());
        tail.extend_from_slice(&MAGIC);
        tail.try_into().expect("the fields add up to the length of a tail")
    }

    /// Parses the tail of a file of `file_len` bytes.
    pub fn parse(tail: &[u8; TAIL_BYTES], path: &Path, file_len: u64) -> Result<FileTail> {
        let at = file_len - TAIL_BYTES as u64;
        let damaged = |what: &str| Error::data_loss(path, at, what);
        let mut read = ByteReader::new(tail);
        let mut fields = || {
            let tail = FileTail {
                footer_offset: read.u64()?,
                footer_len: read.u32()?,
                footer_crc: read.u32()?,
                hash: read.u64()?,
            };
            let (reserved, version, crc) = (read.u64()?, read.u32()?, read.u32()?);
            Some((tail, reserved, version, crc, read.array::<8>()?))
        };
        let (fields, reserved, version, crc, magic) =
            fields().ok_or_else(|| damaged("the tail is truncated"))?;
        if magic != MAGIC {
            return Err(damaged("not a finished fragment"));
        }
        if crc != crc32c::crc32c(&tail[..TAIL_BYTES - 12]) {
            return Err(damaged("the checksum of the tail is wrong"));
        }
        if version > FORMAT_VERSION {
            let path = path.to_path_buf();
            return Err(Error::NewerFormat { path, found: version, known: FORMAT_VERSION });
        }
        let end = fields.footer_offset.checked_add(fields.footer_len.into());
        if end != Some(at) || reserved != 0 || version == 0 {
            return Err(damaged("the tail does not match the file"));
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FileTail {
        FileTail { footer_offset: 100, footer_len: 52, footer_crc: 7, hash: 9 }
    }

    #[test]
    fn a_tail_reads_back_as_written() {
        let bytes = sample().encode();
        assert_eq!(FileTail::parse(&bytes, Path::new("f"), 200).unwrap(), sample());
        assert!(FileTail::parse(&bytes, Path::new("f"), 201).is_err());
    }

    #[test]
    fn a_later_version_is_refused_by_name() {
        let mut bytes = sample().encode();
        bytes[32..36].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..36]);
        bytes[36..40].copy_from_slice(&crc.to_le_bytes());
        let error = FileTail::parse(&bytes, Path::new("f"), 200).unwrap_err();
        assert!(matches!(error, Error::NewerFormat { found: 2, known: 1, .. }), "{error}");
    }
}
