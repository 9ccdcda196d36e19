//! Retries of operations that conflict with others.

use std::time::Duration;

use stele_grpc::backoff;
use tokio::time::Instant;

use super::Call;
use crate::error::Result;

/// The maximum pause before the first retry of an operation; it doubles with each
/// retry.
pub const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_LAST: Duration = Duration::from_millis(200);

/// The attempts of one operation, which is retried as long as it conflicts with others.
pub struct Attempts<'a> {
    call: &'a Call,
    name: &'a str,
    longest: Duration,
}

impl<'a> Attempts<'a> {
    pub fn new(call: &'a Call, name: &'a str) -> Attempts<'a> {
        Attempts { call, name, longest: PAUSE_FIRST }
    }

    /// Returns the result of the operation, or `None` after a pause if it is to be
    /// retried.
    pub async fn finish<T>(&mut self, tried: Result<T>) -> Option<Result<T>> {
        match tried {
            Err(error) if error.is_conflict() => {}
            done => return Some(done),
        }
        let pause = Instant::now() + backoff::jitter(self.longest);
        tokio::time::sleep_until(pause.min(self.call.deadline)).await;
        self.longest = (self.longest * 2).min(PAUSE_LAST);
        self.call.check(self.name).err().map(Err)
    }
}
