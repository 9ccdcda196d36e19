//! Errors of a call: which operation failed on which resource, and whether a
//! retry may succeed.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The operation and its target: `ReadRows of projects/p/instances/i/tables/t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub call: &'static str,
    pub target: Arc<str>,
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} of {}", self.call, self.target)
    }
}

/// The failure of a call, or of the client before a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing was sent: no server answers at this address.
    #[error("cannot reach {endpoint}: {why}")]
    Unreachable { endpoint: String, why: String },
    /// The server refused the call, or the connection broke.
    #[error("{action}: {message}")]
    Refused { action: Action, code: Code, message: String, retry_after: Option<Duration> },
    /// The call exceeded its deadline; `last` is the last failure before that, if
    /// any.
    #[error("{action}: no result within {} ms{}", .after.as_millis(), last_error(.last))]
    Deadline { action: Action, after: Duration, last: Option<String> },
    /// The server's response is invalid.
    #[error("{action}: the server violated the protocol: {what}")]
    Protocol { action: Action, what: String },
    /// No token could be obtained.
    #[error("credentials: {0}")]
    Credentials(String),
    /// The client's options are invalid.
    #[error("{0}")]
    Options(String),
}

fn last_error(last: &Option<String>) -> String {
    last.as_ref().map(|last| format!(" (last error: {last})")).unwrap_or_default()
}

impl Error {
    pub(crate) fn from_status(action: &Action, status: &Status) -> Error {
        // Only a status that the transport created has a source: the connection broke,
        // whatever code the transport chose.
        let broken = status.source().is_some() || is_reset(status);
        let code = if broken { Code::Unavailable } else { status.code() };
        let retry_after = status.get_details_retry_info().and_then(|info| info.retry_delay);
        let message = match status.message() {
            "" => code.description().to_string(),
            message => message.to_string(),
        };
        Error::Refused { action: action.clone(), code, message, retry_after }
    }

    /// Returns the gRPC code that best describes this error.
    pub fn code(&self) -> Code {
        match self {
            Error::Unreachable { .. } => Code::Unavailable,
            Error::Refused { code, .. } => *code,
            Error::Deadline { .. } => Code::DeadlineExceeded,
            Error::Protocol { .. } => Code::Internal,
            Error::Credentials(_) => Code::Unauthenticated,
            Error::Options(_) => Code::InvalidArgument,
        }
    }

    /// Returns the server's message, without the operation.
    pub fn message(&self) -> String {
        match self {
            Error::Refused { message, .. } => message.clone(),
            other => other.to_string(),
        }
    }

    /// Returns whether a retry of the same call may succeed. Whether a retry is
    /// safe depends on the operation.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Unreachable { .. } => true,
            Error::Refused { code, retry_after, .. } => {
                matches!(code, Code::Unavailable | Code::Aborted | Code::DeadlineExceeded)
                    || retry_after.is_some()
            }
            Error::Deadline { .. }
            | Error::Protocol { .. }
            | Error::Credentials(_)
            | Error::Options(_) => false,
        }
    }

    /// Returns whether the table or family does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Code::NotFound
    }

    /// Returns the delay that the server requested before a retry.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Returns whether a proxy reset the stream. It reports INTERNAL with one of these texts.
fn is_reset(status: &Status) -> bool {
    let text = status.message().to_ascii_lowercase();
    let markers = ["rst_stream", "rst stream", "received unexpected eos on data frame"];
    status.code() == Code::Internal && markers.iter().any(|part| text.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: Status) -> Error {
        let action = Action { call: "ReadRows", target: "t".into() };
        Error::from_status(&action, &status)
    }

    #[test]
    fn only_transient_failures_are_retryable() {
        for status in [
            Status::unavailable("x"),
            Status::aborted("x"),
            Status::deadline_exceeded("x"),
            Status::internal("stream terminated by RST_STREAM with error code 2"),
            Status::internal("Received Rst Stream"),
        ] {
            assert!(error(status).is_retryable());
        }
        for status in [
            Status::internal("assertion failed"),
            Status::not_found("x"),
            Status::resource_exhausted("x"),
            Status::unknown("RST_STREAM"),
        ] {
            assert!(!error(status).is_retryable());
        }
    }

    #[test]
    fn a_delay_that_the_server_requests_is_respected() {
        let mut details = tonic_types::ErrorDetails::new();
        details.set_retry_info(Some(Duration::from_millis(70)));
        let status = Status::with_error_details(Code::ResourceExhausted, "busy", details);
        let error = error(status);
        assert_eq!(error.retry_after(), Some(Duration::from_millis(70)));
        assert!(error.is_retryable());
    }

    #[test]
    fn an_error_names_the_operation_and_its_target() {
        let error = error(Status::not_found("Table not found: t"));
        assert_eq!(error.to_string(), "ReadRows of t: Table not found: t");
        assert_eq!(error.code(), Code::NotFound);
    }
}
