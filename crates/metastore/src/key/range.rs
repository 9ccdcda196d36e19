//! Ranges of keys.

use bytes::Bytes;
use stele_engine::RowRange;

/// The keys from `start` to `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub start: Bytes,
    pub end: RangeEnd,
}

/// The end of a range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeEnd {
    /// The range contains only its start.
    Single,
    /// Keys below this one.
    Before(Bytes),
    /// All keys from the start on.
    Unbounded,
}

impl KeyRange {
    pub fn single(key: impl Into<Bytes>) -> KeyRange {
        KeyRange { start: key.into(), end: RangeEnd::Single }
    }

    pub fn all() -> KeyRange {
        KeyRange { start: Bytes::new(), end: RangeEnd::Unbounded }
    }

    /// Converts etcd's pair: without an end it is one key, an end of one zero
    /// byte is all keys from the start on.
    pub fn from_wire(key: Bytes, range_end: Bytes) -> KeyRange {
        let end = match &range_end[..] {
            [] => RangeEnd::Single,
            [0] => RangeEnd::Unbounded,
            _ => RangeEnd::Before(range_end),
        };
        KeyRange { start: key, end }
    }

    /// Returns the range of all keys with a prefix.
    pub fn prefix(prefix: impl Into<Bytes>) -> KeyRange {
        let start = prefix.into();
        let end = RowRange::prefix(&start).end;
        KeyRange { end: end.map_or(RangeEnd::Unbounded, |end| RangeEnd::Before(end.into())), start }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            RangeEnd::Single => key == self.start,
            RangeEnd::Before(end) => key >= &self.start[..] && key < &end[..],
            RangeEnd::Unbounded => key >= &self.start[..],
        }
    }

    /// Returns whether the range cannot contain any key.
    pub fn is_empty(&self) -> bool {
        matches!(&self.end, RangeEnd::Before(end) if end <= &self.start)
    }

    /// Returns the key, if the range is a single key.
    pub fn single_key(&self) -> Option<&Bytes> {
        matches!(self.end, RangeEnd::Single).then_some(&self.start)
    }

    /// Returns the engine rows that hold these keys.
    pub fn rows(&self) -> RowRange {
        match &self.end {
            RangeEnd::Single => RowRange::row(&self.start),
            RangeEnd::Before(end) => RowRange::new(&self.start[..], &end[..]),
            RangeEnd::Unbounded => RowRange::from(&self.start[..]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(key: &'static [u8], end: &'static [u8]) -> KeyRange {
        KeyRange::from_wire(Bytes::from_static(key), Bytes::from_static(end))
    }

    #[test]
    fn the_end_of_a_range_is_read_as_etcd_reads_it() {
        assert_eq!(wire(b"a", b"").single_key().unwrap(), "a");
        assert!(wire(b"a", b"\0").contains(b"\xFF\xFF"));
        assert!(!wire(b"b", b"\0").contains(b"a"));
        assert!(wire(b"\0", b"\0").contains(b"\0"));
        assert!(wire(b"a", b"c").contains(b"b") && !wire(b"a", b"c").contains(b"c"));
        assert!(wire(b"c", b"a").is_empty() && !wire(b"c", b"a").contains(b"b"));
    }

    #[test]
    fn a_prefix_holds_what_starts_with_it() {
        let range = KeyRange::prefix(&b"a\xFF"[..]);
        assert!(range.contains(b"a\xFF") && range.contains(b"a\xFFz") && !range.contains(b"b"));
        assert!(KeyRange::prefix(&b"\xFF"[..]).contains(b"\xFF\xFF"));
    }
}
