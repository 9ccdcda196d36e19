//! Admission control: a commit enters the store only when memory and log space
//! are reserved for it and the chains that it touches are short enough. Otherwise
//! it waits, in a future or on a blocked thread, for a bounded time.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::engine::Engine;
use super::handle::Store;
use super::log_mode::LogSpace;
use super::touched::Touched;
use super::waiting::{Mode, Waiting};
use crate::budget::Charge;
use crate::cell::commit::Commit;
use crate::error::{Error, Result};
use crate::write::{Prepared, Unknown};

/// The right to apply one commit without waiting: holds its reservations of
/// memory and log space, which are released on drop.
pub struct Permit<'a> {
    pub(super) memory: Charge,
    pub(super) log_space: LogSpace<'a>,
    /// The validated commit; `None` if the permit was waited for.
    pub(super) prepared: Option<Prepared<'a>>,
}

/// The resources that a commit needs.
pub(super) struct Need {
    pub(super) touched: Vec<Touched>,
    /// The memory that the commit takes, and the size of its encoding.
    pub(super) memory_bytes: usize,
    pub(super) commit_bytes: usize,
}

impl Need {
    fn of(prepared: &Prepared<'_>, commit: &Commit) -> Need {
        Need {
            touched: prepared.tables.iter().map(Touched::of).collect(),
            memory_bytes: prepared.memory_bytes(),
            commit_bytes: commit.bytes().len(),
        }
    }
}

enum Attempt<'a> {
    Admitted(Permit<'a>),
    Busy(Need),
}

impl Store {
    /// Admits a commit if that is possible without waiting, otherwise returns
    /// `None`. Fails if the commit is invalid or the store accepts no commits.
    pub fn try_admit<'a>(&'a self, commit: &'a Commit) -> Result<Option<Permit<'a>>> {
        self.check_open()?;
        match self.engine.attempt(commit)? {
            Attempt::Admitted(permit) => Ok(Some(permit)),
            Attempt::Busy(_) => Ok(None),
        }
    }

    /// Waits for admission of a commit: for memory (first come, first served),
    /// for the log, and for the chains of the tablets that it touches. Runs on
    /// any executor. Fails with `Overloaded` if too many commits are waiting
    /// already, or after `AdmissionOptions::wait_max`. Dropping the future
    /// releases all reservations.
    ///
    /// Without a spawner nothing waits: the first poll does the required
    /// background work itself.
    pub fn admit<'a>(&'a self, commit: &'a Commit) -> Admission<'a> {
        Admission { store: self, commit, waiting: None }
    }
}

/// A future that resolves to a [`Permit`]; see [`Store::admit`].
pub struct Admission<'a> {
    store: &'a Store,
    commit: &'a Commit,
    waiting: Option<Waiting<'a>>,
}

impl<'a> Future for Admission<'a> {
    type Output = Result<Permit<'a>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Err(error) = this.store.check_open() {
            return Poll::Ready(Err(error));
        }
        if this.waiting.is_none() {
            let engine = &*this.store.engine;
            match engine.attempt(this.commit) {
                Err(error) => return Poll::Ready(Err(error)),
                Ok(Attempt::Admitted(permit)) => return Poll::Ready(Ok(permit)),
                Ok(Attempt::Busy(need)) => match Waiting::enter(engine, need, Mode::Async) {
                    Err(error) => return Poll::Ready(Err(error)),
                    Ok(waiting) => this.waiting = Some(waiting),
                },
            }
        }
        let waiting = this.waiting.as_mut().expect("it was just set");
        let Poll::Ready(outcome) = waiting.poll(context) else { return Poll::Pending };
        this.waiting = None;
        Poll::Ready(outcome.and_then(|(memory, log_space)| {
            let log_space = log_space.ok_or(Error::HasExternalLog)?;
            Ok(Permit { memory, log_space, prepared: None })
        }))
    }
}

impl Engine {
    /// Admits a commit, blocking this thread if necessary.
    pub(super) fn admit_blocking<'a>(&'a self, commit: &'a Commit) -> Result<Permit<'a>> {
        let need = match self.attempt(commit)? {
            Attempt::Admitted(permit) => return Ok(permit),
            Attempt::Busy(need) => need,
        };
        let (memory, log_space) = Waiting::enter(self, need, Mode::Blocking)?.block()?;
        let log_space = log_space.ok_or(Error::HasExternalLog)?;
        Ok(Permit { memory, log_space, prepared: None })
    }

