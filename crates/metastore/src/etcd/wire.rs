//! Writes protobuf messages by hand, with space for the gRPC frame before each.
//! Bytes that are stored in wire format are copied unchanged.

use bytes::{BufMut, Bytes, BytesMut};

/// The size of the frame before a gRPC message: a flag and the length.
pub const FRAME_BYTES: usize = 5;

/// Returns the tag of a field: its number and wire type.
pub const fn varint_tag(number: u8) -> u8 {
    assert!(number < 16, "the tag is one byte");
    number << 3
}

pub const fn bytes_tag(number: u8) -> u8 {
    assert!(number < 16, "the tag is one byte");
    number << 3 | 2
}

pub fn varint_len(value: u64) -> usize {
    // Seven bits per byte; zero takes one byte.
    ((64 - (value | 1).leading_zeros() as usize) * 9 + 64) / 64
}

pub fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Returns the size of a field with this many bytes, including tag and length.
pub fn field_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// Writes the fields of a message. Default values are omitted, as in proto3.
pub trait Fields {
    fn uint(&mut self, number: u8, value: u64);
    fn int(&mut self, number: u8, value: i64);
    fn flag(&mut self, number: u8, value: bool);
    fn text(&mut self, number: u8, value: &[u8]);
    /// Writes a message in wire format, even if it is empty.
    fn message(&mut self, number: u8, value: &[u8]);
    /// Writes a nested message in place.
    fn nested(&mut self, number: u8, write: impl FnOnce(&mut Self));
    /// Writes a `KeyValue`: its key, and the other fields as they are stored.
    fn key_value(&mut self, number: u8, key: &[u8], tail: &[u8]);
}

impl Fields for BytesMut {
    fn uint(&mut self, number: u8, value: u64) {
        if value != 0 {
            self.put_u8(varint_tag(number));
            put_varint(self, value);
        }
    }

    fn int(&mut self, number: u8, value: i64) {
        self.uint(number, value as u64);
    }

    fn flag(&mut self, number: u8, value: bool) {
        self.uint(number, value.into());
    }

    fn text(&mut self, number: u8, value: &[u8]) {
        if !value.is_empty() {
            self.message(number, value);
        }
    }

    fn message(&mut self, number: u8, value: &[u8]) {
        self.reserve(field_len(value.len()));
        self.put_u8(bytes_tag(number));
        put_varint(self, value.len() as u64);
        self.put_slice(value);
    }

    fn nested(&mut self, number: u8, write: impl FnOnce(&mut BytesMut)) {
        self.put_u8(bytes_tag(number));
        // Reserve one byte for the length, which is enough below 128 bytes.
        let length = self.len();
        self.put_u8(0);
        write(self);
        let len = self.len() - length - 1;
        let wider = varint_len(len as u64) - 1;
        if wider > 0 {
            self.put_bytes(0, wider);
            self.copy_within(length + 1..length + 1 + len, length + 1 + wider);
        }
        let mut value = len as u64;
        for byte in &mut self[length..length + wider] {
            *byte = value as u8 | 0x80;
            value >>= 7;
        }
        self[length + wider] = value as u8;
    }

    fn key_value(&mut self, number: u8, key: &[u8], tail: &[u8]) {
        let len = field_len(key.len()) + tail.len();
        self.reserve(field_len(len));
        self.put_u8(bytes_tag(number));
        put_varint(self, len as u64);
        self.put_u8(bytes_tag(1));
        put_varint(self, key.len() as u64);
        self.put_slice(key);
        self.put_slice(tail);
    }
}

/// Returns an empty message after space for its frame.
pub fn begin(capacity: usize) -> BytesMut {
    let mut message = BytesMut::with_capacity(FRAME_BYTES + capacity);
    message.put_bytes(0, FRAME_BYTES);
    message
}

/// Fills in the frame of a message from `begin`.
pub fn end(mut message: BytesMut) -> Bytes {
    let len = message.len() - FRAME_BYTES;
    set_len(&mut message, len);
    message.freeze()
}

/// Writes the length of a message into its frame.
pub fn set_len(framed: &mut [u8], len: usize) {
    let len = u32::try_from(len).expect("callers bound messages far below 4 GiB");
    framed[1..FRAME_BYTES].copy_from_slice(&len.to_be_bytes());
}

/// Encodes a message with prost and frames it.
pub fn framed(message: &impl prost::Message) -> Bytes {
    let mut out = begin(message.encoded_len());
    message.encode(&mut out).expect("a growing buffer has room");
    end(out)
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::etcd::proto::{KeyValue, PutResponse, ResponseHeader};

    #[test]
    fn the_length_of_a_varint_is_what_is_written() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut out = BytesMut::new();
                put_varint(&mut out, value);
                assert_eq!(varint_len(value), out.len(), "{value}");
            }
        }
    }

    #[test]
    fn messages_by_hand_are_those_of_prost() {
        let header =
            ResponseHeader { cluster_id: u64::MAX, member_id: 0, revision: -1, raft_term: 300 };
        let prev_kv = KeyValue {
            key: vec![b'k'; 200].into(),
            create_revision: 2,
            mod_revision: 3,
            version: 2,
            value: vec![b'v'; 70_000].into(),
            lease: 7,
        };
        let message = PutResponse { header: Some(header), prev_kv: Some(prev_kv.clone()) };
        let tail = KeyValue { key: Bytes::new(), ..prev_kv.clone() }.encode_to_vec();

        let mut inner = BytesMut::new();
        inner.uint(1, header.cluster_id);
        inner.uint(2, header.member_id);
        inner.int(3, header.revision);
        inner.uint(4, header.raft_term);
        let mut out = begin(0);
        out.message(1, &inner);
        out.key_value(2, &prev_kv.key, &tail);
        assert_eq!(end(out), framed(&message));
    }
}
