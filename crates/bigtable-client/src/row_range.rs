//! Ranges of rows, and what remains of them during a read.

use bytes::Bytes;

use stele_bigtable_proto::v2;
use stele_bigtable_proto::v2::row_range::{EndKey, StartKey};

/// The rows from `start` (inclusive) to `end` (exclusive); without an end, to the
/// end of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRange {
    pub start: Bytes,
    pub end: Option<Bytes>,
}

impl RowRange {
    /// Returns the range of all rows.
    pub fn all() -> RowRange {
        RowRange { start: Bytes::new(), end: None }
    }

    /// Returns the range from `start` (inclusive) to `end` (exclusive).
    pub fn new(start: impl Into<Bytes>, end: impl Into<Bytes>) -> RowRange {
        RowRange { start: start.into(), end: Some(end.into()) }
    }

    /// Returns the range from `start` to the end of the table.
    pub fn from(start: impl Into<Bytes>) -> RowRange {
        RowRange { start: start.into(), end: None }
    }

    /// Returns the range from the beginning of the table to `end` (exclusive).
    pub fn until(end: impl Into<Bytes>) -> RowRange {
        RowRange::new(Bytes::new(), end)
    }

    /// Returns the range of all rows whose keys begin with `prefix`.
    pub fn prefix(prefix: impl Into<Bytes>) -> RowRange {
        let start = prefix.into();
        let end = after_prefix(&start);
        RowRange { start, end }
    }

    /// Returns whether the range contains no key.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// Returns whether the range contains `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start <= key && self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    /// Returns what a read still has to cover after `key`, in its direction.
    pub(crate) fn beyond(mut self, key: &[u8], reversed: bool) -> RowRange {
        if reversed {
            if self.end.as_ref().is_none_or(|end| key < &end[..]) {
                self.end = Some(Bytes::copy_from_slice(key));
            }
        } else if self.start <= key {
            self.start = successor(key);
        }
        self
    }

    pub(crate) fn message(&self) -> v2::RowRange {
        v2::RowRange {
            start_key: Some(StartKey::StartKeyClosed(self.start.clone())),
            end_key: self.end.clone().map(EndKey::EndKeyOpen),
        }
    }
}

/// Returns the first key after `key`.
fn successor(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// Returns the first key after all keys that begin with `prefix`, if there is
/// one.
fn after_prefix(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_covers_exactly_the_keys_that_begin_with_it() {
        assert_eq!(RowRange::prefix("ab"), RowRange::new("ab", "ac"));
        assert_eq!(RowRange::prefix(&b"a\xff\xff"[..]), RowRange::new(&b"a\xff\xff"[..], "b"));
        assert_eq!(RowRange::prefix(&b"\xff"[..]), RowRange::from(&b"\xff"[..]));
        assert_eq!(RowRange::prefix(""), RowRange::all());
        assert!(RowRange::prefix("ab").contains(b"ab\xff\xff"));
        assert!(!RowRange::prefix("ab").contains(b"ac"));
    }

    #[test]
    fn the_remaining_range_begins_right_after_the_last_key() {
        let left = |key: &[u8], reversed| RowRange::new("b", "f").beyond(key, reversed);
        assert_eq!(left(b"a", false), RowRange::new("b", "f"));
        assert_eq!(left(b"b", false), RowRange::new("b\0", "f"));
        assert_eq!(left(b"d", false), RowRange::new("d\0", "f"));
        assert!(left(b"f", false).is_empty());
        assert_eq!(left(b"d", true), RowRange::new("b", "d"));
        assert_eq!(left(b"g", true), RowRange::new("b", "f"));
        assert!(left(b"b", true).is_empty());
        assert_eq!(RowRange::all().beyond(b"m", true), RowRange::until("m"));
        assert_eq!(RowRange::all().beyond(b"m", false), RowRange::from("m\0"));
    }
}
