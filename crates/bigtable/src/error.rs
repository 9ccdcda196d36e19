//! Errors, and the gRPC status of each.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use stele_engine as engine;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of the reasons in error details.
const DOMAIN: &str = "bigtable.googleapis.com";

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The request can never succeed as it is.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Exists(String),
    /// The request could succeed if something else changed first.
    #[error("{0}")]
    Precondition(String),
    /// A row is too large to read; its key is reported to clients that skip such
    /// rows.
    #[error("{message}")]
    LargeRow { message: String, row: Vec<u8> },
    /// Part of the API that this server does not implement.
    #[error("{0}")]
    Unimplemented(String),
    /// Too much contention; the same request may succeed when retried.
    #[error("{0}")]
    Aborted(String),
    /// The client's deadline passed.
    #[error("{0}")]
    Deadline(String),
    /// Refused by a resource that all services share: memory or threads.
    #[error("{}", .0.message())]
    Refused(Box<Status>),
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

impl From<Status> for Error {
    fn from(refused: Status) -> Error {
        Error::Refused(Box::new(refused))
    }
}

impl Error {
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::Invalid(message.into())
    }

    /// Prefixes the message with the field or element in which the error
    /// occurred, if the error is about the request.
    pub fn within(self, field: &str) -> Error {
        let prefixed = |message: String| format!("{field} : {message}");
        match self {
            Error::Invalid(message) => Error::Invalid(prefixed(message)),
            Error::Unimplemented(message) => Error::Unimplemented(prefixed(message)),
            Error::NotFound(message) => Error::NotFound(prefixed(message)),
            Error::Exists(message) => Error::Exists(prefixed(message)),
            other => other,
        }
    }

    pub fn code(&self) -> Code {
        match self {
            Error::Invalid(_) => Code::InvalidArgument,
            Error::NotFound(_) => Code::NotFound,
            Error::Exists(_) => Code::AlreadyExists,
            Error::Precondition(_) | Error::LargeRow { .. } => Code::FailedPrecondition,
            Error::Unimplemented(_) => Code::Unimplemented,
            Error::Aborted(_) => Code::Aborted,
            Error::Deadline(_) => Code::DeadlineExceeded,
            Error::Refused(status) => status.code(),
            Error::Engine(error) => Code::from_i32(error.kind().canonical_code()),
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        let (code, message) = (error.code(), error.to_string());
        match error {
            Error::LargeRow { row, .. } => {
                let key = ("rowKeyBase64Encoded".to_string(), STANDARD.encode(row));
                let reason = "LargeRowReadError";
                let details = ErrorDetails::with_error_info(reason, DOMAIN, [key]);
                Status::with_error_details(code, message, details)
            }
            Error::Engine(engine::Error::Overloaded { retry_after, .. }) => {
                let details = ErrorDetails::with_retry_info(Some(retry_after));
                Status::with_error_details(code, message, details)
            }
            Error::Engine(engine::Error::TabletNotLoaded(tablet)) => {
                let details = match tablet.retry_after() {
                    Some(_) => ErrorDetails::with_retry_info(tablet.retry_after()),
                    None => ErrorDetails::new(),
                };
                Status::with_error_details(code, message, details)
            }
            Error::Refused(status) => *status,
            _ => Status::new(code, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stele_engine::{NotLoaded, TabletState};

    use super::*;

    #[test]
    fn an_overloaded_store_tells_when_to_try_again() {
        let retry_after = Duration::from_secs(2);
        let error = Error::Engine(engine::Error::Overloaded { what: "memory", retry_after });
        let status = Status::from(error);
        assert_eq!(status.code(), Code::ResourceExhausted);
        let retry = status.get_details_retry_info().unwrap();
        assert_eq!(retry.retry_delay, Some(retry_after));
    }

    #[test]
    fn scale_7_6_a_loading_tablet_is_unavailable_and_an_unloaded_one_is_a_precondition() {
        let status = |state| {
            Status::from(Error::Engine(engine::Error::TabletNotLoaded(Box::new(NotLoaded {
                id: engine::TableId(1),
                table: "t".into(),
                row: engine::Printable(b"row".to_vec()),
                bounds: engine::RowRange::new("m", "t"),
                load: 1,
                state,
            }))))
        };
        let loading = status(TabletState::Claiming);
        assert_eq!(loading.code(), Code::Unavailable);
        let retry = loading.get_details_retry_info().unwrap();
        assert_eq!(retry.retry_delay, Some(Duration::from_secs(1)));
        for state in [TabletState::Unloaded, TabletState::ReadOnly, TabletState::Closing] {
            let unloaded = status(state);
            assert_eq!(unloaded.code(), Code::FailedPrecondition);
            assert!(unloaded.get_details_retry_info().is_none());
            assert_eq!(
                unloaded.message(),
                "row \"row\" of table t is not served: its tablet, from row \"m\" to before \"t\", \
                 was unloaded by an operator: load it to serve its rows again"
            );
        }
    }

    #[test]
    fn a_row_too_large_to_be_read_is_named_in_the_details() {
        let error = Error::LargeRow { message: "too large".into(), row: b"r\xff".to_vec() };
        let status = Status::from(error);
        assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "too large"));
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.reason, "LargeRowReadError");
        assert_eq!(info.metadata["rowKeyBase64Encoded"], "cv8=");
    }
}
