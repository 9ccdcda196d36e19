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

#[derive(Default)]
pub struct Room {
    /// Whether `waiting` has a reason.
    missing: AtomicBool,
    waiting: Mutex<Waiting>,
    closed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Why entries cannot be applied at present.
    reason: Option<Error>,
    closed: bool,
}

impl Room {
    /// Returns why entries cannot be applied at present; `None` if they can.
    pub fn missing(&self) -> Option<Error> {
        self.missing.load(Ordering::Acquire).then(|| self.waiting.lock().reason.clone())?
    }

    /// Retries an operation that failed with `error`, if that was a full disk:
    /// until it succeeds, fails otherwise, or the member is closed.
    pub fn wait<T>(&self, mut error: Error, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        if is_full(&error) {
            tracing::error!(%error, "nothing can be applied, so nothing more is taken");
        }
        let outcome = loop {
            if !is_full(&error) || !self.pause(&error) {
                break Err(error);
            }
            match attempt() {
                Ok(done) => {
                    tracing::info!("there is room again: applying goes on");
                    break Ok(done);
                }
                Err(again) => error = again,
            }
        };
        self.waiting.lock().reason = None;
        self.missing.store(false, Ordering::Release);
        outcome
    }

    /// Returns false if the member is closed.
    fn pause(&self, error: &Error) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.reason = Some(error.clone());
        self.missing.store(true, Ordering::Release);
        if !waiting.closed {
            self.closed.wait_for(&mut waiting, PAUSE);
        }
        !waiting.closed
    }

    /// Stops all waiting. The unapplied entries are still in the log.
    pub fn close(&self) {
        self.waiting.lock().closed = true;
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
    fn what_has_no_room_is_tried_until_it_has_and_others_are_told() {
        let room = Room::default();
        let mut told = Vec::new();
        let done = room.wait(full(), || {
            told.push(room.missing().map(|error| error.to_string()));
            if told.len() < 3 { Err(full()) } else { Ok(7) }
        });
        assert_eq!(done.unwrap(), 7);
        assert_eq!(told, vec![Some(full().to_string()); 3]);
        assert!(room.missing().is_none());
    }

    #[test]
    fn other_errors_and_the_end_are_not_waited_for() {
        let room = Room::default();
        let other = room.wait::<()>(Error::Stopped, || unreachable!());
        assert!(matches!(other, Err(Error::Stopped)));
        let later = room.wait::<()>(full(), || Err(Error::Stopped));
        assert!(matches!(later, Err(Error::Stopped)));
        room.close();
        assert!(is_full(&room.wait::<()>(full(), || unreachable!()).unwrap_err()));
        assert!(room.missing().is_none());
    }
}
