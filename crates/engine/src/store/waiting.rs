//! A commit that waits for admission, in stages: for shorter chains, a shorter
//! log queue, memory, and space in the log.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::admission::Need;
use super::engine::Engine;
use super::log_mode::LogSpace;
use super::stats::Delay;
use super::touched::Touched;
use super::waiters::Stage;
use crate::budget::{Charge, MemoryReservation};
use crate::error::{Error, Result};
use crate::sync::Park;

/// The initial delay of a commit when a chain is too long.
const CHAIN_PAUSE: Duration = Duration::from_millis(1);
/// How many times the delay doubles at most.
const CHAIN_PAUSE_DOUBLED_MAX: usize = 9;
/// How often a blocked thread rechecks without a wake-up.
const RECHECK: Duration = Duration::from_millis(100);
/// The retry delay suggested to rejected callers.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How a commit waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// A future, woken by the timer; the log's thread does the writing.
    Async,
    /// A blocked thread.
    Blocking,
    /// A blocked thread with a commit that must not time out.
    Logged,
}

/// A commit waiting for admission.
pub(super) struct Waiting<'a> {
    engine: &'a Engine,
    mode: Mode,
    ticket: u64,
    need: Need,
    stage: Stage,
    /// When the commit is rejected.
    deadline: Option<Instant>,
    /// End of the delay for long chains; `None` once it has passed.
    pause_until: Option<Instant>,
    reservation: Option<MemoryReservation>,
    memory: Option<Charge>,
    /// Whether the log's thread was asked to allocate space.
    space_requested: bool,
    /// When the commit started to wait in this stage.
    stage_since: Option<Instant>,
}

pub(super) type Outcome<'a> = Result<(Charge, Option<LogSpace<'a>>)>;

impl<'a> Waiting<'a> {
    pub(super) fn enter(engine: &'a Engine, need: Need, mode: Mode) -> Result<Waiting<'a>> {
        let options = &engine.tables.options;
        let bounded = mode != Mode::Logged;
        let waiters_max = if bounded { options.admission.waiters_max } else { usize::MAX };
        let Some(ticket) = engine.waiters.enter(waiters_max) else {
            return Err(Error::Overloaded {
                what: "too many commits are waiting for admission",
                retry_after: RETRY_AFTER,
            });
        };
        let now = Instant::now();
        let longest = need.touched.iter().map(Touched::chain_longest).max().unwrap_or(0);
        let too_long = longest.checked_sub(options.compact.chain_slow);
        Ok(Waiting {
            engine,
            mode,
            ticket,
            need,
            stage: Stage::Chains,
            deadline: bounded.then(|| now + options.admission.wait_max),
            pause_until: too_long.map(|too_long| now + chain_pause(too_long)),
            reservation: None,
            memory: None,
            space_requested: false,
            stage_since: None,
        })
    }

    pub(super) fn block(mut self) -> Outcome<'a> {
        let park = Park::new();
        let waker = park.waker();
        loop {
            if let Poll::Ready(outcome) = self.poll(&mut Context::from_waker(&waker)) {
                return outcome;
            }
            match self.pause_until.filter(|_| self.stage == Stage::Chains) {
                Some(until) => {
                    park.sleep(until.saturating_duration_since(Instant::now()));
                    self.pause_until = None;
                }
                None => park.wait(RECHECK),
            }
        }
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome<'a>> {
        loop {
            // Register before checking the stage, so that no wake-up is lost.
            let timer = match self.mode {
                Mode::Async => self.pause_until.into_iter().chain(self.deadline).min(),
                Mode::Blocking | Mode::Logged => None,
            };
            self.engine.waiters.watch(self.ticket, self.stage, context.waker(), timer);
            if let Err(error) = self.check() {
                return Poll::Ready(Err(error));
            }
            let next = match self.stage {
                Stage::Chains => self.poll_chains().map(|()| Stage::Queue),
                Stage::Queue => match self.poll_queue() {
                    Ok(over) => over.map(|()| Stage::Memory),
                    Err(error) => return Poll::Ready(Err(error)),
                },
                Stage::Memory => match self.poll_memory(context) {
                    Ok(over) => over.map(|()| Stage::Space),
                    Err(error) => return Poll::Ready(Err(error)),
                },
                Stage::Space => match self.poll_space() {
                    Ok(Poll::Ready(log_space)) => {
                        self.end_stage();
                        let memory =
                            self.memory.take().expect("memory was reserved in an earlier stage");
                        return Poll::Ready(Ok((memory, log_space)));
                    }
                    Ok(Poll::Pending) => Poll::Pending,
                    Err(error) => return Poll::Ready(Err(error)),
                },
                Stage::Load => unreachable!("commits do not wait for tablets"),
            };
            let Poll::Ready(next) = next else {
                self.begin_stage();
                return Poll::Pending;
            };
            self.end_stage();
            let over = std::mem::replace(&mut self.stage, next);
            if over == Stage::Queue {
                // The queue may be short enough for the next waiter, too.
                self.engine.waiters.watch(self.ticket, next, context.waker(), timer);
                self.engine.waiters.wake_first(over);
            }
        }
    }

