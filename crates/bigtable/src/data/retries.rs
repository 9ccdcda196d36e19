//! Retries of conditional writes: if a row was written between the read and the
//! commit, it is read again, a bounded number of times.

use crate::error::{Error, Result};

/// The maximum number of attempts per request. Beyond that the row is too
/// contended, and the client decides whether to retry.
const ATTEMPTS_MAX: u32 = 64;

/// The attempts of one conditional write.
#[derive(Default)]
pub struct Retries {
    failed: u32,
}

impl Retries {
    /// Accounts for a conflict. Returns when the write should be retried, after
    /// other tasks have run; an error ends the request.
    pub async fn conflicted(&mut self, row: &[u8]) -> Result<()> {
        self.failed += 1;
        if self.failed >= ATTEMPTS_MAX {
            return Err(Error::Aborted(format!(
                "Row '{}' was changed by other writes during each of {ATTEMPTS_MAX} attempts: \
                 retry the request",
                row[..row.len().min(ROW_EXCERPT_BYTES_MAX)].escape_ascii()
            )));
        }
        tokio::task::yield_now().await;
        Ok(())
    }
}

/// The maximum number of bytes of a row key in an error message.
const ROW_EXCERPT_BYTES_MAX: usize = 120;

/// Returns whether a row was written after it was read.
pub fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Engine(stele_engine::Error::MutationConflict { .. }))
}

/// Returns whether the table changed after the mutations were validated.
pub fn is_outdated(error: &Error) -> bool {
    matches!(error, Error::Engine(stele_engine::Error::SchemaChanged { .. }))
}

/// Returns whether a commit failed because of other rows than this one, which are in a
/// tablet that is not loaded.
pub fn is_of_other_rows(error: &Error, row: &[u8]) -> bool {
    match error {
        Error::Engine(stele_engine::Error::TabletNotLoaded(tablet)) => !tablet.bounds.contains(row),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn the_last_try_that_conflicts_is_answered_aborted() {
        let mut retries = Retries::default();
        for _ in 1..ATTEMPTS_MAX {
            retries.conflicted(b"row").await.unwrap();
        }
        let error = retries.conflicted(&[0xFF; 4096]).await.unwrap_err();
        assert_eq!(error.code(), Code::Aborted);
        assert!(error.to_string().len() < 700, "{error}");
    }

    #[tokio::test]
    async fn other_tasks_have_their_turn_between_two_tries() {
        let turn = tokio::spawn(async {});
        let mut retries = Retries::default();
        retries.conflicted(b"row").await.unwrap();
        assert!(turn.is_finished());
    }
}
