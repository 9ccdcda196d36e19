//! Writes protobuf messages by hand. Bytes that are stored in wire format are
//! copied unchanged.

use bytes::{BufMut, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};

/// Returns the tag of a varint field: its number and wire type.
const fn varint_tag(number: u8) -> u8 {
    assert!(number < 16, "the tag is one byte");
    number << 3
}

/// Returns the tag of a field of bytes or of a nested message.
const fn bytes_tag(number: u8) -> u8 {
    assert!(number < 16, "the tag is one byte");
    number << 3 | 2
}

/// Returns the size of a field with this many bytes, including tag and length.
pub fn field_len(len: usize) -> usize {
    1 + encoded_len_varint(len as u64) + len
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
            encode_varint(value, self);
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
        encode_varint(value.len() as u64, self);
        self.put_slice(value);
    }

    fn nested(&mut self, number: u8, write: impl FnOnce(&mut BytesMut)) {
        self.put_u8(bytes_tag(number));
        // Reserve one byte for the length, which is enough below 128 bytes.
        let length = self.len();
        self.put_u8(0);
        write(self);
        let len = self.len() - length - 1;
        let wider = encoded_len_varint(len as u64) - 1;
        if wider > 0 {
            self.put_bytes(0, wider);
            self.copy_within(length + 1..length + 1 + len, length + 1 + wider);
        }
        encode_varint(len as u64, &mut &mut self[length..=length + wider]);
    }

    fn key_value(&mut self, number: u8, key: &[u8], tail: &[u8]) {
        let len = field_len(key.len()) + tail.len();
        self.reserve(field_len(len));
        self.put_u8(bytes_tag(number));
        encode_varint(len as u64, self);
        self.put_u8(bytes_tag(1));
        encode_varint(key.len() as u64, self);
        self.put_slice(key);
        self.put_slice(tail);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message;

    use super::*;
    use crate::proto::etcd::{KeyValue, PutResponse, ResponseHeader};

    #[test]
    fn the_length_of_a_field_is_what_is_written() {
        for shift in 0..18 {
            for len in [1usize << shift, (1 << shift) - 1, (1 << shift) + 1] {
                let mut out = BytesMut::new();
                out.message(1, &vec![7; len]);
                assert_eq!(field_len(len), out.len(), "{len}");
                let mut nested = BytesMut::new();
                nested.nested(1, |out| out.put_bytes(7, len));
                assert_eq!(nested, out, "{len}");
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
        let mut out = BytesMut::new();
        out.message(1, &inner);
        out.key_value(2, &prev_kv.key, &tail);
        assert_eq!(out, message.encode_to_vec());
    }
}
