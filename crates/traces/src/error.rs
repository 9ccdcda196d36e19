//! Errors of traces, with messages that say what to do. Each kind has one HTTP status.

use stele_bigtable_client as client;
use tonic::Code;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The request is invalid and will fail again if it is repeated.
    #[error("{0}")]
    Invalid(String),
    /// No commit with that hash or index is registered.
    #[error("unknown commit {0}: register it first, with --repo or by a POST to commits")]
    UnknownCommit(String),
    /// A table, trace or page does not exist.
    #[error("{0}")]
    NotFound(String),
    /// A concurrent change came first.
    #[error("{0}")]
    Conflict(String),
    /// A request or its result exceeds a limit.
    #[error("{0}")]
    TooLarge(String),
    /// Other requests hold the required resources; a retry may succeed.
    #[error("{0}")]
    Busy(String),
    /// Some rows of a bulk write failed; the others are stored.
    #[error("{count} of {of} rows were not written; first failed row {}: {why}", .failed[0])]
    Partial {
        /// The names of the first rows that failed.
        failed: Vec<String>,
        /// The total number of rows that failed.
        count: usize,
        of: usize,
        why: client::Error,
    },
    /// A stored row cannot be decoded.
    #[error("{row} is damaged: {what}")]
    Damaged { row: String, what: String },
    #[error(transparent)]
    Rows(#[from] client::Error),
}

impl Error {
    pub fn invalid(what: impl Into<String>) -> Error {
        Error::Invalid(what.into())
    }

    pub fn damaged(row: &[u8], what: impl Into<String>) -> Error {
        Error::Damaged { row: row.escape_ascii().to_string(), what: what.into() }
    }

    /// Returns the HTTP status of this error.
    pub fn status(&self) -> u16 {
        match self {
            Error::Invalid(_) => 400,
            Error::NotFound(_) => 404,
            Error::Conflict(_) => 409,
            Error::TooLarge(_) => 413,
            Error::UnknownCommit(_) => 422,
            Error::Busy(_) => 503,
            Error::Damaged { .. } => 500,
            Error::Partial { why, .. } | Error::Rows(why) => match why.code() {
                Code::NotFound => 404,
                Code::ResourceExhausted | Code::Unavailable | Code::Aborted => 503,
                Code::DeadlineExceeded => 504,
                Code::InvalidArgument => 400,
                _ => 502,
            },
        }
    }

    /// Returns the kind of error as one word, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Invalid(_) => "invalid",
            Error::UnknownCommit(_) => "unknown_commit",
            Error::NotFound(_) => "not_found",
            Error::Conflict(_) => "conflict",
            Error::TooLarge(_) => "too_large",
            Error::Busy(_) => "busy",
            Error::Partial { .. } => "partial",
            Error::Damaged { .. } => "damaged",
            Error::Rows(_) => "rows",
        }
    }
}
