//! Group commit among the tasks of a server. Concurrent small writes become
//! durable by one sync, which one of their tasks performs on its own thread: no
//! other thread has to be woken for the sync, or to wake the tasks. Writes that
//! arrive during a sync wait; when it finishes, one of them leads the next sync.
//! So one group is being synced while the next one gathers.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use stele_engine::{Store, Txn};
use tokio::sync::oneshot;

use crate::error::{Error, Result};

/// The maximum number of times a leader yields to other tasks before it syncs.
const GATHER_TURNS: usize = 8;

pub struct Group {
    store: Arc<Store>,
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
/// call can be cancelled at any time.
struct Lead(Option<Arc<Group>>);

impl Drop for Lead {
    fn drop(&mut self) {
        if let Some(group) = self.0.take() {
            group.hand_on();
        }
    }
}

impl Group {
    pub fn new(store: Arc<Store>) -> Arc<Group> {
        Arc::new(Group { store, members: Mutex::default() })
    }

    /// Waits until everything up to `txn` is durable. Used to complete small
    /// writes.
    pub async fn durable(self: &Arc<Self>, txn: Txn) -> Result<()> {
        if self.is_durable(txn) {
            return Ok(());
        }
        let lead = match self.join(txn) {
            Ok(lead) => lead,
            Err(told) => match told.await {
                Ok(Turn::Lead(lead)) => lead,
                Ok(Turn::Durable) => return Ok(()),
                Err(_) => unreachable!("everybody who waits is told"),
            },
        };
        let outcome = self.sync(txn).await;
        drop(lead);
        outcome
    }

    /// Like [`Group::durable`], for a large write: the log's own thread writes
    /// and syncs it.
    pub async fn told_durable(&self, txn: Txn) -> Result<()> {
        let (told, durable) = oneshot::channel();
        self.store.on_durable(txn, move |outcome| {
            // The waiting call may have been cancelled.
            let _ = told.send(outcome);
        });
        let closed = |_| Err(stele_engine::Error::Closed);
        durable.await.unwrap_or_else(closed).map_err(Error::Engine)
    }

    fn is_durable(&self, txn: Txn) -> bool {
        self.store.progress().0 >= txn
    }

    /// Becomes the leader if there is none; otherwise returns a receiver for the
    /// notification.
    fn join(self: &Arc<Self>, txn: Txn) -> Result<Lead, oneshot::Receiver<Turn>> {
        let mut members = self.members.lock();
        if !mem::replace(&mut members.led, true) {
            return Ok(Lead(Some(self.clone())));
        }
        let (tell, told) = oneshot::channel();
        members.waiting.push((txn, tell));
        Err(told)
    }

    /// Yields to the other tasks as long as they add commits, so that one sync
    /// serves all of them, and then syncs.
    async fn sync(&self, txn: Txn) -> Result<()> {
        let (_, mut latest) = self.store.progress();
        for _ in 0..GATHER_TURNS {
            tokio::task::yield_now().await;
            let before = mem::replace(&mut latest, self.store.progress().1);
            if latest == before {
                break;
            }
        }
        match self.store.sync_if_free(txn) {
            Some(done) => done.map_err(Error::Engine),
            None => self.told_durable(txn).await,
        }
    }

    /// Notifies the tasks whose commits are durable, and one of the others to
    /// lead.
    fn hand_on(self: &Arc<Self>) {
        let is_done = |(txn, _): &mut (Txn, _)| self.is_durable(*txn);
        let done: Vec<_> = self.members.lock().waiting.extract_if(.., is_done).collect();
        while let Some(tell) = self.next_leader() {
            // If the waiting task was cancelled, try the next one.
            match tell.send(Turn::Lead(Lead(Some(self.clone())))) {
                Err(Turn::Lead(mut unsent)) => unsent.0 = None,
                _ => break,
            }
        }
        for (_, tell) in done {
            let _ = tell.send(Turn::Durable);
        }
    }

