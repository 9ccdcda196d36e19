//! The stored form of a key's value: etcd's KeyValue message in wire format,
//! without the key. So a response or event consists of the key's field and a
//! copy of the stored bytes, and nothing is encoded twice.

use prost::encoding::{decode_varint, encode_varint};

/// Fields of a tail, in their order; zero fields are omitted.
const CREATE_REVISION: u8 = 2 << 3;
const MOD_REVISION: u8 = 3 << 3;
const VERSION: u8 = 4 << 3;
const VALUE: u8 = 5 << 3 | 2;
const LEASE: u8 = 6 << 3;

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

impl<'a> Tail<'a> {
    pub fn parse(bytes: &'a [u8]) -> Tail<'a> {
        let mut tail = Tail::default();
        let mut rest = bytes;
        while let Some((&tag, after)) = rest.split_first() {
            rest = after;
            let Ok(value) = decode_varint(&mut rest) else { break };
            match tag {
                CREATE_REVISION => tail.create_revision = value as i64,
                MOD_REVISION => tail.mod_revision = value as i64,
                VERSION => tail.version = value as i64,
                LEASE => tail.lease = value as i64,
                VALUE => {
                    let Some((value, after)) =
                        usize::try_from(value).ok().and_then(|size| rest.split_at_checked(size))
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
            encode_varint(self.value.len() as u64, out);
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
        encode_varint(value as u64, out);
    }
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
}
