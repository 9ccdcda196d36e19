//! Admission control: a commit enters the store only when memory and log space
//! are reserved for it and the chains of its tables are short enough. Otherwise
//! it waits, in a future or on a blocked thread, for a bounded time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::stats::Delay;
use super::waiters::Stage;
use super::{Shared, Store, choose};
use crate::budget::{Charge, MemoryReservation};
use crate::cell::commit::Commit;
use crate::error::{Error, Result};
use crate::log::LogReservation;
use crate::prepare::{Prepared, Unknown};
use crate::sync::Park;
use crate::table::Table;
use crate::workers::choose::Choice;
use crate::workers::claims::Work;

/// The initial delay of a commit when a chain is too long.
const CHAIN_PAUSE: Duration = Duration::from_millis(1);
/// How many times the delay doubles at most.
const CHAIN_PAUSE_DOUBLED_MAX: usize = 9;
/// How often a blocked thread rechecks without a wake-up.
const RECHECK: Duration = Duration::from_millis(100);
/// The retry delay suggested to rejected callers.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The right to apply one commit without waiting: holds its reservations of
/// memory and log space, which are released on drop.
pub struct Permit<'a> {
    pub(super) memory: Charge,
    pub(super) promise: LogReservation<'a>,
    /// The validated commit; `None` if the permit was waited for.
    pub(super) prepared: Option<Prepared<'a>>,
}

/// The resources that a commit needs.
struct Need {
    tables: Vec<Arc<Table>>,
    /// The memory that the commit takes, and the size of its encoding.
    memory_bytes: usize,
    commit_bytes: usize,
}

impl Need {
    fn of(prepared: &Prepared<'_>, commit: &Commit) -> Need {
        Need {
            tables: tables_of(prepared).cloned().collect(),
            memory_bytes: prepared.memory_bytes(),
            commit_bytes: commit.bytes().len(),
        }
    }
}

fn tables_of<'p>(prepared: &'p Prepared<'_>) -> impl Iterator<Item = &'p Arc<Table>> {
    prepared.tables.iter().map(|table| &table.table)
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
        match self.shared.attempt(commit)? {
            Attempt::Admitted(permit) => Ok(Some(permit)),
            Attempt::Busy(_) => Ok(None),
        }
    }

    /// Waits for admission of a commit: for memory (first come, first served),
    /// for the log, and for the chains of the tables that it touches. Runs on
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
            let shared = &*this.store.shared;
            match shared.attempt(this.commit) {
                Err(error) => return Poll::Ready(Err(error)),
                Ok(Attempt::Admitted(permit)) => return Poll::Ready(Ok(permit)),
                Ok(Attempt::Busy(need)) => match Waiting::enter(shared, need, Mode::Async) {
                    Err(error) => return Poll::Ready(Err(error)),
                    Ok(waiting) => this.waiting = Some(waiting),
                },
            }
        }
        let waiting = this.waiting.as_mut().expect("it was just put there");
        let Poll::Ready(outcome) = waiting.poll(context) else { return Poll::Pending };
        this.waiting = None;
        Poll::Ready(outcome.and_then(|(memory, promise)| {
            let promise = promise.ok_or(Error::NoLogKept)?;
            Ok(Permit { memory, promise, prepared: None })
        }))
    }
}

impl Shared {
    /// Admits a commit, blocking this thread if necessary.
    pub(super) fn admit_blocking<'a>(&'a self, commit: &'a Commit) -> Result<Permit<'a>> {
        let need = match self.attempt(commit)? {
            Attempt::Admitted(permit) => return Ok(permit),
            Attempt::Busy(need) => need,
        };
        let (memory, promise) = Waiting::enter(self, need, Mode::Blocking)?.block()?;
        let promise = promise.ok_or(Error::NoLogKept)?;
        Ok(Permit { memory, promise, prepared: None })
    }

    /// Waits without a time limit for admission of a commit from the caller's
    /// log, which can no longer be rejected. Returns its memory reservation.
    pub(super) fn admit_logged(&self, prepared: &Prepared<'_>, commit: &Commit) -> Result<Charge> {
        self.check_failure()?;
        if self.tables.world.spawner.is_none() {
            return self.make_way(prepared);
        }
        let memory_bytes = self.memory_share(prepared.memory_bytes());
        if !self.is_slowed(tables_of(prepared))
            && let Some(memory) = self.tables.budget.try_reserve(memory_bytes)
        {
            return Ok(memory);
        }
        let need = Need::of(prepared, commit);
        Ok(Waiting::enter(self, need, Mode::Logged)?.block()?.0)
    }

