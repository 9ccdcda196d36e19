//! What can go wrong with a whole request, and the one gRPC status of each.
//! What becomes of a single record is its code, not an error.

use stele_engine as engine;
use stele_engine::Txn;
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
            Error::Engine(error) => engine_code(error),
        }
    }
}

fn engine_code(error: &engine::Error) -> Code {
    use engine::Error as E;
    match error {
        E::MutationConflict { .. }
        | E::ScanConflict { .. }
        | E::SnapshotExpired { .. }
        | E::ConfigConflict { .. } => Code::Aborted,
        E::CellDisorder(_)
        | E::InvalidPackedFormat { .. }
        | E::InvalidMutation(_)
        | E::TooLarge { .. }
        | E::InvalidSchema(_) => Code::InvalidArgument,
        E::UnknownTable(_) | E::UnknownColumnFamily { .. } | E::UnknownCheckpoint(_) => {
            Code::NotFound
        }
        E::TableExists(_) => Code::AlreadyExists,
        E::DataLoss { .. } | E::NewerFormat { .. } => Code::DataLoss,
        E::DiskFull { .. } => Code::ResourceExhausted,
        E::Stopped(_) | E::Closed | E::Locked { .. } | E::DirectoryInUse { .. } | E::Io { .. } => {
            Code::Unavailable
        }
        // Of stores whose log the caller keeps: catalogues are not in one.
        E::OtherLog { .. } | E::LogKept | E::NoLogKept | E::IndexPassed { .. } => Code::Internal,
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        Status::new(error.code(), error.to_string())
    }
}
