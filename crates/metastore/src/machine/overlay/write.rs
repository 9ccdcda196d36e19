//! Adds changes to the overlay: keys, locks and leases, with the events for
//! watchers.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::Overlay;
use crate::command::LEVEL_OF_HASHES;
use crate::key::{KeyView, Tail};
use crate::machine::parts::CHANGE_BYTES;
use crate::state::{Change, ChangeKind, KeyHash, KeyLockInfo, PrefixQuota, StoredLease, tables};
use crate::watch::{Event, EventKind};

/// The maximum size of an entry's events that are kept for watchers. Watchers
/// read the events of larger entries from history.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// A key before its deletion.
pub struct Previous<'t> {
    pub value_bytes: usize,
    pub lease: i64,
    /// The tail, which is needed only for an event.
    pub tail: Option<&'t Bytes>,
    pub hash: KeyHash,
}

impl Overlay<'_> {
    /// Writes a value. `prev` is the key's newest tail.
    pub fn put(&mut self, key: &Bytes, value: &[u8], lease: i64, prev: Option<&Bytes>) {
        let (revision, sub) = self.next_position();
        let old = prev.map(|tail| Tail::parse(tail));
        let tail = Tail {
            create_revision: old.map_or(revision, |old| old.create_revision),
            mod_revision: revision,
            version: old.map_or(1, |old| old.version.saturating_add(1)),
            value,
            lease,
        };
        let bytes = Bytes::from(tail.encode());
        let size = size_of_entry(key, value.len());
        self.watermarks.written_bytes += size;
        let growth = size - old.map_or(0, |old| size_of_entry(key, old.value.len()));
        self.watermarks.live_bytes += growth;
        self.count_in_quotas(key, i64::from(old.is_none()), growth);
        self.rehash(key, prev.map(|prev| &prev[..]), Some(&bytes));
        self.move_lease(key, old.map_or(0, |old| old.lease), lease);
        let kind = if old.is_some() { ChangeKind::Put } else { ChangeKind::Create };
        self.record(revision, sub, kind, key);
        if self.makes_events() {
            let view = KeyView { key, tail: &bytes };
            let prev = prev.map(|prev| &prev[..]);
            self.push_event(Event::new(revision, EventKind::Put, view, prev));
        }
        self.set(key, revision, Some(bytes), prev.is_some());
    }

    /// Restores a key from a snapshot without an event. Its revision is an
    /// earlier one.
    pub fn restore_key(&mut self, key: &Bytes, tail: &Bytes) {
        let kv = Tail::parse(tail);
        let size = size_of_entry(key, kv.value.len());
        self.watermarks.written_bytes += size;
        self.watermarks.live_bytes += size;
        self.count_in_quotas(key, 1, size);
        self.rehash(key, None, Some(tail));
        self.move_lease(key, 0, kv.lease);
        self.set(key, kv.mod_revision, Some(tail.clone()), false);
    }

    /// Deletes an existing key. `prev` is its newest tail.
    pub fn delete(&mut self, key: &Bytes, prev: &Bytes) {
        let old = Tail::parse(prev);
        let (value_bytes, lease) = (old.value.len(), old.lease);
        let hash = KeyHash::of(key, prev);
        self.delete_existing(key, Previous { value_bytes, lease, tail: Some(prev), hash });
    }

    /// Deletes an existing key. There is no event without its tail.
    pub fn delete_existing(&mut self, key: &Bytes, old: Previous<'_>) {
        let (revision, sub) = self.next_position();
        self.count_deletion(key, old.value_bytes, old.hash);
        self.move_lease(key, old.lease, 0);
        self.record(revision, sub, ChangeKind::Delete, key);
        match old.tail {
            Some(prev) if self.makes_events() => {
                let before = self.tail_before(key, revision, prev);
                let tail = Tail::erased(revision).encode();
                let view = KeyView { key, tail: &tail };
                self.push_event(Event::new(revision, EventKind::Delete, view, before.as_deref()));
            }
            Some(_) => {}
            None => self.drop_events(),
        }
        self.set(key, revision, None, true);
    }

    fn push_event(&mut self, event: Event) {
        let Some(events) = &mut self.events else { return };
        self.event_bytes += event.bytes();
        events.push(event);
        if self.event_bytes > EVENT_BYTES_MAX {
            self.events = None;
        }
    }

    /// Returns the revision that the next change will get.
    pub fn revision_of_change(&self) -> i64 {
        if self.sub.is_some() { self.watermarks.revision } else { self.watermarks.revision + 1 }
    }

    pub fn set_lock(&mut self, key: &Bytes, info: KeyLockInfo) {
        let (revision, sub) = self.next_position();
        self.record(revision, sub, ChangeKind::Lock, key);
        let bytes = info.encode_to_vec();
        self.staged_bytes += bytes.len() + CHANGE_BYTES;
        if self.makes_events() {
            self.push_event(Event::lock(revision, key, &bytes));
        }
        self.locked.insert(key.clone());
        let locks = &mut self.keys.entry(key.clone()).or_default().locks;
        locks.retain(|(at, ..)| *at != revision);
        locks.push((revision, info, bytes));
    }

    /// Stores a lease; `None` removes it.
    pub fn set_lease(&mut self, id: i64, lease: Option<StoredLease>) {
        self.leases.insert(id, lease);
    }

    pub fn set_lock_key(&mut self, session: i64, key: &[u8], there: bool) {
        self.lock_keys.insert(tables::owned_row(session, key), there);
    }

    pub fn drop_lease_row(&mut self, row: Vec<u8>) {
        self.lease_keys.insert(row, false);
    }

    pub fn count_deletion(&mut self, key: &[u8], value_bytes: usize, hash: KeyHash) {
        let size = size_of_entry(key, value_bytes);
        self.watermarks.written_bytes += size_of_entry(key, 0);
        self.watermarks.live_bytes -= size;
        self.count_in_quotas(key, -1, -size);
        if self.watermarks.level >= LEVEL_OF_HASHES {
            self.watermarks.buckets.remove(hash);
        }
    }

    /// Updates the hash of a key's bucket.
    fn rehash(&mut self, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) {
        if self.watermarks.level < LEVEL_OF_HASHES {
            return;
        }
        if let Some(old) = old {
            self.watermarks.buckets.remove(KeyHash::of(key, old));
        }
        if let Some(new) = new {
            self.watermarks.buckets.add(KeyHash::of(key, new));
        }
    }

    /// Adds to the usage of the quotas that a key counts in.
    fn count_in_quotas(&mut self, key: &[u8], keys: i64, bytes: i64) {
        if let Some(quotas) = &mut self.quotas
            && quotas.of(key).next().is_some()
        {
            Arc::make_mut(quotas).add(key, keys, bytes, &mut self.quota_rows);
        }
    }

    /// Sets the quota of a prefix with its present usage, or removes it.
    pub fn set_quota(&mut self, prefix: &Bytes, quota: Option<PrefixQuota>) {
        let quotas = Arc::make_mut(self.quotas.get_or_insert_default());
        match quota {
            Some(quota) => quotas.set(prefix.clone(), quota),
            None => quotas.remove(prefix),
        }
        self.quota_rows.insert(prefix.clone());
    }

    /// Continues at the position of a restored change. Returns whether it
    /// follows the last one.
    pub fn resume_at(&mut self, revision: i64, sub: u32) -> bool {
        let current = self.watermarks.revision;
        self.sub = sub.checked_sub(1);
        if sub == 0 { revision == current + 1 } else { revision == current }
    }

    /// Records a change of a lock without the lock itself, which is free.
    pub fn restore_lock_change(&mut self, key: &Bytes) {
        self.set_lock(key, KeyLockInfo::default());
    }

    /// Returns the revision of the next change and its number within that
    /// revision.
    pub fn next_position(&mut self) -> (i64, u32) {
        let sub = match self.sub {
            Some(sub) => sub + 1,
            None => {
                self.watermarks.revision += 1;
                0
            }
        };
        self.sub = Some(sub);
        (self.watermarks.revision, sub)
    }

    fn record(&mut self, revision: i64, sub: u32, kind: ChangeKind, key: &Bytes) {
        self.staged_bytes += key.len() + CHANGE_BYTES;
        let (key, user) = (key.clone(), self.user.clone());
        let change = Change { revision, sub, kind, key, overwritten: None, user };
        self.changes.push((change, self.watermarks.time_micros));
    }

    fn set(&mut self, key: &Bytes, revision: i64, tail: Option<Bytes>, lived: bool) {
        self.staged_bytes += key.len() + tail.as_ref().map_or(0, Bytes::len);
        let change = self.keys.entry(key.clone()).or_default();
        if change.versions.is_empty() {
            change.lives_in_base = lived;
        }
        let before = change.versions.pop_if(|(at, _)| *at == revision);
        change.versions.push((revision, tail));
        if let Some((_, Some(lost))) = before {
            self.keep_overwritten(key, revision, lost);
        }
    }

    /// Keeps the tail of a put that a later change of the same revision
    /// overwrites, because watchers still get its event.
    fn keep_overwritten(&mut self, key: &Bytes, revision: i64, lost: Bytes) {
        let of_revision = self.changes.iter_mut().rev().map(|(change, _)| change);
        let mut of_revision = of_revision.take_while(|change| change.revision == revision);
        let puts = [ChangeKind::Create, ChangeKind::Put];
        let put = of_revision.find(|change| change.key == *key && puts.contains(&change.kind));
        if let Some(put) = put {
            put.overwritten = Some(lost);
        }
    }

    fn move_lease(&mut self, key: &[u8], from: i64, to: i64) {
        if from != to {
            if from != 0 {
                self.lease_keys.insert(tables::owned_row(from, key), false);
            }
            if to != 0 {
                self.lease_keys.insert(tables::owned_row(to, key), true);
            }
        }
    }
}

/// Returns the size of a key and its value.
fn size_of_entry(key: &[u8], value_bytes: usize) -> i64 {
    i64::try_from(key.len() + value_bytes).unwrap_or(i64::MAX)
}
