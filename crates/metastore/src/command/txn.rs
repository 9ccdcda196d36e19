//! Writes, and transactions of them: etcd's tree of compares and operations,
//! and the native one that validates the ranges it has read.

use bytes::Bytes;

use super::range::{KeyRange, RangeQuery};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub key: Bytes,
    /// `None` keeps the value that is there.
    pub value: Option<Bytes>,
    /// 0 is no lease; `None` keeps the lease that is there.
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

/// How what is found must stand to what is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Equal,
    Greater,
    Less,
    NotEqual,
    /// A relation of a later protocol: always true, as etcd has it.
    Any,
}

/// What of a key is compared, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    Version(i64),
    Create(i64),
    Mod(i64),
    Value(Bytes),
    Lease(i64),
    /// A target of a later protocol: found and given count as equal.
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
    /// All must hold; none is true.
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
    /// Whether it compares more than single keys.
    pub fn compares_ranges(&self) -> bool {
        let nested = |op: &Op| matches!(op, Op::Txn(txn) if txn.compares_ranges());
        self.compares.iter().any(|compare| compare.range.single_key().is_none())
            || self.success.iter().chain(&self.failure).any(nested)
    }

    /// Whether it compares or reads more than single keys.
    pub fn reads_ranges(&self) -> bool {
        let wide = |op: &Op| match op {
            Op::Range(query) => query.range.single_key().is_none(),
            Op::Txn(txn) => txn.reads_ranges(),
            Op::Put(_) | Op::Delete(_) => false,
        };
        self.compares.iter().any(|compare| compare.range.single_key().is_none())
            || self.success.iter().chain(&self.failure).any(wide)
    }

    /// Whether neither branch can change anything.
    pub fn is_read_only(&self) -> bool {
        self.success.iter().chain(&self.failure).all(|op| match op {
            Op::Range(_) => true,
            Op::Put(_) | Op::Delete(_) => false,
            Op::Txn(txn) => txn.is_read_only(),
        })
    }
}

/// A serializable transaction: its writes happen if and only if no key in the
/// ranges changed after `read_revision`, not even to be put and deleted again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Execute {
    pub read_revision: i64,
    pub reads: Vec<KeyRange>,
    /// At most one write per key.
    pub writes: Vec<Write>,
    /// Locks that must be held for the transaction to happen.
    pub locks: Vec<HeldLock>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: Bytes,
    /// `None` deletes.
    pub value: Option<Bytes>,
    /// The lease that the key goes with; 0 is none.
    pub lease: i64,
}

/// A lock that a session must hold, by the grant that gave this token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    pub key: Bytes,
    pub session: i64,
    pub token: i64,
}
