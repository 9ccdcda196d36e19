//! The arena that stores the keys and values of a memory fragment.
//!
//! Entries are appended to chunks and never move, so a tree node refers to one by an
//! [`EntryAddress`] of four bytes. Large values are not copied: they stay in the shared
//! buffer in which they arrived.

use std::sync::Arc;

use bytes::Bytes;

use crate::budget::{CHUNK_BYTES, MemoryBudget};
use crate::cell::commit::SHARED_VALUE_BYTES_MIN;

/// The size of a fragment's first chunk. Each further chunk is twice as large, up to
/// `CHUNK_BYTES`, so that a table with few cells uses little memory.
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// An entry above this size gets its own chunk, so that it does not waste the rest of
/// the current one.
const ENTRY_BYTES_MAX: usize = CHUNK_BYTES / 4;

/// Entries start at multiples of this, so that an `EntryAddress` fits in 32 bits.
const ALIGNMENT: usize = 8;
const OFFSET_BITS: u32 = (CHUNK_BYTES / ALIGNMENT).trailing_zeros();
const CHUNKS_MAX: usize = 1 << (u32::BITS - OFFSET_BITS);

/// The header before each key: key length and value length, little-endian.
const HEADER_BYTES: usize = 8;
/// Set in the value length if the value is a shared buffer; the entry then holds the
/// number of that buffer.
const SHARED: u32 = 1 << 31;

/// A value to insert into a fragment.
pub enum MemoryValue<'a> {
    /// Bytes to be copied.
    Borrowed(&'a [u8]),
    /// A buffer that is kept without copying if the value is large. The allocation that
    /// it is a slice of stays in memory with it.
    Shared(Bytes),
}

impl MemoryValue<'_> {
    fn as_slice(&self) -> &[u8] {
        match self {
            MemoryValue::Borrowed(value) => value,
            MemoryValue::Shared(value) => value,
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            MemoryValue::Borrowed(value) => Bytes::copy_from_slice(value),
            MemoryValue::Shared(value) => value,
        }
    }
}

impl<'a> From<&'a [u8]> for MemoryValue<'a> {
    fn from(value: &'a [u8]) -> Self {
        MemoryValue::Borrowed(value)
    }
}

impl From<Bytes> for MemoryValue<'_> {
    fn from(value: Bytes) -> Self {
        MemoryValue::Shared(value)
    }
}

/// The location of an entry: the chunk number in the upper bits, the offset in units of
/// `ALIGNMENT` below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryAddress(u32);

impl EntryAddress {
    fn new(chunk: usize, offset: usize) -> EntryAddress {
        debug_assert!(offset.is_multiple_of(ALIGNMENT) && offset < CHUNK_BYTES);
        EntryAddress((chunk as u32) << OFFSET_BITS | (offset / ALIGNMENT) as u32)
    }

    fn chunk(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize * ALIGNMENT
    }
}

/// An entry as stored in the arena.
pub struct ArenaEntry<'a> {
    /// The key, followed by the value unless the value is shared.
    pub bytes: &'a [u8],
    pub key_len: usize,
    pub shared: Option<&'a Bytes>,
}

pub struct Arena {
    /// The source of spare chunks.
    budget: Arc<MemoryBudget>,
    chunks: Vec<Vec<u8>>,
    /// The chunk that receives small entries.
    current: usize,
    shared: Vec<Bytes>,
    /// The size of all chunks and shared buffers.
    bytes: usize,
}

impl Arena {
    pub fn new(budget: &Arc<MemoryBudget>) -> Arena {
        Arena {
            budget: Arc::clone(budget),
            chunks: Vec::new(),
            current: 0,
            shared: Vec::new(),
            bytes: 0,
        }
    }

    /// Returns the bytes held, including unfilled chunks.
    pub fn bytes(&self) -> usize {
        self.bytes
            + self.chunks.capacity() * size_of::<Vec<u8>>()
            + self.shared.capacity() * size_of::<Bytes>()
    }

    pub fn push(&mut self, key: &[u8], value: MemoryValue<'_>) -> EntryAddress {
        if value.as_slice().len() < SHARED_VALUE_BYTES_MIN {
            let value = value.as_slice();
            return self.push_entry(key, value.len() as u32, value);
        }
        let number = u32::try_from(self.shared.len()).expect("fewer than 2^31 shared values");
        let value = value.into_bytes();
        self.bytes += value.len();
        self.shared.push(value);
        self.push_entry(key, SHARED, &number.to_le_bytes())
    }

