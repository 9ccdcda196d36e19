//! The bytes of the slab and of its index: see docs/objects.md.

use stele_engine::config::FileName;

use super::{PART_BYTES, PartKey};

/// The first block of the slab, and the space before the data of each slot.
pub const BLOCK_BYTES: u64 = 4096;
/// A slot: a block for its header, then the part.
pub const SLOT_BYTES: u64 = BLOCK_BYTES + PART_BYTES;
/// An encoded header.
pub const HEADER_BYTES: usize = 36;

const SLAB_MAGIC: &[u8; 8] = b"STELSLAB";
const SLOT_MAGIC: u32 = 0x746f_6c73;
const VERSION: u32 = 1;

/// Describes the contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub key: PartKey,
    pub length: u32,
    pub data_crc: u32,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&SLOT_MAGIC.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.key.name.incarnation.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.key.name.number.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.key.part.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.data_crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a header. `None` if the slot is empty or damaged.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let name = FileName { incarnation: long(bytes, 4), number: long(bytes, 12) };
        let key = PartKey { name, part: word(bytes, 20) };
        let header = Header { key, length: word(bytes, 24), data_crc: word(bytes, 28) };
        let intact =
            word(bytes, 0) == SLOT_MAGIC && word(bytes, 32) == crc32c::crc32c(&bytes[..32]);
        (intact && u64::from(header.length) <= PART_BYTES).then_some(header)
    }
}

/// Returns the first block of a slab that belongs to a cluster.
pub fn first_block(cluster: &str) -> Vec<u8> {
    let mut block = Vec::with_capacity(BLOCK_BYTES as usize);
    block.extend_from_slice(SLAB_MAGIC);
    block.extend_from_slice(&VERSION.to_le_bytes());
    block.extend_from_slice(&(PART_BYTES as u32).to_le_bytes());
    block.extend_from_slice(&(cluster.len() as u32).to_le_bytes());
    block.extend_from_slice(cluster.as_bytes());
    let crc = crc32c::crc32c(&block);
    block.extend_from_slice(&crc.to_le_bytes());
    block.resize(BLOCK_BYTES as usize, 0);
    block
}

fn word(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_any_changed_bit_is_not_a_header() {
        let name = FileName { incarnation: 3, number: 9 };
        let header = Header { key: PartKey { name, part: 2 }, length: 77, data_crc: 5 };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Some(header));
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&damaged), None, "bit {bit}");
        }
        assert_eq!(Header::decode(&[0; HEADER_BYTES]), None);
    }
}
