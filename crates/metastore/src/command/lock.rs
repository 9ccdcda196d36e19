//! Advisory locks in commands and answers.

use bytes::Bytes;

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

/// Whether a lock can have several holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    Shared,
    Exclusive,
}

/// A lock that a session holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub session: i64,
    pub mode: LockMode,
    /// The fencing token: the revision of the grant. Later grants have greater
    /// ones.
    pub token: i64,
}