    /// Returns an error if waiting any longer is pointless.
    fn check(&self) -> Result<()> {
        let engine = self.engine;
        if engine.is_stopping() {
            return Err(Error::Closed);
        }
        engine.check_failure()?;
        let failure = match self.stage {
            Stage::Chains if engine.failures.any() => engine.stopping_failure(&self.need.touched),
            _ => None,
        };
        if let Some(error) = failure {
            return Err(error);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let what = match self.stage {
                Stage::Chains => "compaction is behind",
                Stage::Queue | Stage::Space => "the log is behind",
                Stage::Memory => "memory is full and flushing is behind",
                Stage::Load => unreachable!("commits do not wait for tablets"),
            };
            return Err(Error::Overloaded { what, retry_after: RETRY_AFTER });
        }
        Ok(())
    }

    /// Delays writers while compaction falls behind, and stops them before
    /// reads have to merge too many runs.
    fn poll_chains(&mut self) -> Poll<()> {
        let engine = self.engine;
        let chain_slow = engine.tables.options.compact.chain_slow;
        if self.need.touched.iter().all(|touched| touched.chain_longest() < chain_slow) {
            self.pause_until = None;
            return Poll::Ready(());
        }
        engine.claims.urgent.raise();
        let over = |until: Instant| self.mode == Mode::Async && Instant::now() >= until;
        if self.pause_until.is_some_and(over) {
            self.pause_until = None;
        }
        if self.pause_until.is_some() || engine.is_stopped(&self.need.touched) {
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn poll_queue(&mut self) -> Result<Poll<()>> {
        let engine = self.engine;
        if !engine.is_queue_full() {
            return Ok(Poll::Ready(()));
        }
        if self.mode == Mode::Async {
            engine.log.request_write();
            // If the queue drained in the meantime, no wake-up may follow.
            return Ok(if engine.is_queue_full() { Poll::Pending } else { Poll::Ready(()) });
        }
        self.begin_stage();
        engine.log.wait_queue_below(engine.tables.options.memory.log_queue_bytes_max)?;
        Ok(Poll::Ready(()))
    }

    fn poll_memory(&mut self, context: &mut Context<'_>) -> Result<Poll<()>> {
        let budget = &self.engine.tables.resources.budget;
        let bytes = self.engine.memory_share(self.need.memory_bytes);
        let reservation = self.reservation.get_or_insert_with(|| budget.reserve(bytes));
        let Poll::Ready(memory) = Pin::new(reservation).poll(context) else {
            if let Some(error) = self.engine.failures.of_flush() {
                return Err(error);
            }
            self.engine.claims.urgent.raise();
            return Ok(Poll::Pending);
        };
        self.reservation = None;
        self.memory = Some(memory);
        Ok(Poll::Ready(()))
    }

    fn poll_space(&mut self) -> Result<Poll<Option<LogSpace<'a>>>> {
        let log = &self.engine.log;
        if log.external().is_some() {
            return Ok(Poll::Ready(None));
        }
        if self.mode != Mode::Async {
            return Ok(Poll::Ready(Some(log.reserve(self.need.commit_bytes)?)));
        }
        if let Some(log_space) = log.try_reserve(self.need.commit_bytes)? {
            return Ok(Poll::Ready(Some(log_space)));
        }
        if self.space_requested
            && let Some(error) = log.take_space_error()
        {
            return Err(error);
        }
        self.space_requested = true;
        log.request_space(self.need.commit_bytes);
        Ok(Poll::Pending)
    }

    fn begin_stage(&mut self) {
        if self.stage_since.is_none() {
            self.stage_since = Some(Instant::now());
            self.delay().count();
        }
    }

    fn end_stage(&mut self) {
        if let Some(since) = self.stage_since.take() {
            self.delay().add(since.elapsed());
        }
    }

    fn delay(&self) -> &'a Delay {
        let counters = &self.engine.counters;
        match self.stage {
            Stage::Chains => &counters.for_chains,
            Stage::Queue | Stage::Space => &counters.for_log,
            Stage::Memory => &counters.for_memory,
            Stage::Load => unreachable!("commits do not wait for tablets"),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.end_stage();
        self.engine.waiters.leave(self.ticket);
    }
}

/// Returns the delay for a chain with `too_many` excess runs. It doubles with every
/// run, so that writers slow down to the speed of compaction before they
/// must stop.
fn chain_pause(too_many: usize) -> Duration {
    CHAIN_PAUSE * (1 << too_many.min(CHAIN_PAUSE_DOUBLED_MAX))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::task::Waker;

    use super::*;
    use crate::cell::commit::{Commit, CommitBuilder, TableId};
    use crate::cell::rows::RowRange;
    use crate::durability::Durability;
    use crate::options::Options;
    use crate::schema::{Family, Schema};
    use crate::store::Store;
    use crate::txn::Txn;
    use crate::workers::choose;
    use crate::world::sim::{OnlyThreads, SimFiles};
    use crate::world::{SeededRandom, SystemClock, World};

    /// Opens a store without workers, in which the third run of a chain stops writers.
    fn without_workers(splits: Vec<Vec<u8>>) -> (Store, TableId) {
        let world = World {
            clock: Arc::new(SystemClock::new()),
            files: Arc::new(SimFiles::new(1)),
            random: Arc::new(SeededRandom::new(1)),
            spawner: Some(Arc::new(OnlyThreads(&[]))),
        };
        let mut options = Options::default();
        options.compact.chain_min = 2;
        options.compact.chain_slow = 3;
        options.compact.chain_stop = 3;
        let store = Store::open(Path::new("/store"), options, world).unwrap();
        let schema = Schema::with_families([Family::new("f")]).unwrap();
        let table = store.create_table_with_splits("t", schema, splits).unwrap();
        (store, table)
    }

    #[test]
    fn a_chain_is_examined_once_per_event_however_many_commits_wait_for_it() {
        const WAITERS: usize = 200;
        let (store, table) = without_workers(Vec::new());
        let mut commit = CommitBuilder::new();
        commit.table(table).row(b"r").set(b"f", b"", 0, b"v");
        let commit = commit.finish();
        for _ in 0..3 {
            store.apply(&commit, Txn::MAX, Durability::Durable).unwrap();
            store.flush(table).unwrap();
        }
        let mut waiting: Vec<_> = (0..WAITERS).map(|_| Box::pin(store.admit(&commit))).collect();
        let mut poll_all = || {
            let before = choose::choices_made();
            for admission in &mut waiting {
                let polled = admission.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending());
            }
            choose::choices_made() - before
        };
        let (first, again) = (poll_all(), poll_all());
        assert!(first <= 1 && again <= 1, "{first} examinations, then {again}");
        store.engine.waiters.wake(Stage::Chains);
        let woken = poll_all();
        assert!(woken <= 1, "{woken} examinations after an event");
        store.compact(table).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting[0].as_mut().poll(&mut context).is_ready(), "the chain is short");
    }

    #[test]
    fn scale_1_6_a_long_chain_delays_only_commits_to_its_tablet() {
        let (store, table) = without_workers(vec![b"m".to_vec()]);
        let commit_to = |rows: &[&[u8]]| {
            let mut commit = CommitBuilder::new();
            commit.table(table);
            rows.iter().for_each(|row| _ = commit.row(row).set(b"f", b"", 0, b"v"));
            commit.finish()
        };
        for _ in 0..3 {
            store.apply(&commit_to(&[b"x"]), Txn::MAX, Durability::Durable).unwrap();
            store.flush(table).unwrap();
        }
        let is_admitted = |commit: &Commit| {
            let mut admission = Box::pin(store.admit(commit));
            admission.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(is_admitted(&commit_to(&[b"a"])));
        assert!(!is_admitted(&commit_to(&[b"x"])));
        assert!(!is_admitted(&commit_to(&[b"a", b"m"])));
        let mut everything = CommitBuilder::new();
        everything.table(table).delete_range(&RowRange::all());
        assert!(!is_admitted(&everything.finish()));
    }

    #[test]
    fn the_longer_a_chain_the_more_a_commit_is_delayed_up_to_a_limit() {
        let pauses = [0, 1, 2, 5, 11, 12, usize::MAX].map(chain_pause);
        assert_eq!(pauses.map(|pause| pause.as_millis()), [1, 2, 4, 32, 512, 512, 512]);
    }
}
