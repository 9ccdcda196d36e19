//! The answers to proposals that have been applied.

use super::lock::Grant;
use crate::key::Kv;

/// The answer to a proposal that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The revision of the store after the proposal.
    pub revision: i64,
    pub reply: Reply,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Put(PutAnswer),
    Delete(DeleteAnswer),
    Txn(TxnAnswer),
    /// Compact, LeaseRevoke, Expire, Alarm, Release, Sample, Waterline, Auth.
    Done,
    LeaseGrant {
        id: i64,
        ttl_seconds: i64,
    },
    /// The transaction was committed at the answer's revision.
    Execute,
    /// `None` means queued; the grant will appear as a lock event.
    Acquire(Option<Grant>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutAnswer {
    pub revision: i64,
    pub prev: Option<Kv>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteAnswer {
    pub revision: i64,
    pub deleted: i64,
    /// In key order; empty unless requested.
    pub prev: Vec<Kv>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeAnswer {
    pub revision: i64,
    pub kvs: Vec<Kv>,
    pub more: bool,
    pub count: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnAnswer {
    pub succeeded: bool,
    pub ops: Vec<OpAnswer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpAnswer {
    Range(RangeAnswer),
    Put(PutAnswer),
    Delete(DeleteAnswer),
    Txn(TxnAnswer),
}
