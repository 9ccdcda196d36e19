//! A store's background work, done by threads or on the caller's thread.
//!
//! The workers form one pool with two lanes. The urgent lane, at normal
//! priority, does what writers wait for or soon will: flushes, and compactions of
//! chains so long that writers are delayed. The background lane, at low
//! priority, does all other compactions, small ones first, and splits and joins tablets. Each job is one flush or
//! one step of a compaction, so that no chain waits for a large compaction of
//! another. (A thread that has lowered its priority cannot raise it again without
//! privileges, so a flush on the background lane would block the writers that wait
//! for it.)
//!
//! A further thread checks the files of a store that was opened, and removes unused
//! ones.

use std::cmp::Reverse;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::engine::Engine;
use crate::error::Result;
use crate::tablet::{Table, TabletKey};
use crate::workers::bounds::SplitReason;
use crate::workers::choose::{self, Choice, Due};
use crate::workers::claims::{Claim, Work};
use crate::workers::compact::compact_step;
use crate::workers::flush::FlushTarget;
use crate::world::{Joiner, Priority, Spawner};

/// Minimum number of threads per lane.
const LANE_THREADS_MIN: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Urgent,
    Background,
}

/// A worker's next job.
pub(super) struct Job<'a> {
    pub(super) claim: Claim<'a>,
    pub(super) task: Task<'a>,
}

pub(super) enum Task<'a> {
    Flush(FlushTarget),
    Compact(Compaction<'a>),
    Split {
        table: Arc<Table>,
        tablet: TabletKey,
        reason: SplitReason,
        _slot: Slot<'a>,
    },
    /// Joins a tablet with the one before it.
    Join {
        table: Arc<Table>,
        upper: TabletKey,
        _slot: Slot<'a>,
    },
}

pub(super) struct Compaction<'a> {
    pub(super) table: Arc<Table>,
    pub(super) choice: Choice,
    /// The slot it occupies in its lane, if slots are limited.
    _slot: Option<Slot<'a>>,
}

impl Task<'_> {
    /// Whether the task failed because of a damaged file.
    fn found_damage(&self) -> bool {
        let Task::Compact(Compaction { table, choice, .. }) = self else { return false };
        let version = table.version();
        let Some(tablet) = choice.tablet.find(&version.tablets) else { return false };
        let runs = tablet.chains[choice.group].runs.get(choice.runs.clone());
        let mut links = runs.into_iter().flatten().flat_map(|run| run.links());
        links.any(|link| !link.is_readable())
    }
}

/// A slot for work of which there is a limited amount at a time.
pub(super) struct Slot<'a>(&'a AtomicUsize);

impl<'a> Slot<'a> {
    /// Takes one of `slots` slots, if one is free.
    pub(super) fn take(taken: &'a AtomicUsize, slots: usize) -> Option<Slot<'a>> {
        let slot = Slot(taken);
        (taken.fetch_add(1, Ordering::AcqRel) < slots).then_some(slot)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns the number of threads per lane.
pub fn lane_threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).max(LANE_THREADS_MIN)
}

impl Engine {
    /// Starts the store's workers.
    pub fn spawn_workers(
        self: &Arc<Self>,
        spawner: &dyn Spawner,
    ) -> io::Result<Vec<Box<dyn Joiner>>> {
        use Priority::{Low, Normal};
        let mut workers = Vec::new();
        if self.log.has_thread() {
            let (log, waiters) = (self.clone(), self.waiters.clone());
            let run = move || log.log.run();
            workers.push(spawner.spawn("stele-log", Normal, Box::new(run))?);
            let timer = move || waiters.run_timer();
            workers.push(spawner.spawn("stele-admission", Normal, Box::new(timer))?);
        }
        self.tables.fragments.attend_removals();
        let files = self.clone();
        let run = move || {
            files.tables.fragments.check_sizes(&|| !files.is_stopping());
            files.tables.fragments.run_removals();
        };
        workers.push(spawner.spawn("stele-files", Low, Box::new(run))?);
        for number in 0..self.lane_threads {
            let lanes =
                [("stele-urgent", Normal, Lane::Urgent), ("stele-merge", Low, Lane::Background)];
            for (name, priority, lane) in lanes {
                let (engine, name) = (self.clone(), format!("{name}-{number}"));
                workers.push(spawner.spawn(
                    &name,
                    priority,
                    Box::new(move || engine.run_lane(lane)),
                )?);
            }
        }
        Ok(workers)
    }

    fn run_lane(&self, lane: Lane) {
        let signal = match lane {
            Lane::Urgent => &self.claims.urgent,
            Lane::Background => &self.claims.background,
        };
        while !self.is_stopping() {
            self.provide_generation();
            let Some(job) = self.next_job(lane) else {
                signal.wait(self.until_next(lane));
                continue;
            };
            // There may be work for another thread, too.
            signal.raise();
            self.run_job(job);
        }
    }

