//! The changes of one log entry while it is being applied: the view that later
//! proposals of the entry have of them (`view`), and the engine commit that
//! they become.

mod view;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message;
use stele_engine::{Commit, CommitBuilder, ScanSpec};
pub use view::{bounds, owned};

use super::parts::CHANGE_BYTES;
use crate::command::Alarm;
use crate::error::Result;
use crate::state::{
    Change, ChangeKind, KeyLockInfo, KeyView, LOCK, Numbers, Sample, Staged, State, Tail, VALUE,
    changes, tables, value_spec,
};
use crate::watch::{Event, EventKind};

/// The maximum size of an entry's events that are kept for watchers. Watchers
/// read the events of larger entries from history.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// Commits a part of an entry.
pub type CommitPart<'a> = &'a dyn Fn(&Commit) -> Result<()>;

/// The changes of an entry so far.
pub struct Batch<'a> {
    pub state: &'a State,
    /// The revision at which the stored state is read; later changes of the
    /// batch are in `keys`. Rises when a part of the entry is committed.
    base: i64,
    /// Reads a value as of `base`.
    at_base: ScanSpec,
    pub numbers: Numbers,
    keys: BTreeMap<Bytes, KeyChange>,
    changes: Vec<(Change, i64)>,
    /// Set once the current proposal has changed something.
    sub: Option<u32>,
    /// `None` when there are no watchers, or when the events are too large to
    /// keep.
    events: Option<Vec<Event>>,
    event_bytes: usize,
    /// The approximate size of `keys` and `changes`.
    staged_bytes: usize,
    /// What the committed parts of the entry add to the counts, and the keys
    /// that they created.
    counts: Staged,
    created: Vec<Bytes>,
    commit_part: CommitPart<'a>,
    proposals: usize,
    /// Rows of `lease_keys` and `lock_keys`: true adds the row, false removes
    /// it.
    lease_keys: BTreeMap<Vec<u8>, bool>,
    lock_keys: BTreeMap<Vec<u8>, bool>,
    /// Keys whose locks changed.
    locked: BTreeSet<Bytes>,
    /// TTLs of leases; `None` removes the lease.
    leases: BTreeMap<i64, Option<i64>>,
    pub sample: Option<Sample>,
    pub alarms: Option<Vec<(u64, Alarm)>>,
}

/// The changes of a batch to one key.
#[derive(Default)]
pub struct KeyChange {
    /// Whether the key exists in the stored state; set once the batch writes
    /// it.
    lives_in_base: bool,
    /// Tails by revision, oldest first; `None` is a deletion.
    versions: Vec<(i64, Option<Bytes>)>,
    /// Locks by revision, with their stored form.
    locks: Vec<(i64, KeyLockInfo, Vec<u8>)>,
}

/// A key before its deletion.
pub struct Old<'t> {
    pub value_bytes: usize,
    pub lease: i64,
    /// The tail, which is needed only for an event.
    pub tail: Option<&'t Bytes>,
}

/// The result of a batch.
pub struct Finished {
    pub commit: Commit,
    pub numbers: Numbers,
    pub events: Option<Vec<Event>>,
    pub counts: Staged,
    /// Keys that did not exist before.
    pub created: Vec<Bytes>,
    /// Keys whose locks changed.
    pub locked: BTreeSet<Bytes>,
    pub alarms: Option<Vec<(u64, Alarm)>>,
    pub sample: Option<Sample>,
}

