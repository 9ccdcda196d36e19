//! Writes and transactions: etcd's tree of compares and operations, and the
//! native one that validates the ranges it has read.

use bytes::Bytes;

use super::range::RangeQuery;
use crate::key::KeyRange;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub key: Bytes,
    /// `None` keeps the existing value.
    pub value: Option<Bytes>,
    /// 0 means no lease; `None` keeps the existing lease.
    pub lease: Option<i64>,
    pub prev_kv: bool,
}

impl Put {
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Put {
        Put { key: key.into(), value: Some(value.into()), lease: Some(0), prev_kv: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    pub range: KeyRange,
    pub prev_kv: bool,
}

impl Delete {
    pub fn new(range: KeyRange) -> Delete {
        Delete { range, prev_kv: false }
    }
}

/// The relation of the stored operand to the given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Equal,
    Greater,
    Less,
    NotEqual,
    /// A relation of a later protocol: always true, as in etcd.
    Any,
}

/// The compared field, and the value to compare it with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    Version(i64),
    Create(i64),
    Mod(i64),
    Value(Bytes),
    Lease(i64),
    /// A field of a later protocol: compares as equal.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    pub range: KeyRange,
    pub relation: Relation,
    pub operand: Operand,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// All must hold; an empty list holds.
    pub compares: Vec<Compare>,
    pub success: Vec<Op>,
    pub failure: Vec<Op>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Range(RangeQuery),
    Put(Put),
    Delete(Delete),
    Txn(Txn),
}

impl Txn {
    /// Returns whether it compares more than single keys.
    pub fn compares_ranges(&self) -> bool {
        let nested = |op: &Op| matches!(op, Op::Txn(txn) if txn.compares_ranges());
        self.compares.iter().any(|compare| compare.range.single_key().is_none())
            || self.success.iter().chain(&self.failure).any(nested)
    }

    /// Returns whether it compares or reads more than single keys.
    pub fn reads_ranges(&self) -> bool {
        let wide = |op: &Op| match op {
            Op::Range(query) => query.range.single_key().is_none(),
            Op::Txn(txn) => txn.reads_ranges(),
            Op::Put(_) | Op::Delete(_) => false,
        };
        self.compares.iter().any(|compare| compare.range.single_key().is_none())
            || self.success.iter().chain(&self.failure).any(wide)
    }

    /// Returns whether neither branch can change anything.
    pub fn is_read_only(&self) -> bool {
        self.success.iter().chain(&self.failure).all(|op| match op {
            Op::Range(_) => true,
            Op::Put(_) | Op::Delete(_) => false,
            Op::Txn(txn) => txn.is_read_only(),
        })
    }
}

/// A serializable transaction: it is committed if and only if no key in the
/// ranges changed after `read_revision`, not even by a put and a delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Execute {
    pub read_revision: i64,
    pub reads: Vec<KeyRange>,
    /// At most one write per key.
    pub writes: Vec<Write>,
    /// Locks that must be held for the transaction to commit.
    pub locks: Vec<HeldLock>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: Bytes,
    /// `None` deletes.
    pub value: Option<Bytes>,
    /// The lease to attach the key to; 0 is none.
    pub lease: i64,
}

/// A lock that a session must hold, by the grant with this token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    pub key: Bytes,
    pub session: i64,
    pub token: i64,
}
