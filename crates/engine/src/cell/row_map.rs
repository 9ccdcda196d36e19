//! A map from adjacent ranges of rows to values, in row order, of which a changed
//! copy shares almost everything with the original. The values are in chunks of
//! at most 64; a change copies the chunks that it touches and the vector of
//! chunks. The rows at which values begin are also in compact lists, so that a lookup
//! does not touch the values.

use std::sync::Arc;

use super::rows::RowRange;
use super::separators::Separators;

/// A value of a [`RowMap`].
pub trait RowMapValue {
    /// What the map knows about all values of a chunk.
    type Summary: Copy + Default;

    /// The rows of the value. The ranges of a map do not overlap.
    fn rows(&self) -> &RowRange;

    fn summary(&self) -> Self::Summary;

    /// Combines the summaries of two sets of values.
    fn combine(a: Self::Summary, b: Self::Summary) -> Self::Summary;
}

/// Maximum number of values in a chunk.
const CHUNK_MAX: usize = 64;
/// A changed chunk with fewer values is combined with its neighbour.
const CHUNK_MIN: usize = 16;

/// Values by their rows. Not empty.
pub struct RowMap<T: RowMapValue> {
    chunks: Vec<Arc<Chunk<T>>>,
    /// The first row of each chunk but the first.
    starts: Arc<Separators>,
    len: usize,
}

struct Chunk<T: RowMapValue> {
    /// Not empty.
    values: Vec<Arc<T>>,
    /// The first row of each value but the first.
    starts: Arc<Separators>,
    summary: T::Summary,
}

impl<T: RowMapValue> Chunk<T> {
    fn new(values: Vec<Arc<T>>) -> Chunk<T> {
        let summary = summary_of(&values);
        let starts = starts_of(values.iter().map(|value| value.rows()));
        Chunk { values, starts, summary }
    }

    fn starts_at_or_after(&self, row: &[u8]) -> bool {
        self.values.first().is_some_and(|first| *first.rows().start >= *row)
    }
}

fn summary_of<T: RowMapValue>(values: &[Arc<T>]) -> T::Summary {
    values.iter().map(|value| value.summary()).reduce(T::combine).unwrap_or_default()
}

/// Returns the first rows of all ranges but the first.
fn starts_of<'r>(ranges: impl Iterator<Item = &'r RowRange>) -> Arc<Separators> {
    let starts = Separators::of(ranges.skip(1).map(|rows| &rows.start[..]));
    Arc::new(starts.expect("the ranges of a map are in row order"))
}

/// Where a value is in the map.
#[derive(Clone, Copy)]
struct Position {
    chunk: usize,
    at: usize,
}

impl<T: RowMapValue> RowMap<T> {
    /// Creates a map of values in row order.
    pub fn new(values: Vec<Arc<T>>) -> RowMap<T> {
        RowMap::of_chunks(chunks_of(values))
    }

    fn of_chunks(chunks: Vec<Arc<Chunk<T>>>) -> RowMap<T> {
        let starts = starts_of(chunks.iter().map(|chunk| chunk.values[0].rows()));
        let len = chunks.iter().map(|chunk| chunk.values.len()).sum();
        assert!(len > 0, "a map of rows is never empty");
        RowMap { chunks, starts, len }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn first(&self) -> &Arc<T> {
        &self.chunks[0].values[0]
    }

    pub fn last(&self) -> &Arc<T> {
        let chunk = self.chunks.last().expect("a map of rows is never empty");
        chunk.values.last().expect("a chunk is never empty")
    }

    /// Returns all values, in row order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<T>> {
        self.chunks.iter().flat_map(|chunk| &chunk.values)
    }

    /// Returns the values of the chunks that `chosen` accepts.
    pub fn iter_chunks(
        &self,
        chosen: impl Fn(T::Summary) -> bool,
    ) -> impl Iterator<Item = &Arc<T>> {
        let chunks = self.chunks.iter().filter(move |chunk| chosen(chunk.summary));
        chunks.flat_map(|chunk| &chunk.values)
    }

    /// Returns the summary of all values, from those of the chunks.
    pub fn summary(&self) -> T::Summary {
        self.chunks.iter().map(|chunk| chunk.summary).reduce(T::combine).unwrap_or_default()
    }

    /// Returns the value whose range contains `row`.
    #[inline]
    pub fn of(&self, row: &[u8]) -> &Arc<T> {
        if self.len == 1 {
            return self.first();
        }
        let Position { chunk, at } = self.position(row);
        &self.chunks[chunk].values[at]
    }

    fn position(&self, row: &[u8]) -> Position {
        let chunk = self.starts.count_to(row);
        Position { chunk, at: self.chunks[chunk].starts.count_to(row) }
    }

    /// Returns the value with the last row before `end`; the last one if there is
    /// no end.
    pub fn before(&self, end: Option<&[u8]>) -> &Arc<T> {
        let Position { chunk, at } = self.position_before(end);
        &self.chunks[chunk].values[at]
    }

