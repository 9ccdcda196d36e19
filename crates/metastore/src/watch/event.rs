//! A change of one key, encoded once for all its watchers.

use bytes::Bytes;
use prost::encoding::{decode_varint, encode_varint};

use crate::key::{KeyView, Tail};
use crate::state::{Change, ChangeKind, ChangedVersions};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Put,
    Delete,
    /// The lock of a key was granted, released or expired. Not sent to etcd's
    /// watchers; `wire` is the key's KeyLockInfo.
    Lock,
}

/// A change. Cloning it copies no bytes.
#[derive(Clone, Debug)]
pub struct Event {
    pub revision: i64,
    pub kind: EventKind,
    /// Whether it is a put of a key that did not exist.
    pub created: bool,
    /// The bounds of the key in `wire`.
    key: (u32, u32),
    /// The length of the prefix of `wire` for watchers without `prev_kv`.
    bare: u32,
    /// etcd's Event message: type, kv, prev_kv.
    wire: Bytes,
}

const KIND: u8 = 1 << 3;
const KV: u8 = 2 << 3 | 2;
const PREV_KV: u8 = 3 << 3 | 2;

impl Event {
    /// Creates the event of a put or delete. `prev` is the key's previous tail.
    pub fn new(revision: i64, kind: EventKind, kv: KeyView<'_>, prev: Option<&[u8]>) -> Event {
        let prev = prev.map(|tail| KeyView { key: kv.key, tail });
        let space = |view: &KeyView<'_>| view.wire_len() + 6;
        let mut wire = Vec::with_capacity(2 + space(&kv) + prev.as_ref().map_or(0, space));
        if kind == EventKind::Delete {
            wire.extend_from_slice(&[KIND, 1]);
        }
        push_message(&mut wire, KV, kv);
        let bare = wire.len();
        let start = bare - kv.tail.len() - kv.key.len();
        let key = (offset(start), offset(start + kv.key.len()));
        if let Some(prev) = prev {
            push_message(&mut wire, PREV_KV, prev);
        }
        let created = kind == EventKind::Put && {
            let fields = kv.fields();
            fields.create_revision == fields.mod_revision
        };
        Event { revision, kind, created, key, bare: offset(bare), wire: wire.into() }
    }

    /// Creates the event of a changed lock; `info` is its new KeyLockInfo.
    pub fn lock(revision: i64, key: &[u8], info: &[u8]) -> Event {
        let wire: Bytes = [key, info].concat().into();
        let key = (0, offset(key.len()));
        let bare = offset(wire.len());
        Event { revision, kind: EventKind::Lock, created: false, key, bare, wire }
    }

    /// Creates the event of a change that is read from history.
    pub fn of_change(change: &Change, versions: &ChangedVersions) -> Event {
        let (revision, key, prev) = (change.revision, &change.key[..], versions.prev.as_deref());
        match change.kind {
            ChangeKind::Lock => Event::lock(revision, key, &versions.new),
            ChangeKind::Delete => {
                let tail = Tail::erased(revision).encode();
                Event::new(revision, EventKind::Delete, KeyView { key, tail: &tail }, prev)
            }
            ChangeKind::Create | ChangeKind::Put => {
                let tail = change.overwritten.as_deref().unwrap_or(&versions.new);
                Event::new(revision, EventKind::Put, KeyView { key, tail }, prev)
            }
        }
    }

    pub fn key(&self) -> &[u8] {
        &self.wire[self.key.0 as usize..self.key.1 as usize]
    }

    /// Returns etcd's Event message, with or without `prev_kv`. Not for lock
    /// events.
    pub fn wire(&self, prev_kv: bool) -> &[u8] {
        if prev_kv { &self.wire } else { &self.wire[..self.bare as usize] }
    }

    /// Returns the stored tail of the new value; for a deletion, its revision
    /// alone.
    pub fn tail(&self) -> &[u8] {
        &self.wire[self.key.1 as usize..self.bare as usize]
    }

    /// Returns the previous value of the key, if it had one.
    pub fn prev_value(&self) -> Option<Vec<u8>> {
        // A tag and a length stand before the message, and before its key.
        let mut rest = self.wire.get(self.bare as usize + 1..)?;
        decode_varint(&mut rest).ok()?;
        rest = rest.get(1..)?;
        let key_bytes = decode_varint(&mut rest).ok()?;
        let tail = rest.get(usize::try_from(key_bytes).ok()?..)?;
        Some(Tail::parse(tail).value.to_vec())
    }

    /// Returns the KeyLockInfo of a lock event.
    pub fn lock_info(&self) -> &[u8] {
        &self.wire[self.key.1 as usize..]
    }

    /// Returns the approximate memory use of the event.
    pub fn bytes(&self) -> usize {
        self.wire.len() + size_of::<Event>()
    }
}

fn push_message(out: &mut Vec<u8>, tag: u8, view: KeyView<'_>) {
    out.push(tag);
    encode_varint(view.wire_len() as u64, out);
    view.push_wire(out);
}

fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("a request is far smaller than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_encoded_once_for_watchers_with_and_without_prev_kv() {
        let new = Tail { create_revision: 2, mod_revision: 3, version: 2, value: b"n", lease: 0 };
        let old = Tail { create_revision: 2, mod_revision: 2, version: 1, value: b"o", lease: 0 };
        let (new, old) = (new.encode(), old.encode());
        let kv = KeyView { key: b"key", tail: &new };
        let event = Event::new(3, EventKind::Put, kv, Some(&old));
        assert_eq!(event.key(), b"key");
        assert_eq!(event.tail(), new);
        assert!(!event.created);
        let mut kv_wire = Vec::new();
        kv.push_wire(&mut kv_wire);
        let bare = [&[KV, kv_wire.len() as u8][..], &kv_wire].concat();
        assert_eq!(event.wire(false), bare);
        let mut prev_wire = Vec::new();
        KeyView { key: b"key", tail: &old }.push_wire(&mut prev_wire);
        let whole = [&bare[..], &[PREV_KV, prev_wire.len() as u8], &prev_wire].concat();
        assert_eq!(event.wire(true), whole);
    }

    #[test]
    fn a_deletion_tells_its_kind_and_revision_only() {
        let tail = Tail::erased(9).encode();
        let event = Event::new(9, EventKind::Delete, KeyView { key: b"k", tail: &tail }, None);
        assert_eq!(event.wire(true), b"\x08\x01\x12\x05\x0a\x01k\x18\x09");
        assert_eq!(event.key(), b"k");
    }
}
