//! The index of a fragment: the location and a summary of the contents of each block.
//! It is divided into partitions, each decoded as a whole.

use crate::cache::LastUse;
use crate::cell::prefix::common_prefix;
use crate::cell::separators::Separators;
use crate::fragment::slot::Slot;
use crate::schema::Compression;
use crate::varint::{ByteReader, push_signed, push_varint};

/// A partition is closed once its encoded size reaches this.
pub const PARTITION_BYTES: usize = 32 << 10;
/// A partition is also closed once its decoded separators reach this size, which bounds
/// the memory that a reader needs for it.
const SEPARATOR_BYTES: usize = 256 << 10;
/// The maximum size of a decompressed block: enough for one entry of the maximum size.
pub const BLOCK_BYTES_MAX: usize = 512 << 20;

const FLAG_COMPRESSION: u8 = 0b0011;
const FLAG_DELETES: u8 = 0b0100;
const FLAG_CELLS: u8 = 0b1000;

/// The location of a block and a summary of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHandle {
    pub offset: u64,
    pub stored_len: u32,
    pub raw_len: u32,
    /// CRC32C of the stored bytes.
    pub crc: u32,
    pub compression: Compression,
    pub entries: u32,
    pub contents: Contents,
}

impl BlockHandle {
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.stored_len)
    }
}

/// A summary of a block's contents: enough to decide whether to skip it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Contents {
    /// The block contains something other than plain values. Such entries affect cells
    /// of other blocks, so the block is never skipped.
    pub deletes: bool,
    /// The minimum and maximum timestamp of its cells, if it has any.
    pub timestamps: Option<(i64, i64)>,
    /// Bit i is set if the block contains the i-th family of the file; the top bit
    /// stands for every family from the 64th on.
    pub families: u64,
}

impl Contents {
    pub fn add_timestamp(&mut self, timestamp: i64) {
        let (min, max) = self.timestamps.unwrap_or((timestamp, timestamp));
        self.timestamps = Some((min.min(timestamp), max.max(timestamp)));
    }
}

/// Returns the bit of the family at `index` in the file's list.
pub fn family_bit(index: usize) -> u64 {
    1 << index.min(63)
}

/// Encodes the partitions one by one.
#[derive(Default)]
pub struct IndexBuilder {
    done: Vec<EncodedPartition>,
    open: EncodedPartition,
    last_separator: Vec<u8>,
    /// The size of all separators of the open partition.
    separator_bytes: usize,
}

/// A partition in its stored form.
#[derive(Default)]
pub struct EncodedPartition {
    pub bytes: Vec<u8>,
    pub first_separator: Vec<u8>,
    /// The offset of its first block.
    pub data_offset: u64,
    pub blocks: u64,
}

impl IndexBuilder {
    /// Returns the number of bytes encoded so far.
    pub fn bytes(&self) -> usize {
        self.done.iter().map(|partition| partition.bytes.len()).sum::<usize>()
            + self.open.bytes.len()
    }

    pub fn add(&mut self, separator: &[u8], handle: &BlockHandle) {
        let partition = &mut self.open;
        if partition.blocks == 0 {
            partition.first_separator = separator.to_vec();
            partition.data_offset = handle.offset;
            self.last_separator.clear();
            self.separator_bytes = 0;
        }
        let shared = common_prefix(&self.last_separator, separator);
        push_varint(&mut partition.bytes, shared as u64);
        push_varint(&mut partition.bytes, (separator.len() - shared) as u64);
        partition.bytes.extend_from_slice(&separator[shared..]);
        push_handle(&mut partition.bytes, handle);
        partition.blocks += 1;
        self.last_separator.clear();
        self.last_separator.extend_from_slice(separator);
        self.separator_bytes += separator.len();
        if partition.bytes.len() >= PARTITION_BYTES || self.separator_bytes >= SEPARATOR_BYTES {
            self.done.push(std::mem::take(partition));
        }
    }

    pub fn finish(mut self) -> Vec<EncodedPartition> {
        if self.open.blocks > 0 {
            self.done.push(self.open);
        }
        self.done
    }
}

fn push_handle(out: &mut Vec<u8>, handle: &BlockHandle) {
    let contents = &handle.contents;
    let mut flags = handle.compression.to_byte();
    flags |= if contents.deletes { FLAG_DELETES } else { 0 };
    flags |= if contents.timestamps.is_some() { FLAG_CELLS } else { 0 };
    out.push(flags);
    push_varint(out, handle.stored_len.into());
    push_varint(out, handle.raw_len.into());
    push_varint(out, handle.entries.into());
    out.extend_from_slice(&handle.crc.to_le_bytes());
    push_varint(out, contents.families);
    if let Some((min, max)) = contents.timestamps {
        push_signed(out, min);
        push_varint(out, max.wrapping_sub(min) as u64);
    }
}

