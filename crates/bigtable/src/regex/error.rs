//! Why a pattern was refused. The server puts this text into the status that
//! names the filter field.

/// What is wrong with a pattern, and the byte where it is.
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
