//! Errors of the naming service and their gRPC codes.

use stele_bigtable_client as bigtable;
use tonic::{Code, Status};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The header that contains the kind of error.
pub const KIND_HEADER: &str = "stele-name-error";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("invalid server address {server:?}: {why}")]
    MalformedAddress { server: String, why: String },
    #[error("invalid name {name:?}: {why}")]
    InvalidName { name: String, why: String },
    #[error("invalid pattern {pattern:?}: {why}")]
    BadPattern { pattern: String, why: String },
    #[error("invalid permissions: {0}")]
    BadPermissions(String),
    #[error("{name} has children: delete them first, or delete the subtree")]
    NotEmpty { name: String },
    /// Another operation changed the row: the operation starts again.
    #[error("{name} is being changed concurrently: try again")]
    Conflict { name: String },
    #[error("{user} has reached the limit of {limit} nodes")]
    NodeLimit { user: String, limit: i64 },
    #[error("the nodes of {user} have reached the limit of {limit} servers")]
    ServerLimit { user: String, limit: i64 },
    #[error("permission denied for {who} at {name}: requires {tag}")]
    NoPermissions { name: String, tag: &'static str, who: String },
    #[error("the root cannot be deleted")]
    NoAccess,
    #[error("version mismatch: the permissions of {name} have changed, read them again")]
    BadVersion { name: String },
    #[error("name {name:?} not found")]
    NoSuchName { name: String },
    #[error("root node not found: set up the tables first")]
    NoSuchNameRoot,
    #[error("{name}: deadline exceeded")]
    Aborted { name: String },
    #[error("{what} exceeds the limit of {limit}")]
    TooMany { what: &'static str, limit: usize },
    #[error("{0}")]
    Unauthenticated(String),
    #[error("row {row} is damaged: {what}; run `stele name fsck`")]
    Damaged { row: String, what: String },
    /// A client needs the address of a server but got a name without one.
    #[error("{0} is not a rooted name: start it with /host:port")]
    NotRooted(String),
    #[error("{name} passes through too many servers: the mounts may form a loop")]
    TooDeep { name: String },
    #[error("no mounttable found for {name}")]
    NoMounttable { name: String },
    #[error(
        "the token would be sent to {server} in plain text: use TLS or a loopback address, or \
         allow it with --insecure-token"
    )]
    TokenInPlainText { server: String },
    /// No server of a name could be reached.
    #[error("cannot reach {server}: {why}")]
    Unreachable { server: String, why: String },
    /// A naming server rejected the call; `kind` is its kind of error.
    #[error("{message}")]
    Refused { server: String, code: Code, kind: String, message: String },
    #[error("storage: {0}")]
    Storage(#[from] bigtable::Error),
}

impl Error {
    pub fn code(&self) -> Code {
        match self {
            Error::MalformedAddress { .. }
            | Error::InvalidName { .. }
            | Error::BadPattern { .. }
            | Error::BadPermissions(_) => Code::InvalidArgument,
            Error::NotEmpty { .. } => Code::FailedPrecondition,
            Error::Conflict { .. } | Error::BadVersion { .. } => Code::Aborted,
            Error::NodeLimit { .. } | Error::ServerLimit { .. } | Error::TooMany { .. } => {
                Code::ResourceExhausted
            }
            Error::NoPermissions { .. } | Error::NoAccess => Code::PermissionDenied,
            Error::NoSuchName { .. } | Error::NoSuchNameRoot => Code::NotFound,
            Error::Aborted { .. } => Code::DeadlineExceeded,
            Error::NotRooted(_) | Error::TokenInPlainText { .. } => Code::InvalidArgument,
            Error::TooDeep { .. } | Error::NoMounttable { .. } => Code::FailedPrecondition,
            Error::Unreachable { .. } => Code::Unavailable,
            Error::Refused { code, .. } => *code,
            Error::Unauthenticated(_) => Code::Unauthenticated,
            Error::Damaged { .. } => Code::DataLoss,
            Error::Storage(error) => match error.code() {
                Code::NotFound => Code::FailedPrecondition,
                code => code,
            },
        }
    }

    /// Returns the kind of error as one word, which clients compare.
    pub fn kind(&self) -> &str {
        match self {
            Error::MalformedAddress { .. } => "MalformedAddress",
            Error::InvalidName { .. } => "InvalidName",
            Error::BadPattern { .. } => "BadPattern",
            Error::BadPermissions(_) => "BadPermissions",
            Error::NotEmpty { .. } => "NotEmpty",
            Error::Conflict { .. } => "Conflict",
            Error::NodeLimit { .. } => "NodeLimit",
            Error::ServerLimit { .. } => "ServerLimit",
            Error::NoPermissions { .. } => "NoPermissions",
            Error::NoAccess => "NoAccess",
            Error::BadVersion { .. } => "BadVersion",
            Error::NoSuchName { .. } => "NoSuchName",
            Error::NoSuchNameRoot => "NoSuchNameRoot",
            Error::Aborted { .. } => "Aborted",
            Error::TooMany { .. } => "TooMany",
            Error::Unauthenticated(_) => "Unauthenticated",
            Error::Damaged { .. } => "Damaged",
            Error::NotRooted(_) => "NotRooted",
            Error::TokenInPlainText { .. } => "TokenInPlainText",
            Error::TooDeep { .. } => "TooDeep",
            Error::NoMounttable { .. } => "NoMounttable",
            Error::Unreachable { .. } => "Unreachable",
            Error::Refused { kind, .. } => kind,
            Error::Storage(_) => "Storage",
        }
    }

    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict { .. })
    }

    /// Returns true if a write may have happened despite this error.
    pub fn is_unclear(&self) -> bool {
        let Error::Storage(error) = self else { return false };
        matches!(
            error.code(),
            Code::Unavailable
                | Code::DeadlineExceeded
                | Code::Cancelled
                | Code::Unknown
                | Code::Internal
        )
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        let mut status = Status::new(error.code(), error.to_string());
        if let Ok(kind) = error.kind().parse() {
            status.metadata_mut().insert(KIND_HEADER, kind);
        }
        status
    }
}