/// A partition of the index in memory.
pub struct IndexPartition {
    /// Each block's separator is after every key of the previous block and at or before
    /// every key of its own.
    pub separators: Separators,
    pub handles: Vec<BlockHandle>,
    /// One per block.
    pub slots: Vec<Slot>,
    last_use: LastUse,
}

impl IndexPartition {
    /// Decodes a partition whose blocks fill `data_offset..data_end`.
    pub fn parse(bytes: &[u8], data_offset: u64, data_end: u64) -> Option<IndexPartition> {
        let mut read = ByteReader::new(bytes);
        let (mut separators, mut ends) = (Vec::new(), Vec::new());
        let mut handles = Vec::new();
        let (mut start, mut offset) = (0, data_offset);
        while !read.is_empty() {
            let shared = usize::try_from(read.varint()?).ok()?;
            let own = usize::try_from(read.varint()?).ok()?;
            let before = separators.len();
            if shared > before - start || before >= SEPARATOR_BYTES {
                return None;
            }
            separators.extend_from_within(start..start + shared);
            separators.extend_from_slice(read.take(own)?);
            ends.push(separators.len());
            start = before;
            let handle = parse_handle(&mut read, offset)?;
            offset = handle.end();
            handles.push(handle);
        }
        if offset != data_end || handles.is_empty() {
            return None;
        }
        let slots = handles.iter().map(|_| Slot::default()).collect();
        let (separators, last_use) = (Separators::new(separators, ends)?, LastUse::default());
        Some(IndexPartition { separators, handles, slots, last_use })
    }

    pub(crate) fn last_use(&self) -> &LastUse {
        &self.last_use
    }

    /// Returns the size of this partition in memory.
    pub fn bytes(&self) -> usize {
        size_of::<IndexPartition>()
            + self.separators.bytes()
            + self.handles.len() * (size_of::<BlockHandle>() + size_of::<Slot>())
    }
}

fn parse_handle(read: &mut ByteReader<'_>, offset: u64) -> Option<BlockHandle> {
    let flags = read.byte()?;
    if flags & !(FLAG_COMPRESSION | FLAG_DELETES | FLAG_CELLS) != 0 {
        return None;
    }
    let compression = Compression::from_byte(flags & FLAG_COMPRESSION)?;
    let stored_len = read.varint_u32()?;
    let raw_len = read.varint_u32()?;
    let entries = read.varint_u32()?;
    let crc = read.u32()?;
    let families = read.varint()?;
    let timestamps = match flags & FLAG_CELLS {
        0 => None,
        _ => {
            let min = read.signed()?;
            Some((min, min.checked_add_unsigned(read.varint()?)?))
        }
    };
    if stored_len == 0 || raw_len as usize > BLOCK_BYTES_MAX {
        return None;
    }
    offset.checked_add(stored_len.into())?;
    let contents = Contents { deletes: flags & FLAG_DELETES != 0, timestamps, families };
    Some(BlockHandle { offset, stored_len, raw_len, crc, compression, entries, contents })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn handle() -> impl Strategy<Value = BlockHandle> {
        let compression =
            prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd]);
        let timestamps = prop::option::of((any::<i64>(), any::<i64>()));
        let contents = (any::<bool>(), timestamps, any::<u64>());
        (1u32..1 << 20, 1u32..1 << 20, any::<u32>(), compression, 1u32..500, contents).prop_map(
            |(stored_len, raw_len, crc, compression, entries, contents)| BlockHandle {
                offset: 0,
                stored_len,
                raw_len,
                crc,
                compression,
                entries,
                contents: Contents {
                    deletes: contents.0,
                    timestamps: contents.1.map(|(a, b)| (a.min(b), a.max(b))),
                    families: contents.2,
                },
            },
        )
    }

    proptest! {
        #[test]
        fn partitions_read_back_as_built(
            separators in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..2000), 1..120),
            handles in prop::collection::vec(handle(), 120),
        ) {
            let mut builder = IndexBuilder::default();
            let (mut expected, mut offset) = (Vec::new(), 77);
            for (separator, mut handle) in separators.into_iter().zip(handles) {
                handle.offset = offset;
                offset = handle.end();
                builder.add(&separator, &handle);
                expected.push((separator, handle));
            }
            let partitions = builder.finish();
            let (mut seen, ends) = (Vec::new(), partitions.iter().skip(1).map(|partition| partition.data_offset));
            for (partition, end) in partitions.iter().zip(ends.chain([offset])) {
                let parsed = IndexPartition::parse(&partition.bytes, partition.data_offset, end).unwrap();
                prop_assert_eq!(parsed.separators.get(0), &partition.first_separator[..]);
                prop_assert_eq!(parsed.handles.len() as u64, partition.blocks);
                prop_assert!(IndexPartition::parse(&partition.bytes, partition.data_offset, end + 1).is_none());
                for (index, &handle) in parsed.handles.iter().enumerate() {
                    seen.push((parsed.separators.get(index).to_vec(), handle));
                }
            }
            prop_assert_eq!(seen, expected);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            IndexPartition::parse(&bytes, 0, 1000);
        }
    }
}
