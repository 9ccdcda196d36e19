//! Commands that can be proposed, and their answers.
//!
//! A [`Command`] is an operation of the state machine. Values that could differ
//! between members (the time, new ids) are chosen before the command is
//! proposed: `encoding` packs the command and the time into the bytes that the
//! log stores, and applying those bytes gives every member the same [`Answer`].
//! `check` refuses what etcd refuses, and what the storage engine could not
//! apply, before it is proposed.

mod answer;
mod check;
mod decoding;
mod encoding;
mod range;
mod restore;
mod txn;

pub use crate::key::{KeyRange, Kv, RangeEnd};
pub use answer::{
    Alarm, Answer, DeleteAnswer, Grant, LockMode, OpAnswer, PutAnswer, RangeAnswer, Reply,
    TxnAnswer,
};
pub(crate) use check::within;
pub use check::{
    KEY_BYTES_MAX, OWNER_BYTES, PROPOSAL_BYTES_MAX, ROW_BYTES_MAX, check_delete, check_put,
    check_range, check_txn, pack,
};
pub use decoding::{Proposal, decode};
pub use encoding::{VERSION, VERSION_OF_LIMITS, encode};
pub use range::{Order, RangeQuery, Target};
pub use restore::Restore;
pub use txn::{Compare, Delete, Execute, HeldLock, Op, Operand, Put, Relation, Txn, Write};

use bytes::Bytes;

/// An operation of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Put(Put),
    Delete(Delete),
    Txn(Txn),
    Compact {
        revision: i64,
    },
    /// The proposer chooses the id and raises the TTL. A session is also a
    /// lease.
    LeaseGrant {
        id: i64,
        ttl_seconds: i64,
    },
    LeaseRevoke {
        id: i64,
    },
    /// Revokes expired leases; skips those that no longer exist.
    Expire {
        ids: Vec<i64>,
    },
    Alarm(AlarmAction),
    Execute(Execute),
    /// Acquires a lock or queues for it.
    Acquire(Acquire),
    /// Releases a lock or leaves its queue: all calls of the session, or one
    /// cancelled call.
    Release {
        key: Bytes,
        session: i64,
        /// The cancelled call; 0 means all calls of the session.
        call_id: u64,
    },
    /// Records the group clock.
    Sample {
        clock_micros: i64,
    },
    /// Allows history below this revision to be dropped.
    Waterline {
        revision: i64,
    },
    Restore(Restore),
}

/// A call that acquires a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    pub key: Bytes,
    pub session: i64,
    pub mode: LockMode,
    /// Has no effect unless the lock is granted immediately.
    pub no_wait: bool,
    /// Distinguishes the calls of one session; 0 in logs of older versions.
    pub call_id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmAction {
    Activate { member: u64, alarm: Alarm },
    Deactivate { member: u64, alarm: Alarm },
}
