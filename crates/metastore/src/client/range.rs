//! Ranges of keys, as callers specify them.

use bytes::Bytes;

use crate::proto::native::{self as proto, key_range::Bound};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    Key(Bytes),
    Prefix(Bytes),
    /// From the first key up to but excluding the second.
    Between(Bytes, Bytes),
    /// From this key on.
    From(Bytes),
}

impl Range {
    pub fn key(key: impl Into<Bytes>) -> Range {
        Range::Key(key.into())
    }

    pub fn prefix(prefix: impl Into<Bytes>) -> Range {
        Range::Prefix(prefix.into())
    }

    pub fn between(start: impl Into<Bytes>, end: impl Into<Bytes>) -> Range {
        Range::Between(start.into(), end.into())
    }

    pub fn all() -> Range {
        Range::From(Bytes::new())
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            Range::Key(single) => key == single,
            Range::Prefix(prefix) => key.starts_with(prefix),
            Range::Between(start, end) => key >= &start[..] && key < &end[..],
            Range::From(start) => key >= &start[..],
        }
    }
}

impl From<Range> for proto::KeyRange {
    fn from(range: Range) -> proto::KeyRange {
        let (start, bound) = match range {
            Range::Key(key) => (key, Bound::Single(true)),
            Range::Prefix(prefix) => (prefix, Bound::Prefix(true)),
            Range::Between(start, end) => (start, Bound::End(end)),
            Range::From(start) => (start, Bound::Unbounded(true)),
        };
        proto::KeyRange { start, bound: Some(bound) }
    }
}