    /// Waits without a time limit for admission of a commit from the caller's
    /// log, which can no longer be rejected. Returns its memory reservation.
    pub(super) fn admit_logged(&self, prepared: &Prepared<'_>, commit: &Commit) -> Result<Charge> {
        self.check_failure()?;
        if self.tables.world.spawner.is_none() {
            return self.admit_without_workers(prepared);
        }
        let memory_bytes = self.memory_share(prepared.memory_bytes());
        if !self.is_any_slowed(prepared)
            && let Some(memory) = self.tables.resources.budget.try_reserve(memory_bytes)
        {
            return Ok(memory);
        }
        let need = Need::of(prepared, commit);
        Ok(Waiting::enter(self, need, Mode::Logged)?.block()?.0)
    }

    pub(super) fn prepare<'a>(&self, commit: &'a Commit) -> Result<Prepared<'a>> {
        let tables = &self.tables;
        let (limits, folds) = (&tables.options.limits, &tables.folds);
        Prepared::new(commit, &tables.map.all(), limits, folds, Unknown::Reject)
    }

    fn attempt<'a>(&'a self, commit: &'a Commit) -> Result<Attempt<'a>> {
        self.check_failure()?;
        let log = &self.log;
        if log.external().is_some() {
            return Err(Error::HasExternalLog);
        }
        let prepared = self.prepare(commit)?;
        let commit_bytes = commit.bytes().len();
        if self.tables.world.spawner.is_none() {
            let memory = self.admit_without_workers(&prepared)?;
            let log_space = log.reserve(commit_bytes)?;
            return Ok(Attempt::Admitted(Permit { memory, log_space, prepared: Some(prepared) }));
        }
        let busy = || Ok(Attempt::Busy(Need::of(&prepared, commit)));
        if self.is_any_slowed(&prepared) || self.is_queue_full() || self.waiters.any_for_queue() {
            return busy();
        }
        let memory_bytes = self.memory_share(prepared.memory_bytes());
        let Some(memory) = self.tables.resources.budget.try_reserve(memory_bytes) else {
            return busy();
        };
        let Some(log_space) = log.try_reserve(commit_bytes)? else { return busy() };
        Ok(Attempt::Admitted(Permit { memory, log_space, prepared: Some(prepared) }))
    }

    /// Without workers, the writer does the background work that it would
    /// otherwise wait for.
    fn admit_without_workers(&self, prepared: &Prepared<'_>) -> Result<Charge> {
        let clock = &*self.tables.world.clock;
        if self.is_any_slowed(prepared) {
            self.counters.for_chains.measure(clock, || self.compact_due())?;
        }
        if self.is_queue_full() {
            let queued_bytes_max = self.tables.options.memory.log_queue_bytes_max;
            let wait = || self.log.wait_queue_below(queued_bytes_max);
            self.counters.for_log.measure(clock, wait)?;
        }
        let bytes = self.memory_share(prepared.memory_bytes());
        match self.tables.resources.budget.try_reserve(bytes) {
            Some(memory) => Ok(memory),
            None => self.counters.for_memory.measure(clock, || self.flush_for(bytes)),
        }
    }

    /// Flushes until the bytes can be reserved.
    fn flush_for(&self, bytes: usize) -> Result<Charge> {
        loop {
            if let Some(charge) = self.tables.resources.budget.try_reserve(bytes) {
                return Ok(charge);
            }
            if !self.flush_best()? {
                // The remaining memory belongs to other stores of the process.
                return Ok(self.tables.resources.budget.charge(bytes));
            }
        }
    }

    /// Returns the part of the budget that a commit reserves: at most half,
    /// which flushes can always free. A larger commit exceeds the budget until
    /// it is flushed.
    pub(super) fn memory_share(&self, bytes: usize) -> usize {
        bytes.min(self.tables.resources.budget.limit() / 2)
    }

    fn is_any_slowed(&self, prepared: &Prepared<'_>) -> bool {
        prepared.tables.iter().any(|table| self.is_slowed(table))
    }

    pub(super) fn is_queue_full(&self) -> bool {
        self.log.queued_bytes() >= self.tables.options.memory.log_queue_bytes_max
    }
}
