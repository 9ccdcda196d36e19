//! Retries of conditional writes: a row that was written between the read and
//! the commit is read again, a bounded number of times.

use crate::error::{Error, Result};

/// Tries of one request. Beyond that the row is too contended, and the client
/// decides whether to send the request again.
const TRIES_MAX: u32 = 64;

/// The tries of one conditional write.
#[derive(Default)]
pub struct Retries {
    failed: u32,
}

impl Retries {
    /// Accounts for a conflict. Returns when the write should be tried again,
    /// after other tasks had their turn; the error ends the request.
    pub async fn conflicted(&mut self, row: &[u8]) -> Result<()> {
        self.failed += 1;
        if self.failed >= TRIES_MAX {
            return Err(Error::Aborted(format!(
                "Row '{}' was changed by other writes during each of {TRIES_MAX} tries: \
                 send the request again",
                row[..row.len().min(ROW_SHOWN_BYTES_MAX)].escape_ascii()
            )));
        }
        tokio::task::yield_now().await;
        Ok(())
    }
}

/// Bytes of a row key in an error message at most.
const ROW_SHOWN_BYTES_MAX: usize = 120;

/// Whether a row was written after it was read.
pub fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Engine(stele_engine::Error::MutationConflict { .. }))
}

/// Whether the table changed after the mutations were checked.
pub fn is_outdated(error: &Error) -> bool {
    matches!(error, Error::Engine(stele_engine::Error::SchemaChanged { .. }))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn the_last_try_that_conflicts_is_answered_aborted() {
        let mut retries = Retries::default();
        for _ in 1..TRIES_MAX {
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