    pub(super) fn prepare<'a>(&self, commit: &'a Commit) -> Result<Prepared<'a>> {
        let tables = &self.tables;
        let (limits, folds) = (&tables.options.limits, &tables.folds);
        Prepared::new(commit, &tables.all(), limits, folds, Unknown::Refuse)
    }

    fn attempt<'a>(&'a self, commit: &'a Commit) -> Result<Attempt<'a>> {
        self.check_failure()?;
        let log = self.log.own().ok_or(Error::NoLogKept)?;
        let prepared = self.prepare(commit)?;
        let commit_bytes = commit.bytes().len();
        if self.tables.world.spawner.is_none() {
            let memory = self.make_way(&prepared)?;
            let promise = log.reserve(commit_bytes)?;
            return Ok(Attempt::Admitted(Permit { memory, promise, prepared: Some(prepared) }));
        }
        let busy = || Ok(Attempt::Busy(Need::of(&prepared, commit)));
        if self.is_slowed(tables_of(&prepared))
            || self.is_queue_full()
            || self.waiters.any_for_queue()
        {
            return busy();
        }
        let memory_bytes = self.memory_share(prepared.memory_bytes());
        let Some(memory) = self.tables.budget.try_reserve(memory_bytes) else { return busy() };
        let Some(promise) = log.try_reserve(commit_bytes)? else { return busy() };
        Ok(Attempt::Admitted(Permit { memory, promise, prepared: Some(prepared) }))
    }

    /// Without workers, the writer does the background work that it would
    /// otherwise wait for.
    fn make_way(&self, prepared: &Prepared<'_>) -> Result<Charge> {
        let clock = &*self.tables.world.clock;
        if self.is_slowed(tables_of(prepared)) {
            self.counters.for_chains.measure(clock, || self.compact_due())?;
        }
        if self.is_queue_full() {
            let queued_bytes_max = self.tables.options.memory.log_queue_bytes_max;
            let wait = || self.log.wait_queue_below(queued_bytes_max);
            self.counters.for_log.measure(clock, wait)?;
        }
        let bytes = self.memory_share(prepared.memory_bytes());
        match self.tables.budget.try_reserve(bytes) {
            Some(memory) => Ok(memory),
            None => self.counters.for_memory.measure(clock, || self.make_room(bytes)),
        }
    }

    fn make_room(&self, bytes: usize) -> Result<Charge> {
        loop {
            if let Some(charge) = self.tables.budget.try_reserve(bytes) {
                return Ok(charge);
            }
            if !self.flush_best()? {
                // The remaining memory belongs to other stores of the process.
                return Ok(self.tables.budget.charge(bytes));
            }
        }
    }

    /// Returns the part of the budget that a commit reserves: at most half,
    /// which flushes can always free. A larger commit exceeds the budget until
    /// it is flushed.
    fn memory_share(&self, bytes: usize) -> usize {
        bytes.min(self.tables.budget.limit() / 2)
    }

    fn is_queue_full(&self) -> bool {
        self.log.queued_bytes() >= self.tables.options.memory.log_queue_bytes_max
    }

    fn is_slowed<'t>(&self, mut tables: impl Iterator<Item = &'t Arc<Table>>) -> bool {
        let chain_slow = self.tables.options.compact.chain_slow;
        tables.any(|table| table.chain_longest() >= chain_slow && !table.is_dropped())
    }

    /// Whether writers of any of the tables must stop until compaction catches
    /// up. A chain that cannot be compacted because of damage stops no writer.
    fn is_stopped(&self, need: &Need) -> bool {
        let options = &self.tables.options.compact;
        let too_long = |table: &&Arc<Table>| {
            table.chain_longest() >= options.chain_stop && !table.is_dropped()
        };
        let find_out = |table: &Arc<Table>| {
            choose::all_due(table, options).into_iter().any(|due| {
                let Choice { tablet, group, .. } = due.choice;
                let work = Work::Compact { table: table.id, tablet, group };
                due.length >= options.chain_stop && !self.troubles.is_damaged(work)
            })
        };
        // One event may wake thousands of waiters, so they share the answer.
        let event = self.waiters.event();
        let can_shrink = |table: &Arc<Table>| table.can_shrink(event, || find_out(table));
        need.tables.iter().filter(too_long).any(can_shrink)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A future, woken by the timer; the log's thread does the writing.
    Async,
    /// A blocked thread.
    Blocking,
    /// A blocked thread with a commit that must not time out.
    Logged,
}

