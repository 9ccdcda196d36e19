//! Ranges of rows.

use std::ops::Bound;

/// Rows from `start` (inclusive) to `end` (exclusive; `None` is unbounded).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRange {
    pub start: Vec<u8>,
    pub end: Option<Vec<u8>>,
}

impl RowRange {
    pub fn all() -> RowRange {
        RowRange { start: Vec::new(), end: None }
    }

    pub fn new(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> RowRange {
        RowRange { start: start.into(), end: Some(end.into()) }
    }

    pub fn from(start: impl Into<Vec<u8>>) -> RowRange {
        RowRange { start: start.into(), end: None }
    }

    /// Returns the range that contains exactly one row.
    pub fn row(row: &[u8]) -> RowRange {
        RowRange { start: row.to_vec(), end: Some(successor(row)) }
    }

    /// Returns the range of all rows that start with a prefix.
    pub fn prefix(prefix: &[u8]) -> RowRange {
        let mut end = prefix.to_vec();
        while let Some(last) = end.pop() {
            if last < 0xFF {
                end.push(last + 1);
                return RowRange { start: prefix.to_vec(), end: Some(end) };
            }
        }
        RowRange::from(prefix)
    }

    /// Returns the range between two bounds.
    pub fn bounds(start: Bound<&[u8]>, end: Bound<&[u8]>) -> RowRange {
        RowRange {
            start: match start {
                Bound::Included(row) => row.to_vec(),
                Bound::Excluded(row) => successor(row),
                Bound::Unbounded => Vec::new(),
            },
            end: match end {
                Bound::Included(row) => Some(successor(row)),
                Bound::Excluded(row) => Some(row.to_vec()),
                Bound::Unbounded => None,
            },
        }
    }

    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    pub fn contains(&self, row: &[u8]) -> bool {
        *row >= *self.start && self.end.as_ref().is_none_or(|end| row < end.as_slice())
    }

    /// Returns the row if the range contains exactly one.
    pub fn single_row(&self) -> Option<&[u8]> {
        let end = self.end.as_ref()?;
        (end.len() == self.start.len() + 1 && end.ends_with(&[0]) && end.starts_with(&self.start))
            .then_some(&self.start)
    }

    pub fn intersection(&self, other: &RowRange) -> RowRange {
        RowRange {
            start: self.start.clone().max(other.start.clone()),
            end: match (&self.end, &other.end) {
                (Some(a), Some(b)) => Some(a.min(b).clone()),
                (Some(end), None) | (None, Some(end)) => Some(end.clone()),
                (None, None) => None,
            },
        }
    }

    /// Returns the smallest range that contains both.
    pub fn hull(a: Option<RowRange>, b: Option<RowRange>) -> Option<RowRange> {
        let (Some(a), Some(b)) = (&a, &b) else { return a.or(b) };
        Some(RowRange {
            start: a.start.clone().min(b.start.clone()),
            end: a.end.clone().zip(b.end.clone()).map(|(a, b)| a.max(b)),
        })
    }

    pub fn overlaps(&self, other: &RowRange) -> bool {
        let before = |a: &RowRange, b: &RowRange| b.end.as_ref().is_none_or(|end| a.start < *end);
        before(self, self) && before(self, other) && before(other, self) && before(other, other)
    }
}

/// Returns the next row in byte order.
pub fn successor(row: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(row.len() + 1);
    next.extend_from_slice(row);
    next.push(0);
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_ends_at_the_next_prefix() {
        assert_eq!(RowRange::prefix(b"ab"), RowRange::new("ab", "ac"));
        assert_eq!(RowRange::prefix(&[b'a', 0xFF]), RowRange::new([b'a', 0xFF], "b"));
        assert_eq!(RowRange::prefix(&[0xFF, 0xFF]), RowRange::from([0xFF, 0xFF]));
        assert_eq!(RowRange::row(b"x").single_row(), Some(&b"x"[..]));
        assert_eq!(RowRange::new("a", "b").single_row(), None);
    }

    #[test]
    fn ranges_overlap_where_their_intersection_holds_a_row() {
        let ends = [Some("a"), Some("b"), Some("c"), None];
        let all = ["", "a", "b", "c"].into_iter().flat_map(|start| {
            ends.map(|end| RowRange { start: start.into(), end: end.map(Into::into) })
        });
        let all: Vec<RowRange> = all.collect();
        for a in &all {
            for b in &all {
                assert_eq!(a.overlaps(b), !a.intersection(b).is_empty(), "{a:?} {b:?}");
            }
        }
    }
}
