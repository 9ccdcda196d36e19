//! Errors of servers, with a hint on what to do about them where there is one.

use anyhow::anyhow;

/// An error that a person may be able to resolve.
pub trait Hint {
    /// Returns what failed and why.
    fn message(&self) -> String;

    /// Returns what to do about it, if that is known.
    fn hint(&self) -> Option<&'static str>;
}

/// Converts an error of a server to the message that a command prints.
pub fn with_hint(error: impl Hint) -> anyhow::Error {
    match error.hint() {
        Some(hint) => anyhow!("{}; {hint}", error.message()),
        None => anyhow!(error.message()),
    }
}
