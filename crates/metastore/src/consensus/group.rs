//! A Raft group as its users see it, and the thread that it runs on.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{ClientWriteError, Fatal, RaftError};
use openraft::impls::BasicNode;
use openraft::{Config, Raft, SnapshotPolicy};
use stele_engine::AbortOnPanic;
use tokio::sync::oneshot;

use super::apply::{Applier, Waiting};
use super::log::{Progress, RaftLog};
use super::network::NoPeers;
use super::queue::{Batch, Queue, refuse};
use super::record;
use super::types::{Gathered, Types};
use super::{Machine, Settings, Status};
use crate::error::{Error, Result};
use crate::histogram::Histogram;

/// A member of a group with one voter.
pub struct Group<M: Machine> {
    shared: Arc<Shared<M>>,
    machine: Arc<M>,
    thread: Option<JoinHandle<()>>,
    runtime: tokio::runtime::Handle,
}

struct Shared<M: Machine> {
    member: u64,
    queue: Queue<M::Answer>,
    waiting: Arc<Waiting<M::Answer>>,
    /// Whether this member leads and has applied all entries of earlier terms.
    leads: AtomicBool,
    term: AtomicU64,
    log: Arc<Progress>,
}

impl<M: Machine> Group<M> {
    /// Opens the log, creates the group if there is none, and becomes its
    /// leader. Entries that the machine has not applied are applied before this
    /// returns.
    pub async fn open(settings: Settings, machine: Arc<M>) -> Result<Group<M>> {
        if settings.member == 0 {
            return Err(Error::Config("a member's id is never 0".to_string()));
        }
        let shared = Arc::new(Shared {
            member: settings.member,
            queue: Queue::new(&settings),
            waiting: Arc::new(Waiting::new(machine.applied().index)),
            leads: AtomicBool::new(false),
            term: AtomicU64::new(0),
            log: Arc::default(),
        });
        let (ready, opened) = oneshot::channel();
        let (of_thread, of_group) = (shared.clone(), machine.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| Error::Internal(format!("no runtime: {error}")))?;
        let handle = runtime.handle().clone();
        let run = move || {
            // After a panic here, proposers would wait forever.
            let _abort = AbortOnPanic::during("on the thread of the Raft group");
            runtime.block_on(run(settings, machine, of_thread, ready));
        };
        let thread = thread::Builder::new().name("stele-raft".to_string()).spawn(run);
        let thread = thread.map_err(|error| Error::Internal(format!("no thread: {error}")))?;
        let group = Group { shared, machine: of_group, thread: Some(thread), runtime: handle };
        opened.await.unwrap_or(Err(Error::Stopped))?;
        Ok(group)
    }

    /// Queues a proposal, which shares an entry and a sync with concurrent
    /// ones. Resolves once it is applied. Dropping the future does not withdraw
    /// the proposal.
    pub fn propose(&self, proposal: Bytes) -> impl Future<Output = Result<M::Answer>> + Send {
        let queued = self.shared.queue.push(proposal);
        async move { queued?.await.unwrap_or(Err(Error::Stopped)) }
    }

    /// Waits until a read of local state is linearizable. Returns immediately,
    /// because the only voter has applied everything that was answered before.
    pub async fn barrier(&self) -> Result<()> {
        if self.shared.leads.load(Ordering::Acquire) { Ok(()) } else { Err(Error::Stopped) }
    }

    /// Returns why the group does not serve requests, or `None` if it does.
    pub fn failure(&self) -> Option<Error> {
        let leads = self.shared.leads.load(Ordering::Acquire);
        self.shared.waiting.failure().or_else(|| (!leads).then_some(Error::Stopped))
    }

    pub fn status(&self) -> Status {
        let shared = &self.shared;
        let leads = shared.leads.load(Ordering::Acquire);
        let applied = shared.waiting.applied();
        Status {
            member: shared.member,
            leader: if leads { shared.member } else { 0 },
            term: shared.term.load(Ordering::Acquire),
            last: shared.log.last.load(Ordering::Acquire).max(applied),
            committed: applied,
            applied,
        }
    }

