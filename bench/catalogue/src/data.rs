//! The benchmark's records: pseudo-random keys of 16 bytes, values half random and half
//! zero.

use bytes::Bytes;

pub const VALUE_BYTES: usize = 100;
/// Large enough to cache all records.
pub const CACHE_BYTES: u64 = 4 << 30;

pub type Key = [u8; 16];

pub fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

pub fn key(number: u64) -> Key {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(number).to_be_bytes());
    key[8..].copy_from_slice(&mix(!number).to_be_bytes());
    key
}

pub fn value(number: u64) -> Bytes {
    let mut value = vec![0; VALUE_BYTES];
    for (at, chunk) in value[..VALUE_BYTES / 2].chunks_mut(8).enumerate() {
        let bytes = mix(number ^ (at as u64) << 40).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
    value.into()
}

/// Reads a value, so that it has to be in memory.
pub fn touch(value: &[u8]) {
    std::hint::black_box(value.first().zip(value.last()));
}
