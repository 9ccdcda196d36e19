//! Applies large entries in bounded memory.
//!
//! An entry may change more keys than memory should hold at once: a deletion of
//! a million keys is one revision. So an [`Overlay`] commits parts of its entry
//! ahead of the rest. Readers do not notice, because all cells of a part have
//! revisions that are published only with the end of the entry. A crash in
//! between is harmless: the position in the log is stored only with the end, so
//! the entry is replayed from its beginning, on a view of the state that
//! excludes the revisions of its parts, and writes the same cells again. Tables
//! without revisions (counts, leases, watermarks) change with the end.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use stele_engine::{BatchLimits, CommitBuilder, Scan, ScanSpec};

use super::overlay::{Overlay, Previous, key_bounds};
use crate::error::Result;
use crate::key::{KeyRange, Kv, Tail};
use crate::state::{
    Change, ChangeKind, KeyHash, MemberState, VALUE, is_expired, tables, value_spec,
};

/// The approximate size of a part.
pub const PART_BYTES: usize = 8 << 20;
/// The limits of one read of a range. A range within them is deleted without
/// parts.
const CHUNK_BYTES: usize = 4 << 20;
const CHUNK_KEYS: usize = 4096;
/// The approximate memory use of a staged change besides its key.
pub const CHANGE_BYTES: usize = 160;

/// An existing key of a range that is being deleted.
struct LiveKey {
    key: Bytes,
    value_bytes: usize,
    lease: i64,
    /// Kept only if it is needed.
    tail: Option<Bytes>,
    hash: KeyHash,
}

/// Deletions that are committed together.
#[derive(Default)]
struct EntryPart {
    changes: Vec<Change>,
    lease_rows: BTreeSet<Vec<u8>>,
    bytes: usize,
}

/// A scan of the existing keys of a range, as of the overlay's base.
struct LiveScan<'s> {
    state: &'s MemberState,
    spec: ScanSpec,
    scan: Scan,
    /// The last key found.
    last: Option<Bytes>,
}

impl<'s> LiveScan<'s> {
    fn open(state: &'s MemberState, range: &KeyRange, base: i64) -> Result<LiveScan<'s>> {
        let mut spec = value_spec(base);
        spec.rows.push(range.rows());
        let scan = state.store().scan(state.tables.user, spec.clone())?;
        Ok(LiveScan { state, spec, scan, last: None })
    }

    /// Reads a bounded number of keys. Returns whether they were the last.
    fn read(&mut self, keeps_tails: bool, found: &mut VecDeque<LiveKey>) -> Result<bool> {
        let read = read_chunk(&mut self.scan, keeps_tails, found);
        if let Some(live) = found.back() {
            self.last = Some(live.key.clone());
        }
        match read {
            Err(error) if is_expired(&error) => self.reopen().map(|()| false),
            read => read,
        }
    }

    /// Continues after the last key. A part waited for disk space longer than
    /// the engine keeps the snapshot of a partly read row. The base has not
    /// moved, so the data is the same.
    fn reopen(&mut self) -> Result<()> {
        let mut rest = self.spec.clone();
        if let Some(last) = &self.last {
            rest.rows[0].start = [&last[..], &[0]].concat();
        }
        self.scan = self.state.store().scan(self.state.tables.user, rest)?;
        Ok(())
    }
}

impl Overlay<'_> {
    /// Deletes the keys of a range in key order. Appends the previous tails to
    /// `prev`, if given. Returns the number of keys deleted.
    pub fn delete_range(
        &mut self,
        range: &KeyRange,
        mut prev: Option<&mut Vec<Kv>>,
    ) -> Result<i64> {
        if range.is_empty() {
            return Ok(0);
        }
        let mut changed = self.live_changes_of(range);
        let mut live_keys = LiveScan::open(self.state, range, self.base())?;
        let (mut deleted, mut parted, mut part) = (0, false, EntryPart::default());
        let mut found = VecDeque::new();
        loop {
            let keeps_tails = prev.is_some() || self.makes_events() && !parted;
            let done = live_keys.read(keeps_tails, &mut found)?;
            if !parted && (!done || self.staged_bytes() > PART_BYTES) {
                parted = true;
                self.drop_events();
            }
            while let Some(live) = found.pop_front() {
                while changed.front().is_some_and(|key| *key < live.key) {
                    deleted += self.delete_changed(changed.pop_front(), &mut prev)?;
                }
                if self.has_changed(&live.key) {
                    // The version of the entry supersedes the stored one.
                    let same = changed.pop_front_if(|key| *key == live.key);
                    deleted += self.delete_changed(same, &mut prev)?;
                    continue;
                }
                deleted += 1;
                if let (Some(prev), Some(tail)) = (&mut prev, &live.tail) {
                    prev.push(Kv { key: live.key.clone(), tail: tail.clone() });
                }
                if parted {
                    self.delete_in_part(&mut part, live);
                    if part.bytes >= PART_BYTES {
                        self.commit_part(std::mem::take(&mut part))?;
                    }
                } else {
                    let LiveKey { key, value_bytes, lease, tail, hash } = live;
                    self.delete_existing(
                        &key,
                        Previous { value_bytes, lease, tail: tail.as_ref(), hash },
                    );
                }
            }
            if done {
                break;
            }
        }
        while !changed.is_empty() {
            deleted += self.delete_changed(changed.pop_front(), &mut prev)?;
        }
        if parted {
            self.commit_part(part)?;
            self.move_base();
        }
        Ok(deleted)
    }

