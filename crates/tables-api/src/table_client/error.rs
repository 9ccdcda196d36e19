//! Errors of the client: what they say about the call.

use tonic::{Code, Status};

use crate::error::reason;

pub type TableResult<T, E = TableError> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum TableError {
    /// A row was changed after it was read. Nothing was changed.
    #[error("conflict: {}", .0.message())]
    Conflict(Status),
    /// The answer to a commit was lost: it may have been applied.
    #[error("the commit may have been applied: {}", .0.message())]
    Unknown(Status),
    /// The tablet of a row was unloaded. Nothing was changed.
    #[error("{}", .0.message())]
    NotLoaded(Status),
    /// Any other error. Nothing was changed.
    #[error("{}", .0.message())]
    Refused(Status),
}

impl TableError {
    pub fn status(&self) -> &Status {
        match self {
            TableError::Conflict(status)
            | TableError::Unknown(status)
            | TableError::NotLoaded(status)
            | TableError::Refused(status) => status,
        }
    }

    /// Returns the server's reason, as docs/native-tables.md lists them.
    pub fn reason(&self) -> Option<String> {
        reason(self.status())
    }

    /// Classifies the error of a call that changes nothing.
    pub(super) fn of_read(status: Status) -> TableError {
        match reason(&status).as_deref() {
            Some("SCAN_CONFLICT") => TableError::Conflict(status),
            Some("TABLET_NOT_LOADED") => TableError::NotLoaded(status),
            _ => TableError::Refused(status),
        }
    }

    /// Classifies the error of a commit.
    pub(super) fn of_commit(status: Status) -> TableError {
        match reason(&status).as_deref() {
            Some("MUTATION_CONFLICT") => TableError::Conflict(status),
            Some("TABLET_NOT_LOADED") => TableError::NotLoaded(status),
            _ if outcome_is_unknown(&status) => TableError::Unknown(status),
            _ => TableError::Refused(status),
        }
    }
}

/// Returns whether a call that ended like this may have had its effect.
fn outcome_is_unknown(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
    )
}

/// Returns whether the same call may succeed later, though it did nothing now.
pub(super) fn is_temporary(status: &Status) -> bool {
    match reason(status).as_deref() {
        Some("SCANNER_BUSY" | "OVERLOADED") => true,
        // An operator has to load the tablet, unless it is being loaded.
        Some("TABLET_NOT_LOADED") => status.code() == Code::Unavailable,
        _ => {
            matches!(
                status.code(),
                Code::Unavailable
                    | Code::ResourceExhausted
                    | Code::DeadlineExceeded
                    | Code::Cancelled
            ) || was_disconnected(status)
        }
    }
}

/// Returns whether the connection ended during a call; tonic reports some of these as
/// UNKNOWN or INTERNAL.
fn was_disconnected(status: &Status) -> bool {
    matches!(status.code(), Code::Unknown | Code::Internal)
        && std::error::Error::source(status).is_some()
}
