//! The errors of the metastore, with the status code and the exact text that
//! etcd's clients compare against. Services convert an [`Error`] into a status.

use std::sync::Arc;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The gRPC status codes in use, with their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

/// A refusal or failure. Cheap to clone, because one failed sync is reported to
/// every waiter.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("etcdserver: key is not provided")]
    EmptyKey,
    #[error("etcdserver: key not found")]
    KeyNotFound,
    #[error("etcdserver: value is provided")]
    ValueProvided,
    #[error("etcdserver: lease is provided")]
    LeaseProvided,
    #[error("etcdserver: too many operations in txn request")]
    TooManyOps,
    #[error("etcdserver: duplicate key given in txn request")]
    DuplicateKey,
    #[error("etcdserver: invalid sort option")]
    InvalidSort,
    #[error("etcdserver: request is too large")]
    RequestTooLarge,
    #[error("etcdserver: requested lease not found")]
    LeaseNotFound,
    #[error("etcdserver: lease already exists")]
    LeaseExists,
    #[error("etcdserver: too large lease TTL")]
    LeaseTtlTooLarge,
    /// Watchers report the compacted revision to their clients.
    #[error("etcdserver: mvcc: required revision has been compacted")]
    Compacted { compacted: i64 },
    #[error("etcdserver: mvcc: required revision is a future revision")]
    FutureRevision,
    #[error("etcdserver: mvcc: database space exceeded")]
    NoSpace,
    #[error("etcdserver: too many requests")]
    TooManyRequests,
    #[error("etcdserver: corrupt cluster")]
    Corrupt,
    #[error("etcdserver: member not found")]
    MemberNotFound,
    #[error("etcdserver: member ID already exist")]
    MemberExists,
    #[error("etcdserver: Peer URLs already exists")]
    PeerUrlsExist,
    #[error("etcdserver: given member URLs are invalid")]
    InvalidMemberUrls,
    #[error("etcdserver: re-configuration failed due to not enough started members")]
    NotEnoughStarted,
    #[error("etcdserver: unhealthy cluster")]
    Unhealthy,
    #[error("etcdserver: can only promote a learner member")]
    NotLearner,
    #[error("etcdserver: can only promote a learner member which is in sync with leader")]
    LearnerNotReady,
    #[error("etcdserver: too many learner members in cluster")]
    TooManyLearners,
    #[error("etcdserver: rpc not supported for learner")]
    NotForLearner,
    /// The member cannot come back under its id.
    #[error(
        "member {member:x} has been removed from the cluster: its data directory is of no further use; to bring the machine back, add a new member and start it with an empty directory"
    )]
    Removed { member: u64 },
    #[error("etcdserver: no leader")]
    NoLeader,
    #[error("etcdserver: not leader")]
    NotLeader,
    #[error("etcdserver: leader changed")]
    LeaderChanged,
    #[error("etcdserver: server stopped")]
    Stopped,
    #[error("etcdserver: request timed out")]
    Timeout,
    /// The outcome is unknown, as after the timeout.
    #[error("etcdserver: request timed out, possibly due to previous leader failure")]
    LeaderFailed,
    #[error("etcdserver: request timed out, possibly due to connection lost")]
    ConnectionLost,
    #[error("etcdserver: cluster ID mismatch")]
    ClusterMismatch,
    /// A key in a range that the transaction read has changed since.
    #[error(
        "the transaction read at revision {read_revision}, but key \"{}\" changed at revision {changed}: read again and retry",
        key.escape_ascii()
    )]
    Conflict { read_revision: i64, key: bytes::Bytes, changed: i64 },
    /// A transaction claims to have read at a revision that does not exist yet.
    #[error("the transaction read at revision {revision}, but the newest is {newest}")]
    FutureRead { revision: i64, newest: i64 },
    /// History before the waterline has been dropped.
    #[error("revision {revision} is older than the retained history, which begins at {waterline}")]
    TooOld { revision: i64, waterline: i64 },
    /// No history is retained from the requested time.
    #[error("no history is retained from that time: it begins at revision {waterline}")]
    TimeTooOld { waterline: i64 },
    #[error("the session does not hold the lock \"{}\"", key.escape_ascii())]
    LockNotHeld { key: bytes::Bytes },
    #[error(
        "the session already holds or waits for the lock \"{}\" in a different mode",
        key.escape_ascii()
    )]
    LockModeDiffers { key: bytes::Bytes },
    /// Another call of the session released all of its waiting requests.
    #[error(
        "the session released the lock \"{}\" while this call was waiting for it: acquire it again",
        key.escape_ascii()
    )]
    LockGivenUp { key: bytes::Bytes },
    #[error("{what}: {size} is over the limit of {limit}")]
    Limit { what: &'static str, size: u64, limit: u64 },
    /// The bytes are not a valid proposal.
    #[error("malformed proposal: {0}")]
    Malformed(&'static str),
    /// An entry of the log has a format that this version does not know.
    /// Skipping it would lose an acknowledged write.
    #[error(
        "log entry {index} cannot be read ({why}): it was written by a newer version of stele; open this directory with that version"
    )]
    UnknownEntry { index: u64, why: String },
    /// A command needs a feature level that the group has not reached.
    #[error(
        "this needs feature level {needed}, but the metastore is at level {level}: upgrade all members, then raise it with `stele metastore level --raise {needed}`"
    )]
    LevelTooLow { needed: u32, level: u32 },
    #[error("feature level {level} is unknown: this version of stele knows levels 1 to {known}")]
    UnknownLevel { level: u32, known: u32 },
    /// A put would exceed the quota of a prefix.
    #[error(
        "etcdserver: quota of prefix \"{}\" exceeded: {size} {what} is over the limit of {limit}: delete keys with this prefix or raise its quota",
        prefix.escape_ascii()
    )]
    PrefixQuota { prefix: bytes::Bytes, what: &'static str, size: i64, limit: i64 },
    #[error("no quota of prefix \"{}\" found", prefix.escape_ascii())]
    QuotaNotFound { prefix: bytes::Bytes },
    /// The data directory or a setting is invalid.
    #[error("{0}")]
    Config(String),
    /// A refusal of a caller, or of a change to users and roles.
    #[error(transparent)]
    Auth(#[from] crate::auth::AuthError),
    #[error("etcdserver: bad leader transferee")]
    BadTransferee,
    #[error("etcdserver: wrong downgrade target version format")]
    DowngradeFormat,
    #[error("etcdserver: invalid downgrade target version")]
    DowngradeTarget,
    #[error("etcdserver: no inflight downgrade job")]
    NoDowngrade,
    /// A lock or an election was lost; the text is etcd's.
    #[error("{0}")]
    Recipe(&'static str),
    /// A violated invariant; the text describes it.
    #[error("internal: {0}")]
    Internal(String),
    #[error("{0}")]
    Engine(Arc<stele_engine::Error>),
}

impl From<stele_engine::Error> for Error {
    fn from(error: stele_engine::Error) -> Error {
        Error::Engine(Arc::new(error))
    }
}

impl Error {
    /// Returns the status code of the error on the wire.
    pub fn code(&self) -> Code {
        match self {
            Error::EmptyKey
            | Error::KeyNotFound
            | Error::ValueProvided
            | Error::LeaseProvided
            | Error::TooManyOps
            | Error::DuplicateKey
            | Error::InvalidSort
            | Error::RequestTooLarge
            | Error::FutureRead { .. }
            | Error::Limit { .. }
            | Error::InvalidMemberUrls
            | Error::DowngradeFormat
            | Error::DowngradeTarget
            | Error::UnknownLevel { .. }
            | Error::Malformed(_) => Code::InvalidArgument,
            Error::LeaseNotFound | Error::MemberNotFound | Error::QuotaNotFound { .. } => {
                Code::NotFound
            }
            Error::LeaseExists
            | Error::MemberExists
            | Error::PeerUrlsExist
            | Error::NotEnoughStarted
            | Error::NotLearner
            | Error::LearnerNotReady
            | Error::TooManyLearners
            | Error::NotForLearner
            | Error::NotLeader
            | Error::ClusterMismatch
            | Error::LockNotHeld { .. }
            | Error::LockModeDiffers { .. }
            | Error::UnknownEntry { .. }
            | Error::BadTransferee
            | Error::NoDowngrade
            | Error::LevelTooLow { .. }
            | Error::Config(_) => Code::FailedPrecondition,
            Error::LeaseTtlTooLarge
            | Error::Compacted { .. }
            | Error::FutureRevision
            | Error::TimeTooOld { .. } => Code::OutOfRange,
            Error::NoSpace | Error::TooManyRequests | Error::PrefixQuota { .. } => {
                Code::ResourceExhausted
            }
            Error::Corrupt => Code::DataLoss,
            Error::NoLeader
            | Error::LeaderChanged
            | Error::Stopped
            | Error::Timeout
            | Error::LeaderFailed
            | Error::ConnectionLost
            | Error::Unhealthy
            | Error::Removed { .. } => Code::Unavailable,
            Error::Conflict { .. } | Error::TooOld { .. } | Error::LockGivenUp { .. } => {
                Code::Aborted
            }
            Error::Auth(error) => error.code(),
            Error::Recipe(_) => Code::Unknown,
            Error::Internal(_) => Code::Internal,
            Error::Engine(error) => engine_code(error),
        }
    }
}

fn engine_code(error: &stele_engine::Error) -> Code {
    match error {
        stele_engine::Error::DataLoss { .. } => Code::DataLoss,
        stele_engine::Error::DiskFull { .. } | stele_engine::Error::Overloaded { .. } => {
            Code::ResourceExhausted
        }
        stele_engine::Error::Stopped(_) | stele_engine::Error::Closed => Code::Unavailable,
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::AuthError;

    #[test]
    fn texts_that_clients_match_stand_as_etcd_sends_them() {
        let expected = [
            (Error::EmptyKey, 3, "etcdserver: key is not provided"),
            (Error::LeaseNotFound, 5, "etcdserver: requested lease not found"),
            (Error::NoSpace, 8, "etcdserver: mvcc: database space exceeded"),
            (Error::LeaseExists, 9, "etcdserver: lease already exists"),
            (
                Error::Compacted { compacted: 7 },
                11,
                "etcdserver: mvcc: required revision has been compacted",
            ),
            (Error::FutureRevision, 11, "etcdserver: mvcc: required revision is a future revision"),
            (Error::NoLeader, 14, "etcdserver: no leader"),
            (Error::Unhealthy, 14, "etcdserver: unhealthy cluster"),
            (Error::PeerUrlsExist, 9, "etcdserver: Peer URLs already exists"),
            (Error::InvalidMemberUrls, 3, "etcdserver: given member URLs are invalid"),
            (Error::NotForLearner, 9, "etcdserver: rpc not supported for learner"),
            (AuthError::PermissionDenied.into(), 7, "etcdserver: permission denied"),
            (AuthError::InvalidToken.into(), 16, "etcdserver: invalid auth token"),
            (AuthError::NotEnabled.into(), 9, "etcdserver: authentication is not enabled"),
            (AuthError::UserEmpty.into(), 3, "etcdserver: user name is empty"),
            (AuthError::OldRevision.into(), 3, "etcdserver: revision of auth store is old"),
        ];
        for (error, code, text) in expected {
            assert_eq!((error.code() as i32, error.to_string().as_str()), (code, text));
        }
    }
}
