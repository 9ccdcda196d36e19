//! The number of keys per range of the key space, so that large ranges can be
//! counted without reading them.
//!
//! The key space is divided into buckets, each with the exact number of its
//! keys. A large bucket is split; an empty one is merged into the bucket before
//! it. The boundaries are private to this file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use stele_engine::{CommitBuilder, RowRange, Store};

use super::changes::ChangeKind;
use super::tables::{DATA, Tables, read_all};
use super::{MemberState, value_spec};
use crate::error::{Error, Result};
use crate::key::{KeyRange, RangeEnd};

/// The maximum number of keys in a bucket before it is split.
const BUCKET_KEYS_MAX: i64 = 512;

/// The maximum length of a bucket's first key, because these are held in
/// memory.
const START_BYTES_MAX: usize = 16 << 10;

/// A count at an older revision is computed from the newest count and the
/// changes since, if these are at most this many or at most as many as there
/// are keys; otherwise by reading the keys.
const CHANGES_WALKED_MIN: i64 = 4096;

/// Counts with more steps run off the runtime's thread.
const STEPS_MAX: i64 = 8192;

/// Keys per bucket, as of one revision.
pub struct Counts {
    /// By the first key of the bucket; the first bucket starts at the empty
    /// key.
    buckets: BTreeMap<Bytes, i64>,
    /// The sum of all buckets.
    total: i64,
    revision: i64,
    /// Buckets that differ from the stored ones.
    dirty: BTreeSet<Bytes>,
}

/// What a commit adds to the buckets, by their first keys.
pub type Staged = BTreeMap<Bytes, i64>;

/// What the buckets tell about a range.
struct Estimate {
    /// The number of keys in buckets that lie within the range.
    inside: i64,
    /// The parts of the range in other buckets.
    edges: Vec<KeyRange>,
    revision: i64,
}

impl Counts {
    pub fn load(store: &Store, tables: &Tables, revision: i64) -> Result<Counts> {
        let mut buckets = BTreeMap::from([(Bytes::new(), 0)]);
        let mut malformed = false;
        read_all(store, tables.counts, RowRange::all(), |row, value| {
            match (row.split_first(), value.try_into()) {
                (Some((_, start)), Ok(count)) => {
                    buckets.insert(Bytes::copy_from_slice(start), i64::from_le_bytes(count));
                }
                _ => malformed = true,
            }
        })?;
        if malformed {
            return Err(Error::Internal("cannot decode a stored count".into()));
        }
        let total = buckets.values().sum();
        Ok(Counts { buckets, total, revision, dirty: BTreeSet::new() })
    }

    /// Returns the number of all keys.
    pub fn total(&self) -> i64 {
        self.total
    }

