//! The background thread of a shared log: makes durable what nobody waits for,
//! and does the I/O of callers that must not block.

use std::mem;
use std::time::Duration;

use super::{GroupLog, GroupState};
use crate::durability::Durability;
use crate::error::Result;
use crate::sync::MutexGuard;

impl GroupLog {
    /// Like `wait_durable`, for low-priority threads that may get little CPU
    /// time: the background thread does the work, so that no urgent caller
    /// waits for a slow leader.
    pub fn wait_durable_idly(&self, index: u64) -> Result<()> {
        let mut state = self.state.lock();
        while state.has_background_thread && !self.has(index, Durability::Durable) {
            state.check()?;
            state.durable_wanted = state.durable_wanted.max(index);
            self.work.notify_one();
            self.durable_moved.wait(&mut state);
        }
        drop(state);
        self.wait_durable(index)
    }

    /// Asks the background thread to write the queue. The listener is notified
    /// afterwards.
    pub fn request_write(&self) {
        let mut state = self.state.lock();
        if !state.write_requested {
            state.write_requested = true;
            self.work.notify_one();
        }
    }

    /// The body of the background thread: makes entries durable after `linger`
    /// if nobody waits for them, and immediately if only callbacks do. Returns
    /// after `stop` or a failure.
    pub fn run(&self) {
        let mut state = self.state.lock();
        state.has_background_thread = true;
        while !state.stopping && state.stopped.is_none() {
            if mem::take(&mut state.write_requested) {
                self.drive_unlocked(&mut state, Durability::Written);
                continue;
            }
            if state.space_requested > 0 || state.space_ahead {
                self.allocate_requested_space(&mut state);
                continue;
            }
            match self.due_in(&state) {
                None => {
                    state.asleep = true;
                    self.work.wait(&mut state);
                    state.asleep = false;
                }
                Some(Duration::ZERO) => self.drive_unlocked(&mut state, Durability::Durable),
                Some(wait) => {
                    self.work.wait_for(&mut state, wait);
                }
            }
        }
        state.has_background_thread = false;
        self.durable_moved.notify_all();
    }

    /// Drives the log with the state unlocked. An error is recorded in the state
    /// and ends `run`.
    fn drive_unlocked(&self, state: &mut MutexGuard<'_, GroupState>, durability: Durability) {
        if let Err(error) = MutexGuard::unlocked(state, || self.drive(durability)) {
            tracing::error!(%error, "the log has stopped: no commit is accepted until the store is reopened");
        }
    }

    /// Stops `run`. Queued entries stay queued: call `drive` first.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.work.notify_all();
    }

    /// Returns the time until the background thread must act; `None` if it is idle.
    fn due_in(&self, state: &GroupState) -> Option<Duration> {
        let since = state.pending_since?;
        if state.durable_wanted > self.durable() || self.callbacks.lowest().is_some() {
            return Some(Duration::ZERO);
        }
        Some((since + self.linger).saturating_sub(self.clock.elapsed()))
    }
}
