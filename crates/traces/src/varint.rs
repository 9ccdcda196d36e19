//! Unsigned LEB128: seven bits per byte, lowest first. Used for digest ids and for
//! lengths in ordered param sets.

use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};

pub fn write(out: &mut Vec<u8>, number: u64) {
    encode_varint(number, out);
}

/// Writes a number in at least `bytes_min` bytes, padded with zeros.
pub fn write_padded(out: &mut Vec<u8>, mut number: u64, bytes_min: usize) {
    let until = out.len() + bytes_min;
    while number >= 0x80 || out.len() + 1 < until {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Returns the number at the start of `bytes` and the remaining bytes, or `None` if it
/// is truncated, longer than necessary, or too large.
pub fn read(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut rest = bytes;
    let number = decode_varint(&mut rest).ok()?;
    let shortest = bytes.len() - rest.len() == encoded_len_varint(number);
    shortest.then_some((number, rest))
}

/// Returns the number encoded by all of `bytes`, which may be padded with zeros.
pub fn whole(mut bytes: &[u8]) -> Option<u64> {
    let number = decode_varint(&mut bytes).ok()?;
    bytes.is_empty().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_decoded() {
        for shift in 0..64 {
            for number in [(1u64 << shift) - 1, 1 << shift, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                write(&mut bytes, number);
                assert_eq!(whole(&bytes), Some(number));
                assert_eq!(whole(&bytes[..bytes.len() - 1]), None);
            }
        }
        let mut bytes = Vec::new();
        write(&mut bytes, 300);
        assert_eq!(bytes, [0xac, 0x02]);
    }

    #[test]
    fn padded_numbers_have_one_width_and_are_decoded() {
        for number in [0, 1, 127, 128, 1 << 20, (1 << 28) - 1] {
            let mut bytes = Vec::new();
            write_padded(&mut bytes, number, 4);
            assert_eq!((bytes.len(), whole(&bytes)), (4, Some(number)));
        }
        let mut bytes = Vec::new();
        write_padded(&mut bytes, 1 << 28, 4);
        assert_eq!((bytes.len(), whole(&bytes)), (5, Some(1 << 28)));
    }

    #[test]
    fn overlong_encodings_in_a_list_are_rejected() {
        assert_eq!(read(&[0x80, 0x00]), None);
        assert_eq!(read(&[0xff; 11]), None);
        assert_eq!(whole(&[0xff; 11]), None);
        assert_eq!(whole(&[0x80; 10]), None);
        assert_eq!(whole(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), None);
        assert_eq!(whole(&[1, 1]), None);
        assert_eq!(whole(&[]), None);
    }
}