    /// Returns the number of queued proposals.
    pub fn pending(&self) -> usize {
        self.shared.queue.len()
    }

    /// Returns the bytes written to the log and the number of its syncs since
    /// the group was opened.
    pub fn log_stats(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.shared.log.bytes), load(&self.shared.log.syncs))
    }

    /// Returns how long it took to write entries to the log and sync it.
    pub fn append_times(&self) -> &Histogram {
        &self.shared.log.append_times
    }

    /// Returns the runtime of the group's thread, for its clock and statistics.
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// Finishes the queued proposals and closes the log.
    pub async fn close(mut self) -> Result<()> {
        self.stop();
        self.shared.waiting.failure().map_or(Ok(()), Err)
    }

    fn stop(&mut self) {
        self.shared.queue.close(Error::Stopped);
        self.machine.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the group's thread had panicked");
        }
    }
}

impl<M: Machine> Drop for Group<M> {
    fn drop(&mut self) {
        self.stop();
    }
}

type Ready = oneshot::Sender<Result<()>>;

/// Runs the group's thread.
async fn run<M: Machine>(
    settings: Settings,
    machine: Arc<M>,
    shared: Arc<Shared<M>>,
    ready: Ready,
) {
    let mut core = match Core::start(&settings, machine, shared.clone()).await {
        Ok(core) => core,
        Err(error) => {
            shared.queue.close(error.clone());
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    let served = core.serve().await;
    shared.leads.store(false, Ordering::Release);
    if let Err(error) = served {
        tracing::error!(%error, "the group has stopped");
        shared.queue.close(error.clone());
        shared.waiting.abandon(&error);
        shared.queue.refuse_all(&error);
    }
    core.end().await;
}

struct Core<M: Machine> {
    shared: Arc<Shared<M>>,
    machine: Arc<M>,
    raft: Raft<Types, Applier<M>>,
    log: RaftLog,
    ticket: u64,
    /// The index up to which a purge was requested from the library.
    purged: u64,
    /// The number of consecutive lingers in vain, and the number of entries to
    /// write without lingering before the next attempt.
    gather_misses: u32,
    gather_pause: u32,
}

/// The minimum number of callers to linger for.
const COMPANY_MIN: usize = 3;
/// The linger is the duration of the last append divided by this.
const PATIENCE_PART: u32 = 5;
const GATHER_MISSES_MAX: u32 = 5;

impl<M: Machine> Core<M> {
    async fn start(
        settings: &Settings,
        machine: Arc<M>,
        shared: Arc<Shared<M>>,
    ) -> Result<Core<M>> {
        let log = RaftLog::open(settings, machine.applied(), shared.log.clone())?;
        let pristine = log.is_pristine();
        let applier = Applier::new(machine.clone(), shared.waiting.clone(), log.clone());
        let config = Arc::new(config()?);
        let raft = Raft::new(settings.member, config, NoPeers, log.clone(), applier).await;
        let raft = raft.map_err(|error| fatal(&shared, &error))?;
        if pristine {
            let members = BTreeMap::from([(settings.member, BasicNode::default())]);
            let founded = raft.initialize(members).await;
            founded.map_err(|error| Error::Internal(format!("founding the group: {error}")))?;
        } else {
            raft.trigger().elect(false).await.map_err(|error| fatal(&shared, &error))?;
        }
        let purged = log.purged().index;
        let (gather_misses, gather_pause) = (0, 0);
        let core =
            Core { shared, machine, raft, log, ticket: 0, purged, gather_misses, gather_pause };
        core.lead().await?;
        Ok(core)
    }

    /// Waits until this member leads. Once an empty entry of its own term is
    /// applied, all earlier entries are applied too.
    async fn lead(&self) -> Result<()> {
        let id = self.shared.member;
        let leads = self.raft.wait(None).current_leader(id, "the only voter leads").await;
        leads.map_err(|error| self.shared.waiting.failure().unwrap_or(stopped(&error)))?;
        self.write(Batch { proposals: Vec::new(), replies: Vec::new() }, 0).await?;
        let term = self.log.last().term;
        self.shared.term.store(term, Ordering::Release);
        self.shared.leads.store(true, Ordering::Release);
        Ok(())
    }

    /// Writes queued proposals as entries until the queue is closed.
    async fn serve(&mut self) -> Result<()> {
        while let Some(batch) = self.shared.queue.take().await {
            if let Err(error) = self.log.reserve(record::proposals_bytes(&batch.proposals)) {
                // The disk is full: nothing has been written, and there may be
                // space later.
                refuse(batch.replies, &error);
                continue;
            }
            let answered = batch.replies.len();
            self.ticket += 1;
            self.write(batch, self.ticket).await?;
            self.purge().await?;
            self.gather(answered);
        }
        Ok(())
    }

    /// Lingers for callers that were just answered, since they are likely to
    /// propose again soon. When others are waiting already, one entry for all
    /// is better than alternating between two halves. Lingers less often after
    /// waiting in vain.
    fn gather(&mut self, answered: usize) {
        let company = answered + self.shared.queue.len();
        if company < COMPANY_MIN {
            return;
        }
        if self.gather_pause > 0 {
            self.gather_pause -= 1;
            return;
        }
        let append = Duration::from_micros(self.shared.log.append_micros.load(Ordering::Relaxed));
        if self.shared.queue.gather(company, append / PATIENCE_PART) {
            self.gather_misses = 0;
        } else {
            self.gather_misses = (self.gather_misses + 1).min(GATHER_MISSES_MAX);
            self.gather_pause = (1 << self.gather_misses) - 1;
        }
    }

    /// Appends, syncs and applies one entry.
    async fn write(&self, batch: Batch<M::Answer>, ticket: u64) -> Result<()> {
        let Batch { proposals, replies } = batch;
        if ticket > 0 {
            self.shared.waiting.begin(ticket, replies);
        }
        let gathered = Gathered { ticket, proposals: Arc::new(proposals) };
        let written = self.raft.client_write(gathered).await;
        match written {
            Ok(_) => Ok(()),
            Err(RaftError::Fatal(error)) => Err(fatal(&self.shared, &error)),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => {
                Err(Error::LeaderChanged)
            }
            Err(RaftError::APIError(error)) => Err(Error::Internal(error.to_string())),
        }
    }

    /// Purges the part of the log that the machine no longer needs.
    async fn purge(&mut self) -> Result<()> {
        let flushed = self.machine.flushed();
        if flushed > self.purged {
            self.purged = flushed;
            let asked = self.raft.trigger().snapshot().await;
            asked.map_err(|error| fatal(&self.shared, &error))?;
        }
        Ok(())
    }

    async fn end(self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "the group did not stop in good order");
        }
        if let Err(error) = self.log.close() {
            tracing::warn!(%error, "the log of the group was not closed in good order");
        }
    }
}

/// Disables all timers: a single voter is told explicitly when to lead and when
/// to purge.
fn config() -> Result<Config> {
    let config = Config {
        cluster_name: "stele".to_string(),
        enable_tick: false,
        enable_heartbeat: false,
        enable_elect: false,
        enable_leader_restore: Some(false),
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        ..Config::default()
    };
    config.validate().map_err(|error| Error::Internal(error.to_string()))
}

fn stopped(error: &impl std::fmt::Display) -> Error {
    Error::Internal(format!("the group has stopped: {error}"))
}

/// Returns the machine's own error if it was the machine that failed.
fn fatal<M: Machine>(shared: &Shared<M>, error: &Fatal<Types>) -> Error {
    shared.waiting.failure().unwrap_or_else(|| stopped(error))
}
