//! A key with its stored tail, borrowed or owned.

use bytes::Bytes;
use prost::encoding::{encode_varint, encoded_len_varint};

use super::Tail;

/// The field of the key in etcd's KeyValue message.
const KEY: u8 = 1 << 3 | 2;

/// A key and its stored tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyView<'a> {
    pub key: &'a [u8],
    pub tail: &'a [u8],
}

impl<'a> KeyView<'a> {
    pub fn fields(&self) -> Tail<'a> {
        Tail::parse(self.tail)
    }

    pub fn create_revision(&self) -> i64 {
        self.fields().create_revision
    }

    pub fn mod_revision(&self) -> i64 {
        self.fields().mod_revision
    }

    pub fn version(&self) -> i64 {
        self.fields().version
    }

    pub fn value(&self) -> &'a [u8] {
        self.fields().value
    }

    pub fn lease(&self) -> i64 {
        self.fields().lease
    }

    /// Returns the length of the whole message on the wire, without its own
    /// tag.
    pub fn wire_len(&self) -> usize {
        1 + encoded_len_varint(self.key.len() as u64) + self.key.len() + self.tail.len()
    }

    /// Appends the whole message in wire format.
    pub fn push_wire(&self, out: &mut Vec<u8>) {
        out.push(KEY);
        encode_varint(self.key.len() as u64, out);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.tail);
    }

    /// Copies the key and its tail.
    pub fn to_kv(&self) -> Kv {
        Kv { key: Bytes::copy_from_slice(self.key), tail: Bytes::copy_from_slice(self.tail) }
    }
}

/// A key and its stored tail, which share memory with their clones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kv {
    pub key: Bytes,
    pub tail: Bytes,
}

impl Kv {
    pub fn view(&self) -> KeyView<'_> {
        KeyView { key: &self.key, tail: &self.tail }
    }

    /// Returns the bytes of the key and its tail.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.tail.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_is_protobuf() {
        let tail =
            Tail { create_revision: 2, mod_revision: 3, version: 2, value: b"val", lease: 0 };
        let bytes = tail.encode();
        let view = KeyView { key: b"k", tail: &bytes };
        let mut wire = Vec::new();
        view.push_wire(&mut wire);
        assert_eq!(wire, b"\x0a\x01k\x10\x02\x18\x03\x20\x02\x2a\x03val");
        assert_eq!(wire.len(), view.wire_len());
    }
}
