//! A limit on concurrent calls, and pauses between attempts.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::task::JoinSet;

use super::Store;
use crate::error::{Error, Result};

/// The maximum number of attempts at a conditional write with concurrent writers.
pub const ATTEMPTS_MAX: u32 = 64;
const PAUSE_MS_MAX: u64 = 200;

impl Store {
    /// Runs `work` for every item, in any order, and stops at the first error.
    pub(super) async fn parallel<T, R, F>(
        &self,
        items: impl IntoIterator<Item = T>,
        work: impl Fn(Store, T) -> F,
    ) -> Result<Vec<R>>
    where
        R: Send + 'static,
        F: Future<Output = Result<R>> + Send + 'static,
    {
        let mut tasks: JoinSet<Result<R>> = JoinSet::new();
        let mut results = Vec::new();
        for item in items {
            let permit = self.inner.calls.clone().acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            let future = work(self.clone(), item);
            tasks.spawn(async move {
                let result = future.await;
                drop(permit);
                result
            });
            while let Some(done) = tasks.try_join_next() {
                results.push(joined(done)?);
            }
        }
        while let Some(done) = tasks.join_next().await {
            results.push(joined(done)?);
        }
        Ok(results)
    }
}

fn joined<R>(done: Result<Result<R>, tokio::task::JoinError>) -> Result<R> {
    match done {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(Error::Conflict(format!("the operation was aborted: {error}"))),
        },
    }
}

/// Sleeps before the next attempt, with exponential backoff and jitter.
pub async fn pause(attempt: u32) {
    let longest = (1 << attempt.min(8)).min(PAUSE_MS_MAX);
    let random = RandomState::new().hash_one(attempt) % (longest / 2 + 1);
    tokio::time::sleep(Duration::from_millis(longest / 2 + random)).await;
}
