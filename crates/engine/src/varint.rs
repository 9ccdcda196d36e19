//! Variable-length integers: seven bits per byte, lowest first, with the high bit set
//! if more bytes follow. Used by commits, block keys and index partitions.

/// The maximum encoded length of a `u64`.
const VARINT_BYTES_MAX: usize = 10;

pub fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a signed number; small magnitudes stay short.
pub fn push_signed(out: &mut Vec<u8>, number: i64) {
    push_varint(out, ((number << 1) ^ (number >> 63)) as u64);
}

/// Reads forward through untrusted bytes; every read checks the length.
pub struct ByteReader<'a> {
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    pub fn new(bytes: &'a [u8]) -> ByteReader<'a> {
        ByteReader { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn varint(&mut self) -> Option<u64> {
        let (number, len) = varint_at(self.rest, 0)?;
        self.rest = &self.rest[len..];
        Some(number)
    }

    pub fn signed(&mut self) -> Option<i64> {
        let zigzag = self.varint()?;
        Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    /// Reads a varint that must fit in 32 bits.
    pub fn varint_u32(&mut self) -> Option<u32> {
        self.varint()?.try_into().ok()
    }
}

/// Returns the number at `at` and the offset after it.
#[inline(always)]
pub fn varint_at(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *bytes.get(at)?;
    if first < 0x80 {
        return Some((u64::from(first), at + 1));
    }
    long_varint_at(bytes, at)
}

#[cold]
fn long_varint_at(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0u64;
    for i in 0..VARINT_BYTES_MAX {
        let byte = *bytes.get(at + i)?;
        let bits = u64::from(byte & 0x7F);
        if i == VARINT_BYTES_MAX - 1 && bits > 1 {
            return None;
        }
        number |= bits << (7 * i);
        if byte < 0x80 {
            return Some((number, at + i + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_read_back_as_written(
            numbers in prop::collection::vec((any::<u64>(), 0u32..64, any::<i64>()), 0..20),
        ) {
            let mut bytes = Vec::new();
            for &(number, shift, signed) in &numbers {
                push_varint(&mut bytes, number >> shift);
                push_signed(&mut bytes, signed >> shift);
            }
            let mut read = ByteReader::new(&bytes);
            for &(number, shift, signed) in &numbers {
                prop_assert_eq!(read.varint(), Some(number >> shift));
                prop_assert_eq!(read.signed(), Some(signed >> shift));
            }
            prop_assert!(read.is_empty());
            prop_assert_eq!(read.varint(), None);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            let mut read = ByteReader::new(&bytes);
            while read.varint().is_some() {}
            read.take(usize::MAX);
        }
    }
}