impl<'a> Batch<'a> {
    /// Creates a batch on the stored state as of `numbers`.
    pub fn new(
        state: &'a State,
        numbers: Numbers,
        watched: bool,
        commit_part: CommitPart<'a>,
    ) -> Batch<'a> {
        Batch {
            state,
            base: numbers.revision,
            at_base: value_spec(numbers.revision),
            numbers,
            keys: BTreeMap::new(),
            changes: Vec::new(),
            sub: None,
            events: watched.then(Vec::new),
            event_bytes: 0,
            staged_bytes: 0,
            counts: Staged::new(),
            created: Vec::new(),
            commit_part,
            proposals: 0,
            lease_keys: BTreeMap::new(),
            lock_keys: BTreeMap::new(),
            locked: BTreeSet::new(),
            leases: BTreeMap::new(),
            sample: None,
            alarms: None,
        }
    }

    /// Starts another proposal, made at this time. Its changes get a revision
    /// of their own.
    pub fn begin(&mut self, time_micros: i64) -> Result<()> {
        self.commit_staged_if_large()?;
        self.numbers.time_micros = self.numbers.time_micros.max(time_micros);
        self.sub = None;
        self.proposals += 1;
        Ok(())
    }

    /// Returns whether the current proposal is the first of its entry.
    pub fn is_first_proposal(&self) -> bool {
        self.proposals <= 1
    }

    /// Returns the revision at which the stored state is read.
    pub fn base(&self) -> i64 {
        self.base
    }

    pub fn staged_bytes(&self) -> usize {
        self.staged_bytes
    }

    pub fn makes_events(&self) -> bool {
        self.events.is_some()
    }

    /// Drops the events of this entry, which watchers then read from history.
    pub fn drop_events(&mut self) {
        self.events = None;
    }

    pub fn changed_keys(&self) -> &BTreeMap<Bytes, KeyChange> {
        &self.keys
    }

    /// Returns whether the batch has put or deleted a key since its base.
    pub fn has_changed(&self, key: &[u8]) -> bool {
        self.keys.get(key).is_some_and(|change| !change.versions.is_empty())
    }

    /// Moves the base after a part of the entry is committed, so that later
    /// reads find it in the store.
    pub fn move_base(&mut self) {
        self.base = self.numbers.revision;
        self.at_base = value_spec(self.base);
    }

    pub fn commit_ahead(&self, commit: Commit) -> Result<()> {
        (self.commit_part)(&commit)
    }

    /// Adds created (1) and deleted (-1) keys to the counts.
    pub fn stage_counts<'k>(&mut self, keys: impl Iterator<Item = (&'k Bytes, i64)>) {
        for (start, delta) in self.state.counts.read().stage(keys) {
            *self.counts.entry(start).or_default() += delta;
        }
    }

    /// Drops the staged changes after they have been committed.
    pub fn forget_staged(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        let growing = keys.iter().map(|(key, change)| (key, change.growth()));
        self.stage_counts(growing.filter(|(_, growth)| *growth != 0));
        let created = keys.into_iter().filter(|(_, change)| change.growth() > 0);
        self.created.extend(created.map(|(key, _)| key));
        self.changes.clear();
        self.staged_bytes = 0;
    }

    pub fn drop_lease_row(&mut self, row: Vec<u8>) {
        self.lease_keys.insert(row, false);
    }

    pub fn count_deletion(&mut self, key: &[u8], value_bytes: usize) {
        self.numbers.written_bytes += size_of_entry(key, 0);
        self.numbers.live_bytes -= size_of_entry(key, value_bytes);
    }

    /// Starts another revision within the same proposal.
    pub fn begin_revision(&mut self) {
        self.sub = None;
    }

    pub fn revision(&self) -> i64 {
        self.numbers.revision
    }

    /// Writes a value. `prev` is the key's newest tail.
    pub fn put(&mut self, key: &Bytes, value: &[u8], lease: i64, prev: Option<&Bytes>) {
        let (revision, sub) = self.next_place();
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
        self.numbers.written_bytes += size;
        self.numbers.live_bytes += size - old.map_or(0, |old| size_of_entry(key, old.value.len()));
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
    pub fn put_back(&mut self, key: &Bytes, tail: &Bytes) {
        let kv = Tail::parse(tail);
        let size = size_of_entry(key, kv.value.len());
        self.numbers.written_bytes += size;
        self.numbers.live_bytes += size;
        self.move_lease(key, 0, kv.lease);
        self.set(key, kv.mod_revision, Some(tail.clone()), false);
    }

    /// Deletes an existing key. `prev` is its newest tail.
    pub fn delete(&mut self, key: &Bytes, prev: &Bytes) {
        let old = Tail::parse(prev);
        let (value_bytes, lease) = (old.value.len(), old.lease);
        self.delete_old(key, Old { value_bytes, lease, tail: Some(prev) });
    }

    /// Deletes an existing key. There is no event without its tail.
    pub fn delete_old(&mut self, key: &Bytes, old: Old<'_>) {
        let (revision, sub) = self.next_place();
        self.count_deletion(key, old.value_bytes);
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
        if self.sub.is_some() { self.numbers.revision } else { self.numbers.revision + 1 }
    }

    pub fn set_lock(&mut self, key: &Bytes, info: KeyLockInfo) {
        let (revision, sub) = self.next_place();
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

    pub fn set_lease(&mut self, id: i64, ttl_seconds: Option<i64>) {
        self.leases.insert(id, ttl_seconds);
    }

    pub fn set_lock_key(&mut self, session: i64, key: &[u8], there: bool) {
        self.lock_keys.insert(tables::owned_row(session, key), there);
    }

    /// Adds the rows of `user` and `changes`. With `ends`, also removes the
    /// changes below a waterline that has moved.
    pub fn push_changes(&self, commit: &mut CommitBuilder, ends: bool) {
        let (state, numbers) = (self.state, &self.numbers);
        let tables = &state.tables;
        if !self.keys.is_empty() {
            commit.table(tables.user);
        }
        for (key, change) in &self.keys {
            commit.row(key);
            for (revision, tail) in &change.versions {
                match tail {
                    Some(tail) => commit.set(VALUE, b"", *revision, tail),
                    None => commit.mark(VALUE, b"", *revision, b""),
                };
            }
            for (revision, info, bytes) in &change.locks {
                match info.is_free() {
                    false => commit.set(LOCK, b"", *revision, bytes),
                    true => commit.mark(LOCK, b"", *revision, bytes),
                };
            }
        }
        let line_moved = ends && numbers.waterline > state.waterline();
        if line_moved || !self.changes.is_empty() {
            commit.table(tables.changes);
        }
        if line_moved {
            commit.delete_range(&changes::rows(0, numbers.waterline - 1));
        }
        for (change, time_micros) in &self.changes {
            change.push(commit, *time_micros);
        }
    }

    /// Packs the remaining changes into a commit.
    pub fn finish(mut self) -> Finished {
        let (state, numbers) = (self.state, self.numbers);
        let tables = &state.tables;
        let mut commit = CommitBuilder::new();
        self.push_changes(&mut commit, true);
        self.forget_staged();
        state.counts.read().push(&self.counts, &mut commit, tables);
        tables.push_leases(&mut commit, &self.leases, &self.lease_keys, &self.lock_keys);
        let line_moved = numbers.waterline > state.waterline();
        if line_moved || self.sample.is_some() {
            tables.push_time(&mut commit, self.sample.as_ref(), line_moved.then_some(&numbers));
        }
        tables.push_meta(&mut commit, &numbers, self.alarms.as_deref());
        Finished {
            commit: commit.finish(),
            numbers,
            created: self.created,
            locked: self.locked,
            events: self.events,
            counts: self.counts,
            alarms: self.alarms,
            sample: self.sample,
        }
    }

    /// Returns the revision of the next change and its number within that
    /// revision.
    pub fn next_place(&mut self) -> (i64, u32) {
        let sub = match self.sub {
            Some(sub) => sub + 1,
            None => {
                self.numbers.revision += 1;
                0
            }
        };
        self.sub = Some(sub);
        (self.numbers.revision, sub)
    }

    fn record(&mut self, revision: i64, sub: u32, kind: ChangeKind, key: &Bytes) {
        self.staged_bytes += key.len() + CHANGE_BYTES;
        let change = Change { revision, sub, kind, key: key.clone(), lost: None };
        self.changes.push((change, self.numbers.time_micros));
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
            self.keep_lost(key, revision, lost);
        }
    }

    /// Keeps the tail of a put that a later change of the same revision
    /// overwrites, because watchers still get its event.
    fn keep_lost(&mut self, key: &Bytes, revision: i64, lost: Bytes) {
        let of_revision = self.changes.iter_mut().rev().map(|(change, _)| change);
        let mut of_revision = of_revision.take_while(|change| change.revision == revision);
        let puts = [ChangeKind::Create, ChangeKind::Put];
        let put = of_revision.find(|change| change.key == *key && puts.contains(&change.kind));
        if let Some(put) = put {
            put.lost = Some(lost);
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
