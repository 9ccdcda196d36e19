//! Group commit for asynchronous callers. Concurrent small commits become
//! durable by one sync, which one of the waiting tasks performs on its own
//! thread: no other thread has to be woken for the sync, or to wake the tasks.
//! Commits that arrive during a sync are the next group, which another task syncs
//! at the same time; those that arrive during both wait. When a sync finishes, one
//! of them leads the next.
//!
//! `log/group.rs` does the same for threads that block.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_channel::oneshot;

use super::engine::Engine;
use super::handle::Store;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::txn::Txn;

/// The maximum number of times a leader yields to other tasks before it syncs.
const GATHER_TURNS: usize = 8;
/// The longest that a leader should yield for each commit that it gains. Where
/// yielding takes longer, most of the other tasks do not write, and the group would
/// wait for them in vain.
const GATHER_TIME: Duration = Duration::from_micros(400);
/// The number of groups that do not gather after one that did so in vain.
const GATHER_SKIPS: u32 = 31;
/// Maximum number of tasks that sync at the same time.
const SYNCS_MAX: usize = 2;

/// The tasks that wait for the next sync.
#[derive(Default)]
pub struct GroupCommit {
    members: Mutex<Members>,
    /// The number of groups that will not gather.
    gather_skips: AtomicU32,
}

#[derive(Default)]
struct Members {
    /// Whether a task gathers commits for a group or has been notified to.
    gathering: bool,
    /// The number of tasks that sync a group.
    syncing: usize,
    waiting: Vec<(Txn, oneshot::Sender<Turn>)>,
}

impl Members {
    fn may_lead(&self) -> bool {
        !self.gathering && self.syncing < SYNCS_MAX
    }
}

/// The notification sent to a waiting task.
enum Turn {
    Durable,
    Lead(Lead),
}

/// The right to sync for the group. Dropping it passes leadership on, because a
/// task can be cancelled at any time.
struct Lead {
    engine: Option<Arc<Engine>>,
    syncing: bool,
}

impl Lead {
    /// Called with `Members::gathering` set.
    fn new(engine: &Arc<Engine>) -> Lead {
        Lead { engine: Some(engine.clone()), syncing: false }
    }

    /// Ends gathering, so that another task can gather the next group meanwhile.
    fn begin_sync(&mut self) {
        if let Some(engine) = &self.engine {
            let mut members = engine.group_commit.members.lock();
            members.gathering = false;
            members.syncing += 1;
            self.syncing = true;
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            {
                let mut members = engine.group_commit.members.lock();
                if self.syncing {
                    members.syncing -= 1;
                } else {
                    members.gathering = false;
                }
            }
            engine.pass_lead();
        }
    }
}

impl Store {
    /// Waits until all commits up to `txn` are durable, sharing syncs with
    /// other tasks. For small commits: the task may have to write and sync
    /// itself, which blocks its thread for that time.
    ///
    /// `yield_now` lets the other tasks of the caller's executor run, such as
    /// `tokio::task::yield_now`; a leader calls it as long as others add
    /// commits to its group.
    pub async fn durable<F: Future<Output = ()>>(
        &self,
        txn: Txn,
        yield_now: impl Fn() -> F,
    ) -> Result<()> {
        if self.engine.is_durable(txn) {
            return Ok(());
        }
        if !self.engine.log.is_synced_by_callers() {
            return self.durable_by_log(txn).await;
        }
        let mut lead = match self.engine.join_group(txn) {
            Ok(lead) => lead,
            Err(turn) => match turn.await {
                Ok(Turn::Lead(lead)) => lead,
                Ok(Turn::Durable) => return Ok(()),
                Err(_) => unreachable!("every waiting task is notified"),
            },
        };
        self.gather(yield_now).await;
        lead.begin_sync();
        let outcome = match self.sync_if_free(txn) {
            Some(outcome) => outcome,
            None => self.durable_by_log(txn).await,
        };
        drop(lead);
        outcome
    }

    /// Like [`Store::durable`], for a large commit: the log's own thread writes
    /// and syncs it.
    pub async fn durable_by_log(&self, txn: Txn) -> Result<()> {
        let (notify, durable) = oneshot::channel();
        self.on_durable(txn, move |outcome| {
            // The waiting task may have been cancelled.
            let _ = notify.send(outcome);
        });
        durable.await.unwrap_or(Err(Error::Closed))
    }