    fn push_entry(&mut self, key: &[u8], value_len: u32, value: &[u8]) -> EntryAddress {
        let key_len = u32::try_from(key.len()).expect("a key is shorter than 4 GiB");
        let need = HEADER_BYTES + key.len() + value.len();
        let at = self.chunk_with_space(need);
        let chunk = &mut self.chunks[at];
        let offset = chunk.len().next_multiple_of(ALIGNMENT);
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&key_len.to_le_bytes());
        header[4..].copy_from_slice(&value_len.to_le_bytes());
        chunk.resize(offset, 0);
        chunk.extend_from_slice(&header);
        chunk.extend_from_slice(key);
        chunk.extend_from_slice(value);
        EntryAddress::new(at, offset)
    }

    /// Returns a chunk that can take `need` more bytes without reallocation.
    fn chunk_with_space(&mut self, need: usize) -> usize {
        if need > ENTRY_BYTES_MAX {
            return self.add_chunk(need);
        }
        let mut capacity = CHUNK_BYTES_MIN;
        if let Some(chunk) = self.chunks.get(self.current) {
            if chunk.len().next_multiple_of(ALIGNMENT) + need <= chunk.capacity() {
                return self.current;
            }
            capacity = (chunk.capacity() * 2).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES);
        }
        self.current = self.add_chunk(capacity.max(need));
        self.current
    }

    fn add_chunk(&mut self, capacity: usize) -> usize {
        // Reached at 32 GiB; a fragment is sealed long before.
        assert!(self.chunks.len() < CHUNKS_MAX, "a memory fragment is limited to 32 GiB");
        let spare = if capacity == CHUNK_BYTES { self.budget.take_spare_chunk() } else { None };
        let chunk = spare.unwrap_or_else(|| Vec::with_capacity(capacity));
        self.bytes += chunk.capacity();
        self.chunks.push(chunk);
        self.chunks.len() - 1
    }

    pub fn key(&self, address: EntryAddress) -> &[u8] {
        let (key_len, _, rest) = self.header(address);
        &rest[..key_len]
    }

    pub fn entry(&self, address: EntryAddress) -> ArenaEntry<'_> {
        let (key_len, value_len, rest) = self.header(address);
        if value_len & SHARED == 0 {
            let bytes = &rest[..key_len + value_len as usize];
            return ArenaEntry { bytes, key_len, shared: None };
        }
        let number = u32_at(rest, key_len);
        ArenaEntry { bytes: &rest[..key_len], key_len, shared: Some(&self.shared[number as usize]) }
    }

    fn header(&self, address: EntryAddress) -> (usize, u32, &[u8]) {
        let (header, rest) =
            self.chunks[address.chunk()][address.offset()..].split_at(HEADER_BYTES);
        (u32_at(header, 0) as usize, u32_at(header, 4), rest)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            self.budget.give_spare_chunk(chunk);
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes[at..].first_chunk().expect("an entry is complete");
    u32::from_le_bytes(*bytes)
}

#[cfg(test)]
impl Arena {
    /// Recomputes `bytes` from scratch.
    pub fn recount(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum::<usize>()
            + self.shared.iter().map(Bytes::len).sum::<usize>()
            + self.chunks.capacity() * size_of::<Vec<u8>>()
            + self.shared.capacity() * size_of::<Bytes>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value<'a>(entry: &'a ArenaEntry<'a>) -> &'a [u8] {
        entry.shared.map_or(&entry.bytes[entry.key_len..], |shared| shared)
    }

    proptest! {
        #[test]
        fn entries_of_any_size_come_back_as_they_were(
            sizes in prop::collection::vec(
                (prop_oneof![4 => 0usize..60, 1 => 0usize..600_000], 0usize..9_000),
                0..60,
            ),
        ) {
            let mut arena = Arena::new(&MemoryBudget::new(1 << 30));
            let cells: Vec<_> = (0u8..)
                .zip(sizes)
                .map(|(fill, (key, value))| (vec![fill; key], vec![!fill; value]))
                .collect();
            let addresses: Vec<_> = cells
                .iter()
                .map(|(key, value)| arena.push(key, value.as_slice().into()))
                .collect();
            for ((key, expected), address) in cells.iter().zip(addresses) {
                let entry = arena.entry(address);
                prop_assert_eq!(arena.key(address), &key[..]);
                prop_assert_eq!(&entry.bytes[..entry.key_len], &key[..]);
                prop_assert_eq!(value(&entry), &expected[..]);
            }
            prop_assert_eq!(arena.bytes(), arena.recount());
        }
    }

    #[test]
    fn a_large_shared_value_is_not_copied() {
        let mut arena = Arena::new(&MemoryBudget::new(1 << 30));
        let large = Bytes::from(vec![7; SHARED_VALUE_BYTES_MIN]);
        let address = arena.push(b"key", large.clone().into());
        assert_eq!(arena.entry(address).shared.unwrap().as_ptr(), large.as_ptr());
    }

    #[test]
    fn a_fragment_with_one_cell_takes_little() {
        let mut arena = Arena::new(&MemoryBudget::new(1 << 30));
        arena.push(b"key", b"value".as_slice().into());
        assert!(arena.bytes() < 5 << 10);
    }
}
