//! Group commit for asynchronous callers. Concurrent small commits become
//! durable by one sync, which one of the waiting tasks performs on its own
//! thread: no other thread has to be woken for the sync, or to wake the tasks.
//! Commits that arrive during a sync wait; when it finishes, one of them leads
//! the next sync. So one group is being synced while the next one gathers.
//!
//! `log/group.rs` does the same for threads that block.

use std::mem;
use std::sync::Arc;

use futures_channel::oneshot;

use super::engine::Engine;
use super::handle::Store;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::txn::Txn;

/// The maximum number of times a leader yields to other tasks before it syncs.
const GATHER_TURNS: usize = 8;

/// The tasks that wait for the next sync.
#[derive(Default)]
pub struct GroupCommit {
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    /// Whether a task leads or has been notified to lead.
    led: bool,
    waiting: Vec<(Txn, oneshot::Sender<Turn>)>,
}

/// The notification sent to a waiting task.
enum Turn {
    Durable,
    Lead(Lead),
}

/// The right to sync for the group. Dropping it passes leadership on, because a
/// task can be cancelled at any time.
struct Lead(Option<Arc<Engine>>);

impl Drop for Lead {
    fn drop(&mut self) {
        if let Some(engine) = self.0.take() {
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
        let lead = match self.engine.join_group(txn) {
            Ok(lead) => lead,
            Err(turn) => match turn.await {
                Ok(Turn::Lead(lead)) => lead,
                Ok(Turn::Durable) => return Ok(()),
                Err(_) => unreachable!("every waiting task is notified"),
            },
        };
        let outcome = self.sync_group(txn, yield_now).await;
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
    /// serves all of them, and then syncs.
    async fn sync_group<F: Future<Output = ()>>(
        &self,
        txn: Txn,
        yield_now: impl Fn() -> F,
    ) -> Result<()> {
        let mut latest = self.engine.latest();
        for _ in 0..GATHER_TURNS {
            yield_now().await;
            let before = mem::replace(&mut latest, self.engine.latest());
            if latest == before {
                break;
            }
        }
        match self.sync_if_free(txn) {
            Some(outcome) => outcome,
            None => self.durable_by_log(txn).await,
        }
    }
}

impl Engine {
    fn is_durable(&self, txn: Txn) -> bool {
        self.durable() >= txn
    }

    /// Becomes the leader if there is none; otherwise returns a receiver for the
    /// notification.
    fn join_group(self: &Arc<Self>, txn: Txn) -> Result<Lead, oneshot::Receiver<Turn>> {
        let mut members = self.group_commit.members.lock();
        if !mem::replace(&mut members.led, true) {
            return Ok(Lead(Some(self.clone())));
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
        while let Some(notify) = self.group_commit.next_leader() {
            // If the waiting task was cancelled, try the next one.
            match notify.send(Turn::Lead(Lead(Some(self.clone())))) {
                Err(Turn::Lead(mut unsent)) => unsent.0 = None,
                _ => break,
            }
        }
        for (_, notify) in done {
            let _ = notify.send(Turn::Durable);
        }
    }
}

impl GroupCommit {
    /// Removes and returns the next leader; without one, the group has no leader.
    fn next_leader(&self) -> Option<oneshot::Sender<Turn>> {
        let mut members = self.members.lock();
        let next = members.waiting.pop();
        members.led = next.is_some();
        next.map(|(_, notify)| notify)
    }
}

#[cfg(test)]
mod tests {
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
    }

    impl Bench {
        fn new() -> Bench {
            let files = SimFiles::new(1);
            let world = World {
                clock: Arc::new(ManualClock::at(1_000_000)),
                files: Arc::new(files.clone()),
                random: Arc::new(SeededRandom::new(1)),
                spawner: None,
            };
            let store = Store::open(Path::new("/store"), Options::default(), world).unwrap();
            let schema = Schema::with_families([Family::new("f")]).unwrap();
            let table = store.create_table("t", schema).unwrap();
            Bench { store, table, files }
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
            self.store.engine.group_commit.members.lock().led
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
