//! The stored form of a key's value: etcd's KeyValue message in wire format,
//! without the key. So a response or event consists of the key's field and a
//! copy of the stored bytes, and nothing is encoded twice.

/// Fields of a tail, in their order; zero fields are omitted.
const CREATE_REVISION: u8 = 2 << 3;
const MOD_REVISION: u8 = 3 << 3;
const VERSION: u8 = 4 << 3;
const VALUE: u8 = 5 << 3 | 2;
const LEASE: u8 = 6 << 3;

/// A key and its stored tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyView<'a> {
    pub key: &'a [u8],
    pub tail: &'a [u8],
}

/// A decoded tail. Invalid bytes decode as zeros: stored bytes have checksums,
/// so this is only for robustness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail<'a> {
    pub create_revision: i64,
    pub mod_revision: i64,
    pub version: i64,
    pub value: &'a [u8],
    pub lease: i64,
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
        1 + varint_len(self.key.len() as u64) + self.key.len() + self.tail.len()
    }

    /// Appends the whole message in wire format.
    pub fn push_wire(&self, out: &mut Vec<u8>) {
        out.push(1 << 3 | 2);
        push_varint(out, self.key.len() as u64);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.tail);
    }
}

impl<'a> Tail<'a> {
    pub fn parse(bytes: &'a [u8]) -> Tail<'a> {
        let mut tail = Tail::default();
        let mut rest = bytes;
        while let Some((&tag, after)) = rest.split_first() {
            let Some((value, after)) = varint(after) else { break };
            rest = after;
            match tag {
                CREATE_REVISION => tail.create_revision = value as i64,
                MOD_REVISION => tail.mod_revision = value as i64,
                VERSION => tail.version = value as i64,
                LEASE => tail.lease = value as i64,
                VALUE => {
                    let Some((value, after)) =
                        usize::try_from(value).ok().and_then(|size| after.split_at_checked(size))
                    else {
                        break;
                    };
                    tail.value = value;
                    rest = after;
                }
                _ => break,
            }
        }
        tail
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.value.len() + 36);
        self.push(&mut out);
        out
    }

    pub fn push(&self, out: &mut Vec<u8>) {
        push_field(out, CREATE_REVISION, self.create_revision);
        push_field(out, MOD_REVISION, self.mod_revision);
        push_field(out, VERSION, self.version);
        if !self.value.is_empty() {
            out.push(VALUE);
            push_varint(out, self.value.len() as u64);
            out.extend_from_slice(self.value);
        }
        push_field(out, LEASE, self.lease);
    }

    /// Returns the tail of a deletion event, which has only the revision.
    pub fn erased(mod_revision: i64) -> Tail<'static> {
        Tail { mod_revision, ..Tail::default() }
    }
}

fn push_field(out: &mut Vec<u8>, tag: u8, value: i64) {
    if value != 0 {
        out.push(tag);
        push_varint(out, value as u64);
    }
}

pub fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Decodes a varint. Returns it and the remaining bytes.
pub fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (at, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_comes_back_as_it_was() {
        let tails = [
            Tail { create_revision: 2, mod_revision: 300, version: 7, value: b"v", lease: -9 },
            Tail { create_revision: i64::MAX, mod_revision: 1, version: 1, value: b"", lease: 0 },
            Tail::erased(70_000),
        ];
        for tail in tails {
            assert_eq!(Tail::parse(&tail.encode()), tail);
        }
    }

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

    #[test]
    fn a_broken_tail_is_read_without_harm() {
        for bytes in [
            &b"\x2a\xff\xff\xff\xff\x0f"[..],
            b"\x10",
            b"\xff\x01",
            b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(Tail::parse(bytes).value, b"");
        }
    }

    #[test]
    fn lengths_of_numbers_are_known_beforehand() {
        for value in [0, 1, 127, 128, 16383, 16384, u64::MAX] {
            let mut out = Vec::new();
            push_varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value));
            assert_eq!(varint(&out), Some((value, &[][..])));
        }
    }
}