    fn position_before(&self, end: Option<&[u8]>) -> Position {
        let last = self.chunks.len() - 1;
        let Some(end) = end else {
            return Position { chunk: last, at: self.chunks[last].values.len() - 1 };
        };
        let begun = self.chunks.partition_point(|chunk| !chunk.starts_at_or_after(end));
        let chunk = begun.saturating_sub(1);
        let begun = self.chunks[chunk].values.partition_point(|v| *v.rows().start < *end);
        Position { chunk, at: begun.saturating_sub(1) }
    }

    /// Returns the values whose ranges overlap `rows`, in row order.
    pub fn overlapping<'a>(&'a self, rows: &'a RowRange) -> impl Iterator<Item = &'a Arc<T>> {
        let Position { chunk, at } = self.position(&rows.start);
        let chunks = self.chunks[chunk..].iter().enumerate();
        let values = chunks.flat_map(move |(number, chunk)| {
            let skipped = if number == 0 { at } else { 0 };
            &chunk.values[skipped..]
        });
        let begins =
            |value: &&Arc<T>| rows.end.as_ref().is_none_or(|end| value.rows().start < *end);
        values.take_while(begins).filter(|value| value.rows().overlaps(rows))
    }

    /// Replaces values with others that have the same rows, in row order.
    pub fn replace(&mut self, values: impl IntoIterator<Item = Arc<T>>) {
        let mut changed = None;
        for value in values {
            let Position { chunk, at } = self.position(&value.rows().start);
            Arc::make_mut(&mut self.chunks[chunk]).values[at] = value;
            if changed != Some(chunk) {
                changed.into_iter().for_each(|chunk| self.summarize(chunk));
                changed = Some(chunk);
            }
        }
        changed.into_iter().for_each(|chunk| self.summarize(chunk));
    }

    fn summarize(&mut self, chunk: usize) {
        let chunk = Arc::make_mut(&mut self.chunks[chunk]);
        chunk.summary = summary_of(&chunk.values);
    }

    /// Replaces all values whose ranges overlap `rows` with `values`, which have the
    /// same rows together.
    pub fn splice(&mut self, rows: &RowRange, values: Vec<Arc<T>>) {
        let (first, last) = (self.position(&rows.start), self.position_before(rows.end.as_deref()));
        let mut combined = self.chunks[first.chunk].values[..first.at].to_vec();
        combined.extend(values);
        combined.extend_from_slice(&self.chunks[last.chunk].values[last.at + 1..]);
        let mut replaced = first.chunk..last.chunk + 1;
        if combined.len() < CHUNK_MIN && replaced.end < self.chunks.len() {
            combined.extend_from_slice(&self.chunks[replaced.end].values);
            replaced.end += 1;
        } else if combined.len() < CHUNK_MIN && replaced.start > 0 {
            replaced.start -= 1;
            let before = self.chunks[replaced.start].values.iter().cloned();
            combined = before.chain(combined).collect();
        }
        self.chunks.splice(replaced, chunks_of(combined));
        *self = RowMap::of_chunks(std::mem::take(&mut self.chunks));
    }
}

/// Divides values into chunks of about the same size.
fn chunks_of<T: RowMapValue>(values: Vec<Arc<T>>) -> Vec<Arc<Chunk<T>>> {
    let count = values.len().div_ceil(CHUNK_MAX).max(1);
    let size = values.len().div_ceil(count).max(1);
    values.chunks(size).map(|values| Arc::new(Chunk::new(values.to_vec()))).collect()
}

impl<T: RowMapValue> Clone for RowMap<T> {
    fn clone(&self) -> RowMap<T> {
        let (chunks, starts) = (self.chunks.clone(), self.starts.clone());
        RowMap { chunks, starts, len: self.len }
    }
}

impl<T: RowMapValue> Clone for Chunk<T> {
    fn clone(&self) -> Chunk<T> {
        let (values, starts) = (self.values.clone(), self.starts.clone());
        Chunk { values, starts, summary: self.summary }
    }
}

impl<T: RowMapValue + PartialEq> PartialEq for RowMap<T> {
    fn eq(&self, other: &RowMap<T>) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<T: RowMapValue + Eq> Eq for RowMap<T> {}

impl<T: RowMapValue + std::fmt::Debug> std::fmt::Debug for RowMap<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Part {
        rows: RowRange,
        weight: u64,
    }

    thread_local! {
        /// Number of values whose rows were looked at.
        static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
    }

    impl RowMapValue for Part {
        type Summary = u64;

        fn rows(&self) -> &RowRange {
            LOOKED_AT.set(LOOKED_AT.get() + 1);
            &self.rows
        }

        fn summary(&self) -> u64 {
            self.weight
        }

        fn combine(a: u64, b: u64) -> u64 {
            a.max(b)
        }
    }

    fn row(number: usize) -> Vec<u8> {
        format!("row{number:06}").into_bytes()
    }

