//! The errors of a client's call.

use stele_grpc::chain;
use tonic::{Code, Status};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("no metastore answers at {address}: {reason}: is `stele serve` running there?")]
    Unreachable { address: String, reason: String },
    /// Something that was read has changed: read again and retry.
    #[error("{0}")]
    Conflict(String),
    /// The session does not exist, or no longer exists.
    #[error("the session has ended: {0}")]
    SessionLost(String),
    /// It is unknown whether a write happened.
    #[error("the server did not respond; a write may or may not have been applied: {0}")]
    Unknown(String),
    /// Received data could not be written.
    #[error("cannot write the received data: {0}")]
    Write(String),
    #[error("{message}")]
    Refused { code: i32, message: String },
}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        let message = match status.message() {
            "" => chain(&status),
            message => message.strip_prefix("etcdserver: ").unwrap_or(message).to_string(),
        };
        match status.code() {
            Code::Aborted => Error::Conflict(message),
            Code::NotFound => Error::SessionLost(message),
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Unknown => {
                Error::Unknown(message)
            }
            code => Error::Refused { code: code as i32, message },
        }
    }
}

impl Error {
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict(_))
    }
}
