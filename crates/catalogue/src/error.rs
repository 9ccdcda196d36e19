//! Errors of whole requests, each with one gRPC status. The outcome of a single record
//! is a code, not an error.

use stele_engine::{self as engine, Txn};
use tonic::{Code, Status};

use crate::fid::Fid;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The request is invalid and will fail again if it is repeated.
    #[error("{0}")]
    Invalid(String),
    #[error("{what} of {size} bytes exceeds the limit of {limit}")]
    TooLarge { what: &'static str, size: usize, limit: usize },
    #[error("catalogue {0} not found")]
    NoCatalogue(Fid),
    #[error("catalogue {0} was deleted, and ids are not reused")]
    Retired(Fid),
    #[error("catalogue {0} belongs to the service and is read-only")]
    Reserved(Fid),
    #[error("txn {0} is no longer pinned: pin again, and restart the read")]
    Unpinned(Txn),
    #[error(
        "txn {0} is from an earlier run of the server: read the records to find out whether it is durable"
    )]
    Forgotten(Txn),
    /// There is currently no capacity for the request.
    #[error("{0}")]
    Exhausted(String),
    #[error("the caller disconnected: nothing was changed")]
    Cancelled,
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

impl Error {
    pub fn invalid(what: impl Into<String>) -> Error {
        Error::Invalid(what.into())
    }

    pub fn code(&self) -> Code {
        match self {
            Error::Invalid(_) | Error::TooLarge { .. } => Code::InvalidArgument,
            Error::NoCatalogue(_) => Code::NotFound,
            Error::Retired(_) => Code::FailedPrecondition,
            Error::Reserved(_) => Code::PermissionDenied,
            Error::Unpinned(_) | Error::Forgotten(_) => Code::Aborted,
            Error::Exhausted(_) => Code::ResourceExhausted,
            Error::Cancelled => Code::Cancelled,
            // The snapshot has expired; a restarted read may succeed.
            Error::Engine(engine::Error::SnapshotExpired { .. }) => Code::Aborted,
            Error::Engine(error) => Code::from_i32(error.kind().canonical_code()),
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        Status::new(error.code(), error.to_string())
    }
}
