//! Handles a full disk. Entries in the log must be applied, but the engine may
//! be out of memory because it cannot flush. Then the applying thread waits,
//! and proposals are refused with the reason until there is space, so that the
//! log does not grow. Reads continue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stele_engine::fatal::{Condvar, Mutex};

use crate::error::{Error, Result};

/// The interval between attempts. The engine retries the flush by itself.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits while the disk is full, and reports the reason to proposers.
#[derive(Default)]
pub struct Stall {
    /// Whether there is a reason.
    stalled: AtomicBool,
    inner: Mutex<Inner>,
    closed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Why entries cannot be applied at present.
    reason: Option<Error>,
    closed: bool,
}

impl Stall {
    /// Returns why entries cannot be applied at present; `None` if they can.
    pub fn reason(&self) -> Option<Error> {
        self.stalled.load(Ordering::Acquire).then(|| self.inner.lock().reason.clone())?
    }

    /// Retries an operation that failed with `error`, if that was a full disk:
    /// until it succeeds, fails otherwise, or the member is closed.
    pub fn retry<T>(&self, mut error: Error, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        if is_full(&error) {
            tracing::error!(%error, "disk full: apply is stalled and new writes are refused");
        }
        let outcome = loop {
            if !is_full(&error) || !self.pause(&error) {
                break Err(error);
            }
            match attempt() {
                Ok(done) => {
                    tracing::info!("disk space is available again: apply continues");
                    break Ok(done);
                }
                Err(again) => error = again,
            }
        };
        self.inner.lock().reason = None;
        self.stalled.store(false, Ordering::Release);
        outcome
    }

    /// Returns false if the member is closed.
    fn pause(&self, error: &Error) -> bool {
        let mut inner = self.inner.lock();
        inner.reason = Some(error.clone());
        self.stalled.store(true, Ordering::Release);
        if !inner.closed {
            self.closed.wait_for(&mut inner, PAUSE);
        }
        !inner.closed
    }

    /// Stops all waiting. The unapplied entries are still in the log.
    pub fn close(&self) {
        self.inner.lock().closed = true;
        self.closed.notify_all();
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Engine(error) if matches!(**error, stele_engine::Error::DiskFull { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Error {
        stele_engine::Error::DiskFull { doing: "writing", path: "f".into() }.into()
    }

    #[test]
    fn work_without_space_is_retried_until_there_is_some_and_others_are_notified() {
        let stall = Stall::default();
        let mut reported = Vec::new();
        let done = stall.retry(full(), || {
            reported.push(stall.reason().map(|error| error.to_string()));
            if reported.len() < 3 { Err(full()) } else { Ok(7) }
        });
        assert_eq!(done.unwrap(), 7);
        assert_eq!(reported, vec![Some(full().to_string()); 3]);
        assert!(stall.reason().is_none());
    }

    #[test]
    fn other_errors_and_the_end_are_not_waited_for() {
        let stall = Stall::default();
        let other = stall.retry::<()>(Error::Stopped, || unreachable!());
        assert!(matches!(other, Err(Error::Stopped)));
        let later = stall.retry::<()>(full(), || Err(Error::Stopped));
        assert!(matches!(later, Err(Error::Stopped)));
        stall.close();
        assert!(is_full(&stall.retry::<()>(full(), || unreachable!()).unwrap_err()));
        assert!(stall.reason().is_none());
    }
}
