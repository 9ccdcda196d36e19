//! What a proposal says and what it is answered.
//!
//! A [`Command`] is all that the state machine can be asked to do. Whatever is
//! not the same on every member (the time, new ids) is chosen before the
//! command is proposed: `encoding` packs it together with the time into the
//! bytes that the log keeps, and applying those bytes gives every member the
//! same [`Answer`]. `check` refuses what etcd refuses, and what the storage engine
//! could not apply, before it is proposed.

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
pub(crate) use check::within;
pub use check::{
    KEY_BYTES_MAX, OWNER_BYTES, PROPOSAL_BYTES_MAX, ROW_BYTES_MAX, check_delete, check_put,
    check_range, check_txn, pack,
};
pub use decoding::{Proposal, decode};
pub use encoding::{VERSION, VERSION_OF_BOUNDS, encode};
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
    Acquire(Acquire),
    /// Gives a lock back, or leaves its queue: all calls of the session, or
    /// one that was cancelled.
    Release {
        key: Bytes,
        session: i64,
        /// The call that was cancelled; 0: all of the session.
        place: u64,
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

/// One call that wants a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    pub key: Bytes,
    pub session: i64,
    pub mode: LockMode,
    /// Leaves no trace unless the lock is granted at once.
    pub no_wait: bool,
    /// Tells the calls of one session apart; 0 in logs of older versions.
    pub place: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmAction {
    Activate { member: u64, alarm: Alarm },
    Deactivate { member: u64, alarm: Alarm },
}
