//! Group commit by leaders: the first waiter that finds no leader becomes one,
//! and writes, or writes and syncs, everything queued; the others wait for the
//! outcome. During a sync, waiters for `Written` keep writing, while waiters for
//! `Durable` batch up for the next sync.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::super::writer::LogWriter;
use super::{GroupLog, GroupState, LogEvent};
use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;

/// Upper bound on the leader's linger, as a multiple of the last sync's
/// duration. A sync and its wake-ups cost about as much CPU as a small commit,
/// so a larger group pays for the wait as soon as CPU is scarce.
const LINGER_SYNCS_MAX: u32 = 2;
/// Absolute upper bound on the linger, for slow disks: by then every waiter
/// that is coming back has arrived.
const LINGER_MAX: Duration = Duration::from_micros(300);

/// Whether the leader lingers for the waiters that shared the previous sync.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Batching {
    Linger,
    Immediate,
}

impl GroupLog {
    /// Leads, or waits for the current leader, until `done` returns true.
    pub(super) fn wait_until(
        &self,
        mut done: impl FnMut(&mut GroupState) -> bool,
        durability: Durability,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let mut led = false;
        let outcome = loop {
            if done(&mut state) {
                break Ok(());
            }
            if let Err(error) = state.check() {
                break Err(error);
            }
            match durability {
                // Accepted since it was enqueued: there is nothing to lead.
                Durability::Accepted => break Ok(()),
                Durability::Written if state.writing => self.written_moved.wait(&mut state),
                Durability::Written => self.lead_write(&mut state),
                Durability::Durable if state.syncing => self.durable_moved.wait(&mut state),
                Durability::Durable => {
                    self.lead_sync(&mut state, Batching::Linger);
                    led = true;
                }
            }
        };
        led |= outcome.is_err();
        drop(state);
        if led {
            self.callbacks.fire();
        }
        outcome
    }

    /// Counts a waiter for durability, and wakes a lingering leader once as
    /// many have arrived as shared the previous sync.
    pub(super) fn arrive(&self, state: &mut GroupState) {
        state.arrived += 1;
        if state.arrived == state.arrived_before {
            self.gathered.notify_one();
        }
    }

    /// Writes the whole queue with one write.
    fn lead_write(&self, state: &mut MutexGuard<'_, GroupState>) {
        let spare = mem::take(&mut state.spare);
        let mut batch = mem::replace(&mut state.queue, spare);
        let last = state.last;
        let bytes = batch.iter().map(|entry| self.estimate.entry(entry.payload.len())).sum();
        let outcome = self.lead(state, |writer| {
            let outcome = writer.append(&batch);
            batch.clear();
            outcome
        });
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        state.reserved -= bytes;
        state.spare = batch;
        self.notify_listener(LogEvent::Progress);
        match outcome {
            Ok(()) => self.written.store(last, Ordering::Release),
            Err(error) => self.fail(state, error),
        }
    }

    /// Runs `step` on the writer with the state unlocked, so that others can
    /// enqueue. No other thread is writing.
    pub(super) fn lead(
        &self,
        state: &mut MutexGuard<'_, GroupState>,
        step: impl FnOnce(&mut LogWriter) -> Result<()>,
    ) -> Result<()> {
        state.writing = true;
        let (outcome, space, low) = MutexGuard::unlocked(state, || {
            let mut writer = self.writer.lock();
            (step(&mut writer), writer.capacity(), writer.low_space())
        });
        state.writing = false;
        state.space = space;
        state.space_low = low;
        self.written_moved.notify_all();
        self.notify_listener(LogEvent::Progress);
        outcome
    }

    /// Makes everything queued or written durable.
    pub(super) fn lead_sync(&self, state: &mut MutexGuard<'_, GroupState>, batching: Batching) {
        state.syncing = true;
        if batching == Batching::Linger {
            self.gather(state);
        }
        state.arrived_before = mem::take(&mut state.arrived);
        let target = state.last;
        while self.written() < target && state.stopped.is_none() {
            if state.writing {
                self.written_moved.wait(state);
            } else {
                self.lead_write(state);
            }
        }
        if state.stopped.is_none() {
            let written = self.written();
            let begun = self.clock.elapsed();
            match MutexGuard::unlocked(state, || self.sync_written()) {
                // After a failure nothing becomes durable, not even what this
                // sync covered.
                Ok(()) if state.stopped.is_some() => {}
                Ok(()) => self.publish_durable(state, written, begun),
                Err(error) => self.fail(state, error),
            }
        }
        state.syncing = false;
        self.durable_moved.notify_all();
    }

    /// Syncs with the writer unlocked, so that others can append meanwhile.
    fn sync_written(&self) -> Result<()> {
        let Some(point) = self.writer.lock().begin_sync()? else { return Ok(()) };
        let outcome = point.sync();
        self.writer.lock().end_sync(&point, outcome)
    }

    fn publish_durable(&self, state: &mut GroupState, written: u64, begun: Duration) {
        let now = self.clock.elapsed();
        state.sync_time = now.saturating_sub(begun);
        self.durable.store(written, Ordering::Release);
        self.callbacks.reached(written);
        state.pending_since = (state.last > written).then_some(now);
        if state.last > written && self.callbacks.lowest().is_some() {
            // Entries that arrived during the sync have callbacks but no waiter
            // to lead the next one.
            self.work.notify_one();
        }
    }

    /// Fails the log permanently and notifies all waiters.
    fn fail(&self, state: &mut GroupState, error: Error) {
        let cause = match error {
            Error::Stopped(cause) => cause,
            error => Arc::new(error),
        };
        self.callbacks.failed(&cause);
        state.stopped = Some(cause);
        self.failed.store(true, Ordering::Release);
        state.queue = Vec::new();
        self.notify_listener(LogEvent::Failed);
        self.written_moved.notify_all();
        self.durable_moved.notify_all();
    }

    /// Lingers briefly if more waiters shared the previous sync: it woke them,
    /// and they are likely to return soon.
    fn gather(&self, state: &mut MutexGuard<'_, GroupState>) {
        let expected = state.arrived_before;
        if expected <= 1 || state.arrived >= expected {
            return;
        }
        let linger_max = (state.sync_time * LINGER_SYNCS_MAX).min(LINGER_MAX);
        self.gathered.wait_while_for(state, |state| state.arrived < expected, linger_max);
    }
}