    /// Returns what created (1) and deleted (-1) keys add to the buckets.
    pub fn stage<'k>(&self, keys: impl Iterator<Item = (&'k Bytes, i64)>) -> Staged {
        let mut staged = Staged::new();
        for (key, delta) in keys {
            let start = self.start_of(key);
            match staged.get_mut(start) {
                Some(sum) => *sum += delta,
                None => {
                    staged.insert(start.clone(), delta);
                }
            }
        }
        staged
    }

    /// Adds the staged and previously changed buckets to the commit as rows of
    /// the table `counts`.
    pub fn push(&self, staged: &Staged, commit: &mut CommitBuilder, tables: &Tables) {
        let mut rows: BTreeSet<&Bytes> = self.dirty.iter().collect();
        rows.extend(staged.keys());
        if rows.is_empty() {
            return;
        }
        commit.table(tables.counts);
        let mut row = Vec::new();
        for start in rows {
            row.clear();
            row.push(b'b');
            row.extend_from_slice(start);
            commit.row(&row);
            match self.buckets.get(start).map(|count| count + staged.get(start).unwrap_or(&0)) {
                Some(count) if count > 0 || start.is_empty() => {
                    commit.set(DATA, b"", 0, &count.to_le_bytes())
                }
                _ => commit.delete_row(),
            };
        }
    }

    /// Applies the staged counts after their commit.
    pub fn apply_staged(&mut self, staged: Staged, revision: i64) {
        for (start, delta) in staged {
            let count = self.buckets.get_mut(&start).expect("only this thread changes buckets");
            *count += delta;
            self.total += delta;
            if *count == 0 && !start.is_empty() {
                self.buckets.remove(&start);
            }
        }
        self.dirty.clear();
        self.revision = revision;
    }

    /// Returns the first key of a key's bucket.
    fn start_of(&self, key: &[u8]) -> &Bytes {
        let upto = (Bound::Unbounded, Bound::Included(key));
        let bucket = self.buckets.range::<[u8], _>(upto).next_back();
        bucket.expect("the first bucket starts at the empty key").0
    }

    /// Returns those buckets of the keys that are too large.
    fn large(&self, keys: &[Bytes]) -> Vec<KeyRange> {
        let starts: BTreeSet<&Bytes> = keys.iter().map(|key| self.start_of(key)).collect();
        let large = starts.into_iter().filter(|start| self.buckets[*start] > BUCKET_KEYS_MAX);
        large.map(|start| self.bucket(start.clone())).collect()
    }

    fn bucket(&self, start: Bytes) -> KeyRange {
        let after = (Bound::Excluded(&start[..]), Bound::Unbounded);
        let next = self.buckets.range::<[u8], _>(after).next();
        let end = next.map_or(RangeEnd::Unbounded, |(end, _)| RangeEnd::Before(end.clone()));
        KeyRange { start, end }
    }

    /// Replaces a bucket by pieces of it: the first key and the number of keys
    /// of each.
    fn split(&mut self, bucket: &Bytes, pieces: Vec<(Bytes, i64)>) {
        self.buckets.remove(bucket);
        for (start, count) in pieces {
            self.dirty.insert(start.clone());
            self.buckets.insert(start, count);
        }
    }

    fn estimate(&self, range: &KeyRange) -> Estimate {
        let mut estimate = Estimate { inside: 0, edges: Vec::new(), revision: self.revision };
        let end: Option<&Bytes> = match &range.end {
            RangeEnd::Before(end) => Some(end),
            RangeEnd::Unbounded => None,
            RangeEnd::Single => {
                estimate.edges.push(range.clone());
                return estimate;
            }
        };
        let from = (Bound::Included(&range.start[..]), Bound::Unbounded);
        let mut inside = self.buckets.range::<[u8], _>(from).peekable();
        let first_cut = inside.peek().map(|(start, _)| (*start).clone());
        match first_cut {
            Some(cut) if end.is_none_or(|end| cut < end) => {
                if cut > range.start {
                    let edge = RangeEnd::Before(cut);
                    estimate.edges.push(KeyRange { start: range.start.clone(), end: edge });
                }
            }
            _ => {
                estimate.edges.push(range.clone());
                return estimate;
            }
        }
        while let Some((start, count)) = inside.next() {
            match inside.peek() {
                Some((next, _)) if end.is_none_or(|end| *next <= end) => estimate.inside += count,
                None if end.is_none() => estimate.inside += count,
                _ => {
                    let edge = KeyRange { start: start.clone(), end: range.end.clone() };
                    estimate.edges.push(edge);
                    break;
                }
            }
        }
        estimate.edges.retain(|edge| !edge.is_empty());
        estimate
    }
}

impl MemberState {
    /// Returns the number of keys in a range at a retained revision.
    pub fn count(&self, range: &KeyRange, revision: i64) -> Result<i64> {
        if range.is_empty() {
            return Ok(0);
        }
        let estimate = self.counts.read().estimate(range);
        let newer = estimate.revision - revision;
        if newer != 0 && estimate.inside.max(newer) > STEPS_MAX {
            return stele_grpc::offload::in_place(|| self.count_at(range, revision, &estimate));
        }
        self.count_at(range, revision, &estimate)
    }

    fn count_at(&self, range: &KeyRange, revision: i64, estimate: &Estimate) -> Result<i64> {
        let newer = estimate.revision - revision;
        let walked_max = CHANGES_WALKED_MIN.max(estimate.inside);
        if !(0..=walked_max).contains(&newer) || estimate.inside == 0 {
            return self.count_by_reading(range, revision);
        }
        let mut count = estimate.inside;
        for edge in &estimate.edges {
            count += self.count_by_reading(edge, estimate.revision)?;
        }
        if newer > 0 {
            self.changes(revision + 1, estimate.revision, &mut |change| {
                step();
                match change.kind {
                    ChangeKind::Create if range.contains(&change.key) => count -= 1,
                    ChangeKind::Delete if range.contains(&change.key) => count += 1,
                    _ => {}
                }
            })?;
        }
        Ok(count)
    }

    fn count_by_reading(&self, range: &KeyRange, revision: i64) -> Result<i64> {
        let mut count = 0;
        let mut spec = value_spec(revision);
        spec.rows.push(range.rows());
        self.store().read(self.tables.user, spec, |_| {
            step();
            count += 1;
        })?;
        Ok(count)
    }

    /// Splits the buckets of these keys that have become too large. No counts
    /// change; the new boundaries are stored with the next commit.
    pub(crate) fn split_large_buckets(&self, keys: &[Bytes]) -> Result<()> {
        let large = self.counts.read().large(keys);
        for bucket in large {
            let revision = self.revision();
            let mut in_bucket = Vec::new();
            let mut spec = value_spec(revision);
            spec.rows.push(bucket.rows());
            self.store().read(self.tables.user, spec, |cell| {
                in_bucket.push(Bytes::copy_from_slice(cell.row));
            })?;
            self.counts.write().split(&bucket.start, pieces(&bucket.start, &in_bucket));
        }
        Ok(())
    }
}

