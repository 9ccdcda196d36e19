//! What can go wrong with a call: what was being done on what, and whether
//! the same call may succeed later.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What was being done, on what: `ReadRows of projects/p/instances/i/tables/t`.
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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing was sent: nobody answers at this address.
    #[error("cannot reach {endpoint}: {why}")]
    Unreachable { endpoint: String, why: String },
    /// The server refused, or the connection broke.
    #[error("{action}: {message}")]
    Refused { action: Action, code: Code, message: String, retry_after: Option<Duration> },
    /// The call took longer than it may; the last failure before, if any.
    #[error("{action}: no result within {} ms{}", .after.as_millis(), before(.last))]
    Deadline { action: Action, after: Duration, last: Option<String> },
    /// What the server sent cannot be understood.
    #[error("{action}: the server broke the protocol: {what}")]
    Protocol { action: Action, what: String },
    /// No token could be had.
    #[error("credentials: {0}")]
    Credentials(String),
    /// The client cannot be set up as asked.
    #[error("{0}")]
    Options(String),
}

fn before(last: &Option<String>) -> String {
    last.as_ref().map(|last| format!(" (before that: {last})")).unwrap_or_default()
}

impl Error {
    pub(super) fn from_status(action: &Action, status: &Status) -> Error {
        // Only statuses that the client makes itself have a source: there the
        // connection broke, whatever code the transport guessed.
        let broken = status.source().is_some() || is_reset(status);
        let code = if broken { Code::Unavailable } else { status.code() };
        let retry_after = status.get_details_retry_info().and_then(|info| info.retry_delay);
        let message = match status.message() {
            "" => code.description().to_string(),
            message => message.to_string(),
        };
        Error::Refused { action: action.clone(), code, message, retry_after }
    }

    /// The gRPC code that tells this error best.
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

    /// What the server said, without what was being done.
    pub fn message(&self) -> String {
        match self {
            Error::Refused { message, .. } => message.clone(),
            other => other.to_string(),
        }
    }

    /// True if the same call may succeed when it is made again. Whether it
    /// may be made again depends on what it does.
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

    /// True if the table or family is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == Code::NotFound
    }

    /// How long the server asked to wait before another attempt.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// True for a stream that a proxy cut off: INTERNAL with a text that tells.
fn is_reset(status: &Status) -> bool {
    let text = status.message().to_ascii_lowercase();
    let tells = ["rst_stream", "rst stream", "received unexpected eos on data frame"];
    status.code() == Code::Internal && tells.iter().any(|part| text.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: Status) -> Error {
        let action = Action { call: "ReadRows", target: "t".into() };
        Error::from_status(&action, &status)
    }

    #[test]
    fn only_passing_failures_are_retryable() {
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
    fn a_server_that_says_when_to_come_back_is_believed() {
        let mut details = tonic_types::ErrorDetails::new();
        details.set_retry_info(Some(Duration::from_millis(70)));
        let status = Status::with_error_details(Code::ResourceExhausted, "busy", details);
        let error = error(status);
        assert_eq!(error.retry_after(), Some(Duration::from_millis(70)));
        assert!(error.is_retryable());
    }

    #[test]
    fn an_error_says_what_was_done_on_what() {
        let error = error(Status::not_found("Table not found: t"));
        assert_eq!(error.to_string(), "ReadRows of t: Table not found: t");
        assert_eq!(error.code(), Code::NotFound);
    }
}
