//! Group commit by leaders: a waiter that finds fewer than two groups under way,
//! and nobody about to begin one, becomes a leader. It takes the queue, has the
//! writer lay out its records, and writes and syncs them while others enqueue, write
//! or lead the next group. The rest wait for the outcome. During a sync, waiters
//! for `Written` keep writing.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::super::entry::LogEntry;
use super::super::space::SpaceEstimate;
use super::super::writer::{GroupIo, LogWriter};
use super::flights::Landed;
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

/// Maximum size of a group, unless a single entry is larger.
const GROUP_BYTES_MAX: u64 = 4 << 20;
/// A larger buffer of a group is not kept.
const BUFFER_BYTES_KEPT: usize = 8 << 20;

/// Whether the leader lingers for the waiters that shared the previous sync.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Batching {
    Linger,
    Immediate,
}

impl GroupState {
    /// Takes the first entries of the queue, at least one and about `bytes_max`
    /// bytes, and returns them with their size in the log.
    fn take_batch(&mut self, estimate: &SpaceEstimate, bytes_max: u64) -> (Vec<LogEntry>, u64) {
        let spare = mem::take(&mut self.spare);
        let mut batch = mem::replace(&mut self.queue, spare);
        let (mut count, mut bytes) = (0, 0);
        for entry in &batch {
            let more = estimate.entry(entry.payload.len());
            if count > 0 && bytes + more > bytes_max {
                break;
            }
            (count, bytes) = (count + 1, bytes + more);
        }
        self.queue.extend(batch.drain(count..));
        (batch, bytes)
    }
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
                Durability::Written if state.writing || state.queue.is_empty() => {
                    self.written_moved.wait(&mut state);
                }
                Durability::Written => self.lead_write(&mut state),
                Durability::Durable if state.may_begin() => {
                    self.lead_sync(&mut state, Batching::Linger);
                    led = true;
                }
                Durability::Durable => self.durable_moved.wait(&mut state),
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
        self.claim_writer(state);
        let (batch, bytes) = state.take_batch(&self.estimate, u64::MAX);
        let last = batch.last().map_or(state.taken, |entry| entry.index);
        let mut outcome = self.use_writer(state, |writer| writer.append_if(&batch, false));
        if let Ok(false) = outcome {
            outcome = self
                .wait_drained(state)
                .and_then(|()| self.use_writer(state, |writer| writer.append_if(&batch, true)));
        }
        self.put_back(state, batch, bytes);
        match outcome {
            Ok(_) => {
                state.taken = last;
                self.publish_written(state);
            }
            Err(error) => self.fail(state, error),
        }
        self.release_writer(state);
    }

    /// Begins a group of everything queued or written, and makes it durable.
    pub(super) fn lead_sync(&self, state: &mut MutexGuard<'_, GroupState>, batching: Batching) {
        state.gathering = true;
        // Those that share a group under way cannot return before it ends.
        if batching == Batching::Linger && state.flights.is_empty() {
            self.gather(state);
        }
        state.arrived_before = mem::take(&mut state.arrived);
        self.claim_writer(state);
        let begun = match state.check() {
            Ok(()) => self.begin_group(state),
            Err(_) => None,
        };
        state.gathering = false;
        self.release_writer(state);
        if state.last > state.covered {
            // Another one may lead the next group.
            self.durable_moved.notify_all();
        }
        if let Some((number, io)) = begun {
            self.run_group(state, number, io);
        }
        self.durable_moved.notify_all();
    }

    /// Takes the queue and has the writer lay out its records. Returns the I/O
    /// that is left to do.
    fn begin_group(&self, state: &mut MutexGuard<'_, GroupState>) -> Option<(u64, GroupIo)> {
        let (batch, bytes) = state.take_batch(&self.estimate, GROUP_BYTES_MAX);
        let (before, number) = (state.taken, state.flights.next());
        let last = batch.last().map_or(before, |entry| entry.index);
        let mut buffer = state.buffers.pop().unwrap_or_default();
        let mut begin = |state: &mut MutexGuard<'_, GroupState>, drained| {
            self.use_writer(state, |writer| {
                writer.begin_group(&batch, number, drained, &mut buffer)
            })
        };
        let mut begun = begin(state, false);
        if let Ok(None) = begun {
            begun = self.wait_drained(state).and_then(|()| begin(state, true));
        }
        self.put_back(state, batch, bytes);
        if buffer.capacity() > 0 {
            state.buffers.push(buffer);
        }
        match begun {
            Ok(io) => {
                let io = io.expect("a writer without groups under way begins one");
                (state.taken, state.covered) = (last, last);
                state.pending_since = (state.last > last).then(|| self.clock.elapsed());
                state.flights.start(before, last, io.record, io.is_written());
                self.publish_written(state);
                Some((number, io))
            }
            Err(error) => {
                self.fail(state, error);
                None
            }
        }
    }

    /// Does a group's I/O with the state unlocked, and publishes what became
    /// durable.
    fn run_group(&self, state: &mut MutexGuard<'_, GroupState>, number: u64, io: GroupIo) {
        let started = self.clock.elapsed();
        let outcome = MutexGuard::unlocked(state, || {
            io.run().inspect_err(|error| self.writer.lock().stop(error))
        });
        state.sync_time = self.clock.elapsed().saturating_sub(started);
        if let Some(buffer) = io.into_buffer()
            && buffer.capacity() <= BUFFER_BYTES_KEPT
        {
            state.buffers.push(buffer);
        }
        match outcome {
            // After a failure nothing becomes durable, not even this group.
            Ok(()) if state.stopped.is_some() => {}
            Ok(()) => {
                if let Some(landed) = state.flights.end(number) {
                    self.publish_durable(state, landed);
                }
                self.publish_written(state);
                self.written_moved.notify_all();
            }
            Err(error) => self.fail(state, error),
        }
    }

    /// Waits for the sole right to use the writer and to begin groups.
    pub(super) fn claim_writer(&self, state: &mut MutexGuard<'_, GroupState>) {
        while state.writing {
            self.written_moved.wait(state);
        }
        state.writing = true;
    }

    pub(super) fn release_writer(&self, state: &mut MutexGuard<'_, GroupState>) {
        state.writing = false;
        self.written_moved.notify_all();
        self.notify_listener(LogEvent::Progress);
    }

    /// Waits until no group is under way.
    pub(super) fn wait_drained(&self, state: &mut MutexGuard<'_, GroupState>) -> Result<()> {
        while !state.flights.is_empty() {
            state.check()?;
            self.durable_moved.wait(state);
        }
        state.check()
    }

    /// Runs `step` on the claimed writer with the state unlocked, so that others
    /// can enqueue.
    pub(super) fn use_writer<T>(
        &self,
        state: &mut MutexGuard<'_, GroupState>,
        step: impl FnOnce(&mut LogWriter) -> Result<T>,
    ) -> Result<T> {
        let (outcome, space, low) = MutexGuard::unlocked(state, || {
            let mut writer = self.writer.lock();
            (step(&mut writer), writer.capacity(), writer.low_space())
        });
        state.space = space;
        state.space_low = low;
        outcome
    }

    /// Runs `step` on the writer, which is not claimed.
    pub(super) fn lead(
        &self,
        state: &mut MutexGuard<'_, GroupState>,
        step: impl FnOnce(&mut LogWriter) -> Result<()>,
    ) -> Result<()> {
        self.claim_writer(state);
        let outcome = self.use_writer(state, step);
        self.release_writer(state);
        outcome
    }

    /// Returns the space that entries had reserved, and their vector.
    fn put_back(&self, state: &mut GroupState, mut batch: Vec<LogEntry>, bytes: u64) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        state.reserved -= bytes;
        batch.clear();
        state.spare = batch;
    }

    fn publish_written(&self, state: &GroupState) {
        let written = state.flights.unwritten_after().unwrap_or(state.taken);
        self.written.store(written, Ordering::Release);
    }

    fn publish_durable(&self, state: &GroupState, landed: Landed) {
        self.synced.fetch_max(landed.record, Ordering::AcqRel);
        self.durable.store(landed.last, Ordering::Release);
        self.callbacks.reached(landed.last);
        if state.last > state.covered && self.callbacks.any_above(state.covered) {
            // Entries that arrived meanwhile have callbacks but no waiter to
            // lead the next group.
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
