//! The operations of the state machine.

use bytes::Bytes;

use super::alarm::AlarmAction;
use super::auth::AuthCommand;
use super::lock::Acquire;
use super::quota::Quota;
use super::restore::{Restore, RestoreHistory};
use super::txn::{Delete, Execute, Put, Txn};

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
    Auth(AuthCommand),
    /// Raises the feature level of the group. A lower level changes nothing.
    RaiseLevel {
        level: u32,
    },
    /// Sets the quota of a prefix; `None` removes it.
    SetQuota {
        prefix: Bytes,
        quota: Option<Quota>,
    },
    RestoreHistory(RestoreHistory),
    /// Records the group clock, and the deadlines of leases by it. Skips leases
    /// that no longer exist.
    LeaseDeadlines {
        clock_micros: i64,
        /// Ids and deadlines.
        deadlines: Vec<(i64, i64)>,
    },
}
