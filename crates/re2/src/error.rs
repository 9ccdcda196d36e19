//! The error for an invalid pattern. The server includes its text in the status
//! that names the filter field.

/// What is wrong with a pattern, and the byte offset of the error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at byte {offset} of the pattern)")]
pub struct PatternError {
    pub message: String,
    pub offset: usize,
}

impl PatternError {
    pub(super) fn new(offset: usize, message: impl Into<String>) -> PatternError {
        PatternError { message: message.into(), offset }
    }
}