/// A commit waiting for admission.
struct Waiting<'a> {
    shared: &'a Shared,
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

type Outcome<'a> = Result<(Charge, Option<LogReservation<'a>>)>;

impl<'a> Waiting<'a> {
    fn enter(shared: &'a Shared, need: Need, mode: Mode) -> Result<Waiting<'a>> {
        let options = &shared.tables.options;
        let bounded = mode != Mode::Logged;
        let waiters_max = if bounded { options.admission.waiters_max } else { usize::MAX };
        let Some(ticket) = shared.waiters.enter(waiters_max) else {
            return Err(Error::Overloaded {
                what: "too many commits wait to be admitted",
                retry_after: RETRY_AFTER,
            });
        };
        let now = Instant::now();
        let longest = need.tables.iter().map(|table| table.chain_longest()).max().unwrap_or(0);
        let too_long = longest.checked_sub(options.compact.chain_slow);
        Ok(Waiting {
            shared,
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

    fn block(mut self) -> Outcome<'a> {
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

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome<'a>> {
        loop {
            // Register before checking the stage, so that no wake-up is lost.
            let timer = match self.mode {
                Mode::Async => self.pause_until.into_iter().chain(self.deadline).min(),
                Mode::Blocking | Mode::Logged => None,
            };
            self.shared.waiters.watch(self.ticket, self.stage, context.waker(), timer);
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
                    Ok(Poll::Ready(promise)) => {
                        self.end_stage();
                        let memory = self.memory.take().expect("it was reserved before");
                        return Poll::Ready(Ok((memory, promise)));
                    }
                    Ok(Poll::Pending) => Poll::Pending,
                    Err(error) => return Poll::Ready(Err(error)),
                },
            };
            let Poll::Ready(next) = next else {
                self.begin_stage();
                return Poll::Pending;
            };
            self.end_stage();
            let over = std::mem::replace(&mut self.stage, next);
            if over == Stage::Queue {
                // The queue may be short enough for the next waiter, too.
                self.shared.waiters.watch(self.ticket, next, context.waker(), timer);
                self.shared.waiters.wake_first(over);
            }
        }
    }

    /// Returns an error if waiting any longer is pointless.
    fn check(&self) -> Result<()> {
        let shared = self.shared;
        if shared.is_stopping() {
            return Err(Error::Closed);
        }
        shared.check_failure()?;
        let trouble = match self.stage {
            Stage::Chains if shared.troubles.any() && shared.is_stopped(&self.need) => {
                let mut tables = self.need.tables.iter();
                tables.find_map(|table| shared.troubles.of_chains(table.id))
            }
            _ => None,
        };
        if let Some(error) = trouble {
            return Err(error);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let what = match self.stage {
                Stage::Chains => "compaction is behind",
                Stage::Queue | Stage::Space => "the log is behind",
                Stage::Memory => "memory is full and flushing is behind",
            };
            return Err(Error::Overloaded { what, retry_after: RETRY_AFTER });
        }
        Ok(())
    }

    /// Delays writers while compaction falls behind, and stops them before
    /// reads have to merge too many runs.
    fn poll_chains(&mut self) -> Poll<()> {
        let shared = self.shared;
        if !shared.is_slowed(self.need.tables.iter()) {
            self.pause_until = None;
            return Poll::Ready(());
        }
        shared.claims.urgent.raise();
        let over = |until: Instant| self.mode == Mode::Async && Instant::now() >= until;
        if self.pause_until.is_some_and(over) {
            self.pause_until = None;
        }
        if self.pause_until.is_some() || shared.is_stopped(&self.need) {
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn poll_queue(&mut self) -> Result<Poll<()>> {
        let shared = self.shared;
        if !shared.is_queue_full() {
            return Ok(Poll::Ready(()));
        }
        if self.mode == Mode::Async {
            shared.log.request_write();
            // If the queue drained in the meantime, no wake-up may follow.
            return Ok(if shared.is_queue_full() { Poll::Pending } else { Poll::Ready(()) });
        }
        self.begin_stage();
        shared.log.wait_queue_below(shared.tables.options.memory.log_queue_bytes_max)?;
        Ok(Poll::Ready(()))
    }

    fn poll_memory(&mut self, context: &mut Context<'_>) -> Result<Poll<()>> {
        let budget = &self.shared.tables.budget;
        let bytes = self.shared.memory_share(self.need.memory_bytes);
        let reservation = self.reservation.get_or_insert_with(|| budget.reserve(bytes));
        let Poll::Ready(memory) = Pin::new(reservation).poll(context) else {
            if let Some(error) = self.shared.troubles.of_flush() {
                return Err(error);
            }
            self.shared.claims.urgent.raise();
            return Ok(Poll::Pending);
        };
        self.reservation = None;
        self.memory = Some(memory);
        Ok(Poll::Ready(()))
    }

    fn poll_space(&mut self) -> Result<Poll<Option<LogReservation<'a>>>> {
        let Some(log) = self.shared.log.own() else { return Ok(Poll::Ready(None)) };
        if self.mode != Mode::Async {
            return Ok(Poll::Ready(Some(log.reserve(self.need.commit_bytes)?)));
        }
        if let Some(promise) = log.try_reserve(self.need.commit_bytes)? {
            return Ok(Poll::Ready(Some(promise)));
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
        let counters = &self.shared.counters;
        match self.stage {
            Stage::Chains => &counters.for_chains,
            Stage::Queue | Stage::Space => &counters.for_log,
            Stage::Memory => &counters.for_memory,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.end_stage();
        self.shared.waiters.leave(self.ticket);
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
    use std::io;
    use std::path::Path;
    use std::task::Waker;

    use super::*;
    use crate::cell::commit::CommitBuilder;
    use crate::options::Options;
    use crate::schema::{Family, Schema};
    use crate::store::Wait;
    use crate::txn::Txn;
    use crate::world::sim::SimFiles;
    use crate::world::{Joiner, Priority, SeededRandom, Spawner, SystemClock, World};

    /// Starts no workers.
    struct Nobody;

    impl Spawner for Nobody {
        fn spawn(
            &self,
            _: &str,
            _: Priority,
            _: Box<dyn FnOnce() + Send>,
        ) -> io::Result<Box<dyn Joiner>> {
            Ok(Box::new(Nobody))
        }
    }

    impl Joiner for Nobody {
        fn join(self: Box<Self>) {}
    }

    #[test]
    fn however_many_wait_for_a_chain_it_is_looked_at_once_per_event() {
        const WAITERS: usize = 200;
        let world = World {
            clock: Arc::new(SystemClock::new()),
            files: Arc::new(SimFiles::new(1)),
            random: Arc::new(SeededRandom::new(1)),
            spawner: Some(Arc::new(Nobody)),
        };
        let mut options = Options::default();
        options.compact.chain_min = 2;
        options.compact.chain_slow = 3;
        options.compact.chain_stop = 3;
        let store = Store::open(Path::new("/store"), options, world).unwrap();
        let schema = Schema::with_families([Family::new("f")]).unwrap();
        let table = store.create_table("t", schema).unwrap();
        let mut commit = CommitBuilder::new();
        commit.table(table).row(b"r").set(b"f", b"", 0, b"v");
        let commit = commit.finish();
        for _ in 0..3 {
            store.apply(&commit, Txn::MAX, Wait::Durable).unwrap();
            store.flush(table).unwrap();
        }
        let mut waiting: Vec<_> = (0..WAITERS).map(|_| Box::pin(store.admit(&commit))).collect();
        let mut poll_all = || {
            let before = choose::looks();
            for admission in &mut waiting {
                let polled = admission.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending());
            }
            choose::looks() - before
        };
        let (first, again) = (poll_all(), poll_all());
        assert!(first <= 1 && again <= 1, "{first} looks, then {again}");
        store.shared.waiters.wake(Stage::Chains);
        let woken = poll_all();
        assert!(woken <= 1, "{woken} looks after an event");
        store.compact(table).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting[0].as_mut().poll(&mut context).is_ready(), "the chain is short");
    }

    #[test]
    fn the_longer_a_chain_the_more_a_commit_is_delayed_up_to_a_limit() {
        let pauses = [0, 1, 2, 5, 11, 12, usize::MAX].map(chain_pause);
        assert_eq!(pauses.map(|pause| pause.as_millis()), [1, 2, 4, 32, 512, 512, 512]);
    }
}
