//! What can go wrong with a whole request, and the one gRPC status of each.
//! What becomes of a single record is its code, not an error.

use stele_engine as engine;
use stele_engine::Txn;
use stele_grpc::engine_code;
use tonic::{Code, Status};

use crate::fid::Fid;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The request can never succeed as it is.
    #[error("{0}")]
    Invalid(String),
    #[error("{what} of {size} bytes is over the limit of {limit}")]
    TooLarge { what: &'static str, size: usize, limit: usize },
    #[error("there is no catalogue {0}")]
    NoCatalogue(Fid),
    #[error("the catalogue {0} was deleted, and ids are not used again")]
    Retired(Fid),
    #[error("the catalogue {0} belongs to the service: it can be read, not changed")]
    Reserved(Fid),
    #[error("txn {0} is not held any more: pin again, and read again from the start")]
    Unpinned(Txn),
    #[error("txn {0} is of an earlier run of the server: read whether it was kept")]
    Forgotten(Txn),
    /// No room for the request now.
    #[error("{0}")]
    Exhausted(String),
    #[error("the caller has gone away: nothing was changed")]
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
            // What was read is not held any more; from the start it may be.
            Error::Engine(engine::Error::SnapshotExpired { .. }) => Code::Aborted,
            Error::Engine(error) => engine_code(error),
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        Status::new(error.code(), error.to_string())
    }
}
