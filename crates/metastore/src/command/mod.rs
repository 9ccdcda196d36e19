//! What a proposal says and what it is answered.
//!
//! A [`Command`] is all that the state machine can be asked to do. Whatever is
//! not the same on every member (the time, new ids) is chosen before the
//! command is proposed: `encoding` packs it together with the time into the
//! bytes that the log keeps, and applying those bytes gives every member the
//! same [`Answer`]. `check` refuses what etcd refuses before it proposes.

mod answer;
mod check;
mod decoding;
mod encoding;
mod range;
mod restore;
mod txn;

pub use answer::{
    Alarm, Answer, DeleteAnswer, Grant, Kv, LockMode, OpAnswer, PutAnswer, RangeAnswer, Reply,
    TxnAnswer,
};
pub use check::{check_delete, check_put, check_range, check_txn};
pub use decoding::{Proposal, decode};
pub use encoding::encode;
pub use range::{KeyRange, Order, RangeEnd, RangeQuery, Target};
pub use restore::Restore;
pub use txn::{Compare, Delete, Execute, HeldLock, Op, Operand, Put, Relation, Txn, Write};

use bytes::Bytes;

/// All that can be proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Put(Put),
    Delete(Delete),
    Txn(Txn),
    Compact {
        revision: i64,
    },
    /// The id and the raised TTL are chosen by who proposes. A session is a
    /// lease too.
    LeaseGrant {
        id: i64,
        ttl_seconds: i64,
    },
    LeaseRevoke {
        id: i64,
    },
    /// Revokes leases that ran out; those that are gone already are passed over.
    Expire {
        ids: Vec<i64>,
    },
    Alarm(AlarmAction),
    Execute(Execute),
    /// Takes a lock or queues for it.
    Acquire {
        key: Bytes,
        session: i64,
        mode: LockMode,
    },
    /// Gives a lock back, or leaves its queue.
    Release {
        key: Bytes,
        session: i64,
    },
    /// The retention clock has come this far.
    Sample {
        clock_micros: i64,
    },
    /// History below this revision may go.
    Waterline {
        revision: i64,
    },
    Restore(Restore),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmAction {
    Activate { member: u64, alarm: Alarm },
    Deactivate { member: u64, alarm: Alarm },
}