    /// Returns a map of `count` values that meet at every tenth row.
    fn map(count: usize) -> RowMap<Part> {
        let part = |number: usize| Part {
            rows: RowRange {
                start: if number == 0 { Vec::new() } else { row(number * 10) },
                end: (number + 1 < count).then(|| row((number + 1) * 10)),
            },
            weight: number as u64,
        };
        RowMap::new((0..count).map(|number| Arc::new(part(number))).collect())
    }

    fn check(map: &RowMap<Part>) {
        let all: Vec<_> = map.iter().cloned().collect();
        assert_eq!(all.len(), map.len());
        assert!(all[0].rows.start.is_empty() && all[all.len() - 1].rows.end.is_none());
        assert!(all.windows(2).all(|pair| pair[0].rows.end.as_ref() == Some(&pair[1].rows.start)));
        assert!(map.chunks.iter().all(|chunk| (1..=CHUNK_MAX).contains(&chunk.values.len())));
        assert_eq!(map.summary(), all.iter().map(|part| part.weight).max().unwrap());
    }

    fn looked_at(act: impl FnOnce()) -> usize {
        let before = LOOKED_AT.get();
        act();
        LOOKED_AT.get() - before
    }

    /// Returns how many chunks and values of `new` are not those of `old`.
    fn copied(old: &RowMap<Part>, new: &RowMap<Part>) -> (usize, usize) {
        let chunks = new.chunks.iter().filter(|c| !old.chunks.iter().any(|o| Arc::ptr_eq(o, c)));
        let values = new.iter().filter(|v| !old.iter().any(|o| Arc::ptr_eq(o, v)));
        (chunks.count(), values.count())
    }

    #[test]
    fn scale_2_1_a_lookup_and_a_change_cost_the_same_with_64_and_with_10_000_tablets() {
        for count in [64, 10_000] {
            let map = map(count);
            check(&map);
            for number in [0, 1, count / 2, count - 1] {
                let wanted = row(number * 10 + 5);
                let looks = looked_at(|| assert_eq!(map.of(&wanted).weight, number as u64));
                assert!(looks <= 16, "{looks} values were looked at of {count}");
            }
            let mut next = map.clone();
            for number in [3, 17, count - 1] {
                let changed = Part { weight: 1, ..(**map.of(&row(number * 10 + 5))).clone() };
                let looks = looked_at(|| next.replace([Arc::new(changed)]));
                assert!(looks <= 20, "{looks} values were looked at of {count}");
            }
            let (chunks, values) = copied(&map, &next);
            assert!(chunks <= 3 && values == 3, "{chunks} chunks, {values} values copied");
            let whole = map.of(&row(35)).rows.clone();
            let [mut lower, mut upper] = [whole.clone(), whole.clone()];
            (lower.end, upper.start) = (Some(row(35)), row(35));
            let parts = [lower, upper].map(|rows| Arc::new(Part { rows, weight: 1 }));
            let looks = looked_at(|| next.splice(&whole, parts.to_vec()));
            // All of the chunk, and the first of each chunk.
            let allowed = 2 * CHUNK_MAX + count / CHUNK_MIN;
            assert!(looks <= allowed, "{looks} values were looked at of {count}");
            check(&next);
            assert_eq!(copied(&map, &next).1, 4);
        }
    }

    proptest! {
        #[test]
        fn a_map_answers_like_a_list_after_any_splits_and_joins(
            count in 1usize..200,
            steps in prop::collection::vec((any::<bool>(), 0usize..2100), 0..150),
            ranges in prop::collection::vec((0usize..2100, 0usize..2100), 1..20),
        ) {
            let mut map = map(count);
            for (split, number) in steps {
                let at = row(number);
                let found = map.of(&at).clone();
                if split && found.rows.start < at {
                    let [mut lower, mut upper] = [(*found).clone(), (*found).clone()];
                    (lower.rows.end, upper.rows.start) = (Some(at.clone()), at);
                    map.splice(&found.rows, vec![Arc::new(lower), Arc::new(upper)]);
                } else if let (false, Some(end)) = (split, &found.rows.end) {
                    let next = map.of(end).clone();
                    let rows = RowRange { start: found.rows.start.clone(), end: next.rows.end.clone() };
                    let joined = Part { rows: rows.clone(), weight: found.weight };
                    map.splice(&rows, vec![Arc::new(joined)]);
                }
                check(&map);
            }
            for (a, b) in ranges {
                let range = RowRange { start: row(a.min(b)), end: (b % 7 > 0).then(|| row(a.max(b))) };
                let found: Vec<_> = map.overlapping(&range).collect();
                let expected: Vec<_> = map.iter().filter(|v| v.rows.overlaps(&range)).collect();
                prop_assert_eq!(&found, &expected);
                if let (Some(first), Some(last)) = (expected.first(), expected.last()) {
                    prop_assert_eq!(map.of(&range.start), *first);
                    prop_assert_eq!(map.before(range.end.as_deref()), *last);
                }
            }
        }
    }
}