    /// Yields to the other tasks as long as they add commits, so that one sync
    /// serves all of them.
    async fn gather<F: Future<Output = ()>>(&self, yield_now: impl Fn() -> F) {
        if self.engine.group_commit.skips_gathering() {
            return;
        }
        let clock = &self.engine.tables.world.clock;
        let mut latest = self.engine.latest();
        for _ in 0..GATHER_TURNS {
            let started = clock.elapsed();
            yield_now().await;
            let before = mem::replace(&mut latest, self.engine.latest());
            let gained = latest.raw() - before.raw();
            let spent = clock.elapsed().saturating_sub(started);
            if spent > GATHER_TIME * u32::try_from(gained.max(1)).unwrap_or(u32::MAX) {
                self.engine.group_commit.gather_skips.store(GATHER_SKIPS, Ordering::Relaxed);
                break;
            }
            if gained == 0 {
                break;
            }
        }
    }
}

impl Engine {
    fn is_durable(&self, txn: Txn) -> bool {
        self.durable() >= txn
    }

    /// Becomes the leader if the group needs one; otherwise returns a receiver for
    /// the notification.
    fn join_group(self: &Arc<Self>, txn: Txn) -> Result<Lead, oneshot::Receiver<Turn>> {
        let mut members = self.group_commit.members.lock();
        if members.may_lead() {
            members.gathering = true;
            return Ok(Lead::new(self));
        }
        let (notify, turn) = oneshot::channel();
        members.waiting.push((txn, notify));
        Err(turn)
    }

    /// Notifies the tasks whose commits are durable, and one of the others to
    /// lead.
    fn pass_lead(self: &Arc<Self>) {
        let is_done = |(txn, _): &mut (Txn, _)| self.is_durable(*txn);
        let waiting = &self.group_commit.members;
        let done: Vec<_> = waiting.lock().waiting.extract_if(.., is_done).collect();
        let under_way = |txn: Txn| self.log.is_under_way(txn.raw());
        while let Some(notify) = self.group_commit.next_leader(under_way) {
            // If the waiting task was cancelled, try the next one.
            match notify.send(Turn::Lead(Lead::new(self))) {
                Err(Turn::Lead(mut unsent)) => {
                    unsent.engine = None;
                    self.group_commit.members.lock().gathering = false;
                }
                _ => break,
            }
        }
        for (_, notify) in done {
            let _ = notify.send(Turn::Durable);
        }
    }
}

impl GroupCommit {
    /// Removes and returns the next leader, if one is needed. Tasks whose commits
    /// are `under_way` to the disk are left to those that sync.
    fn next_leader(&self, under_way: impl Fn(Txn) -> bool) -> Option<oneshot::Sender<Turn>> {
        let mut members = self.members.lock();
        let newest = members.waiting.last();
        let covered = members.syncing > 0 && newest.is_some_and(|(txn, _)| under_way(*txn));
        if covered || !members.may_lead() {
            return None;
        }
        let next = members.waiting.pop();
        members.gathering = next.is_some();
        next.map(|(_, notify)| notify)
    }

    /// Whether this group does not gather; counts the groups that do not.
    fn skips_gathering(&self) -> bool {
        let skip = |skips: u32| skips.checked_sub(1);
        self.gather_skips.fetch_update(Ordering::Relaxed, Ordering::Relaxed, skip).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::io;
    use std::path::Path;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};
    use std::thread;

    use super::*;
    use crate::cell::commit::{CommitBuilder, TableId};
    use crate::durability::Durability;
    use crate::options::Options;
    use crate::schema::{Family, Schema};
    use crate::sync::block_on;
    use crate::world::sim::{Operation, SimFiles};
    use crate::world::{ManualClock, SeededRandom, World};

    struct Bench {
        store: Store,
        table: TableId,
        files: SimFiles,
        clock: Arc<ManualClock>,
    }

    impl Bench {
        fn new() -> Bench {
            let (files, clock) = (SimFiles::new(1), Arc::new(ManualClock::at(1_000_000)));
            let world = World {
                clock: clock.clone(),
                files: Arc::new(files.clone()),
                random: Arc::new(SeededRandom::new(1)),
                spawner: None,
            };
            let store = Store::open(Path::new("/store"), Options::default(), world).unwrap();
            let schema = Schema::with_families([Family::new("f")]).unwrap();
            let table = store.create_table("t", schema).unwrap();
            Bench { store, table, files, clock }
        }

        fn write(&self) -> Txn {
            let mut commit = CommitBuilder::new();
            commit.table(self.table).row(b"row");
            commit.set(b"f", b"q", 1, b"value");
            self.store.apply(&commit.finish(), Txn::MAX, Durability::Accepted).unwrap()
        }

        fn durable(&self, txn: Txn) -> impl Future<Output = Result<()>> {
            self.store.durable(txn, yield_now)
        }

        fn is_durable(&self, txn: Txn) -> bool {
            self.store.engine.is_durable(txn)
        }

        fn is_led(&self) -> bool {
            let members = self.store.engine.group_commit.members.lock();
            members.gathering || members.syncing > 0
        }

        fn syncs(&self) -> u64 {
            self.store.stats().log.syncs
        }

