//! The wire encoding of the fields of `CellChunk`: tags, lengths and writers.
//! Every cell of a response goes through these functions.

use bytes::BytesMut;
use prost::encoding::encoded_len_varint;

/// Field tags of `CellChunk`, in wire form.
pub mod tag {
    pub const ROW_KEY: u8 = 1 << 3 | 2;
    pub const FAMILY: u8 = 2 << 3 | 2;
    pub const QUALIFIER: u8 = 3 << 3 | 2;
    pub const TIMESTAMP: u8 = 4 << 3;
    pub const LABEL: u8 = 5 << 3 | 2;
    pub const VALUE: u8 = 6 << 3 | 2;
    pub const VALUE_SIZE: u8 = 7 << 3;
    pub const COMMIT_ROW: u8 = 9 << 3;
}

/// The only field of a wrapper message, and of the chunks of a response.
pub const FIELD_1: u8 = 1 << 3 | 2;
/// The field that commits a row.
pub const COMMIT: [u8; 2] = [tag::COMMIT_ROW, 1];

/// The most bytes that `Header::put` writes behind the end of the message before it
/// truncates them; to be reserved with the last header of a chunk.
pub const HEADER_BYTES: usize = size_of::<u128>();

/// Tags and numbers that stand between two payloads, at most [`HEADER_BYTES`] of them.
/// Collected in a register and written with one store of a fixed size: a call per byte
/// costs more than the rest of a small cell.
#[derive(Clone, Copy)]
pub struct Header {
    bytes: u128,
    bits: u32,
}

impl Header {
    #[inline(always)]
    pub fn tag(tag: u8) -> Header {
        Header { bytes: u128::from(tag), bits: 8 }
    }

    #[inline(always)]
    pub fn byte(self, byte: u8) -> Header {
        debug_assert!(self.bits < u128::BITS);
        Header { bytes: self.bytes | u128::from(byte) << self.bits, bits: self.bits + 8 }
    }

    #[inline(always)]
    pub fn varint(mut self, mut number: u64) -> Header {
        while number >= 0x80 {
            self = self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8)
    }

    #[inline(always)]
    pub fn put(self, out: &mut BytesMut) {
        let end = out.len() + self.bits as usize / 8;
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.truncate(end);
    }
}

#[inline]
pub fn field_len(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}

#[inline]
pub fn put_field(out: &mut BytesMut, tag: u8, bytes: &[u8]) {
    Header::tag(tag).varint(bytes.len() as u64).put(out);
    out.extend_from_slice(bytes);
}

/// The length of a wrapper message; an empty one omits its field.
#[inline]
pub fn wrapper_len(len: usize) -> usize {
    field_len(if len == 0 { 0 } else { field_len(len) })
}

#[inline]
pub fn put_wrapper(out: &mut BytesMut, tag: u8, bytes: &[u8]) {
    let header = Header::tag(tag);
    if bytes.is_empty() {
        return header.byte(0).put(out);
    }
    let header = header.varint(field_len(bytes.len()) as u64);
    header.byte(FIELD_1).varint(bytes.len() as u64).put(out);
    out.extend_from_slice(bytes);
}

#[inline]
pub fn value_len(len: usize, total: usize) -> usize {
    let value = if len == 0 { 0 } else { field_len(len) };
    let size = if total == 0 { 0 } else { 1 + encoded_len_varint(total as u64) };
    value + size
}

#[inline]
pub fn put_value(out: &mut BytesMut, value: &[u8], total: usize) {
    if !value.is_empty() {
        put_field(out, tag::VALUE, value);
    }
    if total != 0 {
        Header::tag(tag::VALUE_SIZE).varint(total as u64).put(out);
    }
}