    /// Removes and returns the next leader; without one, the group has no leader.
    fn next_leader(&self) -> Option<oneshot::Sender<Turn>> {
        let mut members = self.members.lock();
        let next = members.waiting.pop();
        members.led = next.is_some();
        next.map(|(_, tell)| tell)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::io;
    use std::path::Path;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use stele_engine::schema::{Family, Schema};
    use stele_engine::world::sim::{Operation, SimFiles};
    use stele_engine::world::{ManualClock, SeededRandom, World};
    use stele_engine::{CommitBuilder, Options, TableId, Wait};

    use super::*;

    struct Bench {
        group: Arc<Group>,
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
            Bench { group: Group::new(Arc::new(store)), table, files }
        }

        fn write(&self) -> Txn {
            let mut commit = CommitBuilder::new();
            commit.table(self.table).row(b"row");
            commit.set(b"f", b"q", 1, b"value");
            self.group.store.apply(&commit.finish(), Txn::MAX, Wait::Accepted).unwrap()
        }

        fn syncs(&self) -> u64 {
            self.group.store.stats().log.syncs
        }
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Runs 400 tasks that write ten times each. Returns the number of syncs.
    async fn write_in_tasks() -> u64 {
        let bench = Arc::new(Bench::new());
        let before = bench.syncs();
        let tasks: Vec<_> = (0..400)
            .map(|_| {
                let bench = bench.clone();
                tokio::spawn(async move {
                    for _ in 0..10 {
                        let txn = bench.write();
                        bench.group.durable(txn).await.unwrap();
                        assert!(bench.group.is_durable(txn));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(!bench.group.members.lock().led);
        bench.syncs() - before
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_task_returns_before_its_commit_is_durable() {
        assert!(write_in_tasks().await <= 4000);
    }

    /// On a single thread, the other tasks are sure to run before the leader
    /// syncs.
    #[tokio::test]
    async fn tasks_share_syncs() {
        let syncs = write_in_tasks().await;
        assert!(syncs <= 400, "{syncs} syncs for 4000 commits");
    }

    #[tokio::test]
    async fn who_gives_up_leading_hands_it_on() {
        let bench = Bench::new();
        let txn = bench.write();
        let [mut leads, mut waits, mut told] = [(); 3].map(|()| Box::pin(bench.group.durable(txn)));
        assert!(poll(leads.as_mut()).is_pending());
        assert!(poll(waits.as_mut()).is_pending());
        assert!(poll(told.as_mut()).is_pending());
        drop(leads);
        // It has been notified to lead, but has not received the notification
        // yet.
        drop(told);
        assert!(!bench.group.is_durable(txn));
        waits.await.unwrap();
        assert!(bench.group.is_durable(txn));
    }

    #[tokio::test]
    async fn who_stopped_waiting_is_passed_over() {
        let bench = Bench::new();
        let txn = bench.write();
        let mut leads = pin!(bench.group.durable(txn));
        assert!(poll(leads.as_mut()).is_pending());
        let later = bench.write();
        for _ in 0..3 {
            assert!(poll(pin!(bench.group.durable(later))).is_pending());
        }
        leads.await.unwrap();
        assert!(!bench.group.members.lock().led);
        bench.group.durable(bench.write()).await.unwrap();
    }

    #[tokio::test]
    async fn after_a_failed_sync_everybody_is_told_an_error() {
        let bench = Bench::new();
        let txn = bench.write();
        let mut leads = pin!(bench.group.durable(txn));
        let mut waits = pin!(bench.group.durable(txn));
        assert!(poll(leads.as_mut()).is_pending());
        assert!(poll(waits.as_mut()).is_pending());
        bench.files.fail_next(Operation::Sync, "/log/", io::Error::other("broken disk"));
        assert!(leads.await.is_err());
        assert!(waits.await.is_err());
        assert!(!bench.group.is_durable(txn));
        assert!(bench.group.durable(txn).await.is_err());
    }
}