        async fn write_ten_times(&self) {
            for _ in 0..10 {
                let txn = self.write();
                self.durable(txn).await.unwrap();
                assert!(self.is_durable(txn));
            }
        }
    }

    /// Is pending once.
    async fn yield_now() {
        let mut yielded = false;
        poll_fn(|context| {
            if mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn no_task_returns_before_its_commit_is_durable() {
        let bench = Bench::new();
        let before = bench.syncs();
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| block_on(bench.write_ten_times()));
            }
        });
        assert!(!bench.is_led());
        assert!(bench.syncs() - before <= 160);
    }

    /// On a single thread, the other tasks are sure to run before the leader
    /// syncs.
    #[test]
    fn tasks_share_syncs() {
        let bench = Bench::new();
        let before = bench.syncs();
        let mut tasks: Vec<_> = (0..400).map(|_| Box::pin(bench.write_ten_times())).collect();
        while !tasks.is_empty() {
            tasks.retain_mut(|task| poll(task.as_mut()).is_pending());
        }
        assert!(!bench.is_led());
        let syncs = bench.syncs() - before;
        assert!(syncs <= 400, "{syncs} syncs for 4000 commits");
    }

    /// Where the other tasks take long and do not write, gathering stops.
    #[test]
    fn a_leader_does_not_wait_for_tasks_that_do_not_write() {
        let bench = Bench::new();
        let yields = Cell::new(0);
        let slow = || {
            yields.set(yields.get() + 1);
            bench.clock.advance(Duration::from_millis(3));
            yield_now()
        };
        for _ in 0..=GATHER_SKIPS {
            let txn = bench.write();
            block_on(bench.store.durable(txn, slow)).unwrap();
            assert_eq!(yields.get(), 1);
        }
        let txn = bench.write();
        block_on(bench.store.durable(txn, slow)).unwrap();
        assert_eq!(yields.get(), 2, "it tries again");
    }

    /// Commits that arrive while a group is synced are synced at the same time, by
    /// another task; more wait.
    #[test]
    fn scale_5_2_two_tasks_sync_at_the_same_time() {
        let bench = Bench::new();
        block_on(bench.durable(bench.write())).unwrap();
        let txns = [bench.write(), bench.write(), bench.write()];
        let mut leads = [(); 2].map(|()| bench.store.engine.join_group(txns[0]).ok());
        assert!(leads[0].is_some() && leads[1].is_none(), "one gathers");
        leads[0].as_mut().unwrap().begin_sync();
        leads[1] = bench.store.engine.join_group(txns[1]).ok();
        leads[1].as_mut().unwrap().begin_sync();
        let mut waits = pin!(bench.durable(txns[2]));
        assert!(poll(waits.as_mut()).is_pending());
        assert!(!bench.store.engine.group_commit.members.lock().gathering, "both sync");
        drop(leads);
        block_on(waits).unwrap();
        assert!(bench.is_durable(txns[2]) && !bench.is_led());
    }

    #[test]
    fn a_leader_that_gives_up_passes_leadership_on() {
        let bench = Bench::new();
        let txn = bench.write();
        let [mut leads, mut waits, mut notified] = [(); 3].map(|()| Box::pin(bench.durable(txn)));
        assert!(poll(leads.as_mut()).is_pending());
        assert!(poll(waits.as_mut()).is_pending());
        assert!(poll(notified.as_mut()).is_pending());
        drop(leads);
        // It has been notified to lead, but has not received the notification
        // yet.
        drop(notified);
        assert!(!bench.is_durable(txn));
        block_on(waits).unwrap();
        assert!(bench.is_durable(txn));
    }

    #[test]
    fn a_task_that_stopped_waiting_is_skipped() {
        let bench = Bench::new();
        let txn = bench.write();
        let mut leads = pin!(bench.durable(txn));
        assert!(poll(leads.as_mut()).is_pending());
        let later = bench.write();
        for _ in 0..3 {
            assert!(poll(pin!(bench.durable(later))).is_pending());
        }
        block_on(leads).unwrap();
        assert!(!bench.is_led());
        block_on(bench.durable(bench.write())).unwrap();
    }

    #[test]
    fn after_a_failed_sync_every_task_gets_an_error() {
        let bench = Bench::new();
        let txn = bench.write();
        let mut leads = pin!(bench.durable(txn));
        let mut waits = pin!(bench.durable(txn));
        assert!(poll(leads.as_mut()).is_pending());
        assert!(poll(waits.as_mut()).is_pending());
        bench.files.fail_next(Operation::Sync, "/log/", io::Error::other("broken disk"));
        assert!(block_on(leads).is_err());
        assert!(block_on(waits).is_err());
        assert!(!bench.is_durable(txn));
        assert!(block_on(bench.durable(txn)).is_err());
    }
}