    /// Returns the keys of a range that the entry has put and not deleted.
    fn live_changes_of(&self, range: &KeyRange) -> VecDeque<Bytes> {
        let rows = range.rows();
        let changed = self.changed_keys().range::<[u8], _>(key_bounds(&rows));
        changed.filter(|(_, change)| change.is_alive()).map(|(key, _)| key.clone()).collect()
    }

    /// Deletes a key that the entry has put. Returns the number of keys
    /// deleted.
    fn delete_changed(
        &mut self,
        key: Option<Bytes>,
        prev: &mut Option<&mut Vec<Kv>>,
    ) -> Result<i64> {
        let Some(key) = key else { return Ok(0) };
        let Some(tail) = self.newest(&key)? else { return Ok(0) };
        self.delete(&key, &tail);
        if let Some(prev) = prev {
            prev.push(Kv { key, tail });
        }
        Ok(1)
    }

    fn delete_in_part(&mut self, part: &mut EntryPart, live: LiveKey) {
        let (revision, sub) = self.next_position();
        self.count_deletion(&live.key, live.value_bytes, live.hash);
        part.bytes += 2 * live.key.len() + CHANGE_BYTES;
        if live.lease != 0 {
            let row = tables::owned_row(live.lease, &live.key);
            if self.is_first_proposal() {
                part.bytes += row.len();
                part.lease_rows.insert(row);
            } else {
                // An earlier proposal of the entry may have read the rows of
                // the lease; it must find them again if the entry is replayed.
                self.drop_lease_row(row);
            }
        }
        let key = live.key;
        part.changes.push(Change {
            revision,
            sub,
            kind: ChangeKind::Delete,
            key,
            overwritten: None,
            user: self.user.clone(),
        });
    }

    fn commit_part(&mut self, part: EntryPart) -> Result<()> {
        if part.changes.is_empty() {
            return Ok(());
        }
        let tables = &self.state.tables;
        let mut commit = CommitBuilder::new();
        commit.table(tables.user);
        for change in &part.changes {
            commit.row(&change.key).mark(VALUE, b"", change.revision, b"");
        }
        commit.table(tables.changes);
        for change in &part.changes {
            change.push(&mut commit, self.watermarks.time_micros);
        }
        if !part.lease_rows.is_empty() {
            commit.table(tables.lease_keys);
        }
        for row in &part.lease_rows {
            commit.row(row).delete_row();
        }
        self.commit_ahead(commit.finish())?;
        self.stage_counts(part.changes.iter().map(|change| (&change.key, -1)));
        Ok(())
    }

    /// Commits the staged changes between two proposals if they are large.
    pub(super) fn commit_staged_if_large(&mut self) -> Result<()> {
        if self.staged_bytes() <= PART_BYTES {
            return Ok(());
        }
        let mut commit = CommitBuilder::new();
        self.push_changes(&mut commit, false);
        self.commit_ahead(commit.finish())?;
        self.forget_staged();
        self.move_base();
        Ok(())
    }
}

/// Reads a bounded number of existing keys. Returns whether they were the last.
fn read_chunk(scan: &mut Scan, keeps_tails: bool, found: &mut VecDeque<LiveKey>) -> Result<bool> {
    let mut bytes = 0;
    loop {
        let limits =
            BatchLimits { bytes: CHUNK_BYTES, cells: CHUNK_KEYS, ..BatchLimits::default() };
        let end = scan.next_batch(limits, &mut |cell| {
            let old = Tail::parse(cell.value);
            bytes += cell.row.len() + cell.value.len();
            found.push_back(LiveKey {
                key: Bytes::copy_from_slice(cell.row),
                value_bytes: old.value.len(),
                lease: old.lease,
                tail: keeps_tails.then(|| Bytes::copy_from_slice(cell.value)),
                hash: KeyHash::of(cell.row, cell.value),
            });
        })?;
        if end.done || bytes >= CHUNK_BYTES || found.len() >= CHUNK_KEYS {
            return Ok(end.done);
        }
    }
}
