//! Commands that can be proposed, and their answers.
//!
//! A [`Command`] is an operation of the state machine. Values that could differ
//! between members (the time, new ids) are chosen before the command is
//! proposed: `encoding` packs the command and the time into the bytes that the
//! log stores, and applying those bytes gives every member the same [`Answer`].
//! `check` refuses what etcd refuses, and what the storage engine could not
//! apply, before it is proposed.

mod alarm;
mod answer;
mod auth;
mod check;
mod decoding;
mod describe;
mod encoding;
mod level;
mod lock;
mod operation;
mod quota;
mod range;
mod restore;
mod txn;

pub use crate::key::{KeyRange, Kv, RangeEnd};
pub use alarm::{ActiveAlarm, Alarm, AlarmAction};
pub use answer::{Answer, DeleteAnswer, OpAnswer, PutAnswer, RangeAnswer, Reply, TxnAnswer};
pub use auth::{AuthCommand, Caller};
pub(crate) use check::within;
pub use check::{
    KEY_BYTES_MAX, OWNER_BYTES, PROPOSAL_BYTES_MAX, ROW_BYTES_MAX, check_delete, check_put,
    check_range, check_txn, pack, pack_as,
};
pub use decoding::{Proposal, decode};
pub use encoding::{VERSION, VERSION_OF_LIMITS, encode, encode_as};
pub use level::{
    LEVEL_BASE, LEVEL_MAX, LEVEL_OF_DEADLINES, LEVEL_OF_HASHES, check_level, check_level_of,
};
pub use lock::{Acquire, Grant, LockMode};
pub use operation::Command;
pub use quota::{QUOTA_PREFIX_BYTES_MAX, Quota, check_quota};
pub use range::{Order, RangeQuery, Target};
pub use restore::{Restore, RestoreHistory, RestoredChange, RestoredVersion};
pub use txn::{Compare, Delete, Execute, HeldLock, Op, Operand, Put, Relation, Txn, Write};
