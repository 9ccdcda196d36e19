//! What can go wrong with names, and what each means to a caller.

use stele_bigtable::client as bigtable;
use tonic::{Code, Status};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The header that tells a client which of these it was.
pub const KIND_HEADER: &str = "stele-name-error";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the address {server:?} cannot be mounted: {why}")]
    MalformedAddress { server: String, why: String },
    #[error("the name {name:?} cannot be used: {why}")]
    InvalidName { name: String, why: String },
    #[error("the pattern {pattern:?} cannot be used: {why}")]
    BadPattern { pattern: String, why: String },
    #[error("the permissions cannot be used: {0}")]
    BadPermissions(String),
    #[error("{name} has children: delete the subtree, or them first")]
    NotEmpty { name: String },
    /// Somebody else changed the row: the operation begins again.
    #[error("{name} is being changed by others")]
    Conflict { name: String },
    #[error("{user} has {limit} nodes, which is the limit")]
    NodeLimit { user: String, limit: i64 },
    #[error("the nodes of {user} have {limit} servers, which is the limit")]
    ServerLimit { user: String, limit: i64 },
    #[error("{who} may not do this at {name}: {tag} is needed")]
    NoPermissions { name: String, tag: &'static str, who: String },
    #[error("the root cannot be deleted")]
    NoAccess,
    #[error("the permissions of {name} are not of that version: get them again")]
    BadVersion { name: String },
    #[error("there is no {name:?}")]
    NoSuchName { name: String },
    #[error("there is no root node: set the tables up first")]
    NoSuchNameRoot,
    #[error("{name}: no result before the deadline")]
    Aborted { name: String },
    #[error("{what} is more than {limit}")]
    TooMany { what: &'static str, limit: usize },
    #[error("{0}")]
    Unauthenticated(String),
    #[error("the row of {row} cannot be understood: {what}; see fsck")]
    Damaged { row: String, what: String },
    /// A client needs the address of a server and got a name without.
    #[error("{0} is not rooted: begin it with /host:port")]
    NotRooted(String),
    #[error("{name} leads from server to server without end")]
    TooDeep { name: String },
    #[error("no mounttable is responsible for {name}")]
    NoMounttable { name: String },
    #[error(
        "the token would be sent to {server} in plain text: use TLS or a loopback address, or \
         allow it with --insecure-token"
    )]
    TokenInPlainText { server: String },
    /// No server of a name could be asked.
    #[error("cannot reach {server}: {why}")]
    Unreachable { server: String, why: String },
    /// A server of names refused; `kind` is what it calls the reason.
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

    /// One word for each kind, by which clients know it.
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

    /// True if a write may have happened although this came back.
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
