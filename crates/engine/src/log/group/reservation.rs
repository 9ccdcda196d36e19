//! Reservation of log space: an entry is queued only after its space is
//! allocated on disk, so that writing it cannot fail with a full disk.

use std::mem;

use super::{GroupLog, GroupState, LogEvent};
use crate::error::{Error, Result};
use crate::sync::MutexGuard;

/// A reservation of log space for one entry, released on drop if unused.
pub struct LogReservation<'a> {
    log: &'a GroupLog,
    pub(super) bytes: u64,
}

impl Drop for LogReservation<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.log.state.lock().reserved -= self.bytes;
        }
    }
}

impl GroupLog {
    /// Reserves space for an entry. An error means that the disk is full; it
    /// changes nothing, and the next call tries again.
    pub fn reserve(&self, payload_bytes: usize) -> Result<LogReservation<'_>> {
        let bytes = self.estimate.entry(payload_bytes);
        let mut state = self.state.lock();
        loop {
            state.check()?;
            if state.reserved + bytes <= state.space {
                state.reserved += bytes;
                return Ok(LogReservation { log: self, bytes });
            }
            if state.writing {
                self.written_moved.wait(&mut state);
            } else {
                let wanted = state.reserved + bytes;
                self.lead(&mut state, |writer| writer.reserve(wanted))?;
            }
        }
    }

    /// Like `reserve`, but never waits: returns `None` if space must be
    /// allocated first.
    pub fn try_reserve(&self, payload_bytes: usize) -> Result<Option<LogReservation<'_>>> {
        let bytes = self.estimate.entry(payload_bytes);
        let mut state = self.state.lock();
        state.check()?;
        if state.reserved + bytes > state.space {
            return Ok(None);
        }
        state.reserved += bytes;
        if state.space - state.reserved < state.space_low
            && state.has_background_thread
            && !mem::replace(&mut state.space_ahead, true)
        {
            self.work.notify_one();
        }
        Ok(Some(LogReservation { log: self, bytes }))
    }

    /// Asks the background thread to allocate space for an entry. The listener
    /// is notified after the attempt.
    pub fn request_space(&self, payload_bytes: usize) {
        let mut state = self.state.lock();
        state.space_requested = state.space_requested.max(self.estimate.entry(payload_bytes));
        self.work.notify_one();
    }

    /// Returns and clears the error of the last failed attempt to allocate
    /// space.
    pub fn take_space_error(&self) -> Option<Error> {
        self.state.lock().space_error.take()
    }

    /// Allocates the requested space, and records the error if that fails. Space
    /// that nobody waits for yet may fail to be allocated: it is tried again.
    pub(super) fn allocate_requested_space(&self, state: &mut MutexGuard<'_, GroupState>) {
        while state.writing {
            self.written_moved.wait(state);
        }
        let requested = mem::take(&mut state.space_requested);
        let ahead = if mem::take(&mut state.space_ahead) { 2 * state.space_low } else { 0 };
        let wanted = state.reserved + requested.max(ahead);
        if state.space < wanted {
            let failed = self.lead(state, |writer| writer.reserve(wanted)).err();
            if state.space < state.reserved + requested {
                state.space_error = failed;
            }
        }
        self.notify_listener(LogEvent::Progress);
    }
}
