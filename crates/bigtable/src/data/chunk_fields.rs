//! The wire encoding of the fields of `CellChunk`: tags, lengths and writers.
//! Every cell of a response goes through these functions.

use bytes::{BufMut, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};

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

#[inline]
pub fn field_len(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
}

#[inline]
pub fn put_field(out: &mut BytesMut, tag: u8, bytes: &[u8]) {
    out.put_u8(tag);
    encode_varint(bytes.len() as u64, out);
    out.put_slice(bytes);
}

/// The length of a wrapper message; an empty one omits its field.
#[inline]
pub fn wrapper_len(len: usize) -> usize {
    field_len(if len == 0 { 0 } else { field_len(len) })
}

#[inline]
pub fn put_wrapper(out: &mut BytesMut, tag: u8, bytes: &[u8]) {
    out.put_u8(tag);
    if bytes.is_empty() {
        out.put_u8(0);
        return;
    }
    encode_varint(field_len(bytes.len()) as u64, out);
    put_field(out, FIELD_1, bytes);
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
        out.put_u8(tag::VALUE_SIZE);
        encode_varint(total as u64, out);
    }
}