    /// Does a job.
    pub(super) fn run_task(&self, job: &Job<'_>) -> Result<()> {
        match &job.task {
            Task::Flush(target) => self.flush_claimed(&job.claim, target).map(drop),
            Task::Compact(Compaction { table, choice, .. }) => {
                compact_step(&self.tables, table, choice, self).map(drop)
            }
            Task::Split { table, tablet, reason, .. } => self.split_tablet(table, tablet, *reason),
            Task::Join { table, upper, .. } => self.join_tablets(table, upper),
        }
    }

    fn run_job(&self, job: Job<'_>) {
        let work = job.claim.work;
        let outcome = self.run_task(&job);
        match outcome {
            Ok(()) => self.failures.succeeded(work),
            Err(error) => {
                if job.task.found_damage() {
                    // The file is excluded from now on, so no backoff is
                    // needed.
                    tracing::error!(%error, ?work, "compaction found a damaged file, which is kept");
                    self.failures.succeeded(work);
                } else {
                    tracing::error!(%error, ?work, "background work failed and will be retried");
                    self.failures.failed(work, &error);
                }
                // Waiters may have to fail with this error.
                self.waiters.wake_all();
            }
        }
    }

    /// Chooses and claims the next job of a lane.
    fn next_job(&self, lane: Lane) -> Option<Job<'_>> {
        match lane {
            Lane::Urgent => {
                let writers_wait = self.tables.resources.budget.has_waiters();
                let flush = || {
                    self.claim_flush(writers_wait)
                        .map(|(claim, target)| Job { claim, task: Task::Flush(target) })
                };
                let compaction = || {
                    self.claim_compaction(
                        |due| self.is_urgent(due),
                        |_| Some(&self.urgent_compactions),
                    )
                };
                if writers_wait { flush().or_else(compaction) } else { compaction().or_else(flush) }
            }
            Lane::Background => {
                // Urgent compactions are left to the urgent lane unless all its
                // slots are taken.
                let helps =
                    self.urgent_compactions.load(Ordering::Acquire) + 1 >= self.lane_threads;
                let mine = |due: &Due| helps || !self.is_urgent(due);
                let large = |due: &Due| due.bytes > self.tables.options.compact.output_bytes;
                self.claim_compaction(|due| mine(due) && !large(due), |_| None)
                    .or_else(|| self.claim_bounds())
                    .or_else(|| self.claim_compaction(mine, |_| Some(&self.large_compactions)))
            }
        }
    }

    /// Whether writers are delayed by the length of a chain.
    fn is_urgent(&self, due: &Due) -> bool {
        due.length >= self.tables.options.compact.chain_slow
    }

    /// Claims the longest of the chains that are due and selected by `chosen`.
    /// With `slots`, one thread of the lane is kept free for other work.
    pub(super) fn claim_compaction<'a>(
        &'a self,
        chosen: impl Fn(&Due) -> bool,
        slots: impl Fn(&Due) -> Option<&'a AtomicUsize>,
    ) -> Option<Job<'a>> {
        let options = &self.tables.options.compact;
        let mut due: Vec<(Arc<Table>, Due)> = Vec::new();
        for table in self.tables.map.all().values() {
            let of_table = choose::all_due(table, options).into_iter();
            due.extend(of_table.filter(&chosen).map(|due| (table.clone(), due)));
        }
        due.sort_by_key(|(_, due)| Reverse(due.length));
        for (table, due) in due {
            let Choice { tablet, group, .. } = &due.choice;
            let work = Work::Compact { table: table.id, tablet: tablet.id, group: *group };
            if self.failures.backs_off(work) {
                continue;
            }
            let slot = match slots(&due) {
                None => None,
                // One thread of each lane is kept free for other work.
                Some(taken) => Some(Slot::take(taken, self.lane_threads - 1)?),
            };
            let Some(claim) = self.claims.try_take(work) else { continue };
            // Choose again: another thread may have changed the chain before it
            // was claimed.
            let again = choose::due_again(&table, &due.choice, options);
            if let Some(Due { choice, .. }) = again {
                let task = Task::Compact(Compaction { table, choice, _slot: slot });
                return Some(Job { claim, task });
            }
        }
        None
    }

    /// Returns how long a lane may sleep unless it is woken.
    fn until_next(&self, lane: Lane) -> Option<Duration> {
        let due = match lane {
            Lane::Urgent => self.until_age_flush(),
            Lane::Background => self.until_bounds_check(),
        };
        due.into_iter().chain(self.failures.next_retry()).min()
    }
}