/// Counts the steps of a count, in tests.
#[cfg(not(test))]
fn step() {}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn step() {
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// Divides the keys of a bucket into pieces: the first key and the number of
/// keys of each. A key that is too long for a row does not start a piece.
fn pieces(bucket_start: &Bytes, keys: &[Bytes]) -> Vec<(Bytes, i64)> {
    let mut pieces = vec![(bucket_start.clone(), 0)];
    for keys in keys.chunks(BUCKET_KEYS_MAX as usize / 2) {
        let full = pieces.last().is_some_and(|(_, count)| *count > 0);
        if full && keys[0].len() <= START_BYTES_MAX {
            pieces.push((keys[0].clone(), 0));
        }
        if let Some((_, count)) = pieces.last_mut() {
            *count += keys.len() as i64;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(buckets: &[(&'static str, i64)]) -> Counts {
        let buckets =
            buckets.iter().map(|(start, count)| (Bytes::from_static(start.as_bytes()), *count));
        let buckets: BTreeMap<_, _> = buckets.collect();
        Counts { total: buckets.values().sum(), buckets, revision: 1, dirty: BTreeSet::new() }
    }

    fn range(from: &'static str, to: &'static str) -> KeyRange {
        KeyRange::from_wire(from.into(), to.into())
    }

    #[test]
    fn whole_buckets_are_counted_and_edges_left_to_be_read() {
        let counts = counts(&[("", 1), ("c", 10), ("f", 100), ("k", 1000)]);
        let all = counts.estimate(&KeyRange::all());
        assert_eq!((all.inside, all.edges), (1111, vec![]));
        let middle = counts.estimate(&range("b", "h"));
        assert_eq!((middle.inside, middle.edges), (10, vec![range("b", "c"), range("f", "h")]));
        let exact = counts.estimate(&range("c", "k"));
        assert_eq!((exact.inside, exact.edges), (110, vec![]));
        let within = counts.estimate(&range("g", "h"));
        assert_eq!((within.inside, within.edges), (0, vec![range("g", "h")]));
        let rest = counts.estimate(&range("d", "\0"));
        assert_eq!((rest.inside, rest.edges), (1100, vec![range("d", "f")]));
    }

    #[test]
    fn an_empty_bucket_joins_the_one_before_it() {
        let mut counts = counts(&[("", 1), ("c", 1)]);
        let deleted = Bytes::from_static(b"d");
        let staged = counts.stage([(&deleted, -1)].into_iter());
        counts.apply_staged(staged, 2);
        assert_eq!((counts.total(), counts.buckets.len()), (1, 1));
    }

    #[test]
    fn a_key_that_is_too_long_starts_no_bucket() {
        let half = BUCKET_KEYS_MAX as usize / 2;
        let mut keys: Vec<Bytes> = (0..3 * half).map(|at| format!("{at:05}").into()).collect();
        keys[half] = Bytes::from(vec![b'0'; START_BYTES_MAX + 1]);
        let cut = pieces(&Bytes::new(), &keys);
        assert_eq!(cut, [(Bytes::new(), 2 * half as i64), (keys[2 * half].clone(), half as i64)]);
    }

    /// Returns the steps of a count, and its result.
    fn counted(state: &MemberState, range: &KeyRange, revision: i64) -> (i64, i64) {
        STEPS.with(|steps| steps.set(0));
        let count = state.count(range, revision).unwrap();
        (STEPS.with(std::cell::Cell::get), count)
    }

    #[test]
    fn a_count_at_an_older_revision_reads_the_keys_or_the_changes_whichever_are_fewer() {
        const KEYS: i64 = 12_000;
        let newer = CHANGES_WALKED_MIN + 1000;
        let member = crate::machine::fixture::Fixture::new();
        let state = &member.parts.state;
        for from in (0..KEYS).step_by(4000) {
            member.put_all((from..from + 4000).map(|at| format!("key{at:06}")));
        }
        let old = state.revision();
        for at in 0..newer {
            member.put_all(std::iter::once(format!("new{at:06}")));
        }
        let all = KeyRange::all();
        let edges = 2 * BUCKET_KEYS_MAX;
        let (steps, count) = counted(state, &all, old);
        assert_eq!(count, KEYS);
        assert!(steps <= newer + edges, "{steps} steps for {newer} changes");
        let some = KeyRange::prefix("key0001");
        let (steps, count) = counted(state, &some, old);
        assert_eq!(count, 100);
        assert!(steps <= 100 + edges, "{steps} steps for 100 keys");
        let (steps, count) = counted(state, &all, state.revision());
        assert_eq!((steps <= edges, count), (true, KEYS + newer), "{steps} steps");
    }
}
