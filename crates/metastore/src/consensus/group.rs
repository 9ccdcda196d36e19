//! A Raft group as its users see it, and the thread that it runs on.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use stele_engine::AbortOnPanic;
use tokio::sync::oneshot;
use tokio::task::JoinHandle as TaskHandle;

use super::callers::Callers;
use super::disk::LogIo;
use super::leader::run_alone;
use super::log::Progress;
use super::member::ClusterMember;
use super::queue::Queue;
use super::runtime::Runtime;
use super::watch;
use super::{GroupSettings, GroupThreads, Machine};
use crate::error::{Error, Result};
use crate::histogram::Histogram;
use crate::phases::Phases;

/// A member of a group.
pub struct RaftGroup<M: Machine> {
    shared: Arc<GroupShared<M>>,
    machine: Arc<M>,
    /// The thread or the task that the group runs on.
    thread: Option<JoinHandle<()>>,
    task: Option<TaskHandle<()>>,
    runtime: tokio::runtime::Handle,
    /// `None` in a group of one.
    member: Option<Arc<ClusterMember<M>>>,
}

/// Reports that the group serves requests, with the member if there are several.
pub type Ready<M> = oneshot::Sender<Result<Option<Arc<ClusterMember<M>>>>>;

/// Who leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// 0 if no leader is known.
    pub leader: u64,
    pub term: u64,
    /// Whether this member leads and has applied all entries of earlier terms.
    pub leads: bool,
}

/// What the group's thread shares with its users.
pub struct GroupShared<M: Machine> {
    pub member: u64,
    pub queue: Queue<M::Answer>,
    pub callers: Arc<Callers<M::Answer>>,
    /// Whether this member leads and has applied all entries of earlier terms.
    pub leads: AtomicBool,
    pub term: AtomicU64,
    /// 0 if no leader is known.
    pub leader: AtomicU64,
    /// Notifies of changes of the three above.
    pub leadership: watch::Sender<Leadership>,
    pub log: Arc<Progress>,
}

impl<M: Machine> GroupShared<M> {
    pub fn set_leader(&self, leader: u64, term: u64, leads: bool) {
        self.term.store(term, Ordering::Release);
        self.leader.store(leader, Ordering::Release);
        self.leads.store(leads, Ordering::Release);
        let now = Leadership { leader, term, leads };
        self.leadership.send_if_modified(|before| std::mem::replace(before, now) != now);
    }
}

/// The progress of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    pub member: u64,
    /// 0 if there is no leader.
    pub leader: u64,
    pub term: u64,
    /// Index of the last entry in the log.
    pub last: u64,
    pub committed: u64,
    pub applied: u64,
}

impl<M: Machine> RaftGroup<M> {
    /// Opens the log, and creates the group if there is none. A group of one
    /// leads itself, and has applied all entries before this returns.
    pub async fn open(settings: GroupSettings, machine: Arc<M>) -> Result<RaftGroup<M>> {
        if settings.member == 0 {
            return Err(Error::Config("invalid member id 0: use another number".to_string()));
        }
        let shared = Arc::new(GroupShared {
            member: settings.member,
            queue: Queue::new(&settings),
            callers: Arc::new(Callers::new(machine.applied().index)),
            leads: AtomicBool::new(false),
            term: AtomicU64::new(0),
            leader: AtomicU64::new(0),
            leadership: watch::Sender::default(),
            log: Arc::default(),
        });
        let (ready, opened) = oneshot::channel();
        let threads = settings.threads;
        let running = run(settings, machine.clone(), shared.clone(), ready);
        let (thread, task, runtime) = match threads {
            GroupThreads::Current => {
                (None, Some(tokio::spawn(running)), tokio::runtime::Handle::current())
            }
            GroupThreads::One | GroupThreads::Several => {
                let runtime = build_runtime(threads)?;
                let handle = runtime.handle().clone();
                let run = move || {
                    // After a panic here, proposers would wait forever.
                    let _abort = AbortOnPanic::during("on the thread of the Raft group");
                    runtime.block_on(running);
                };
                let thread = thread::Builder::new().name("stele-raft".to_string()).spawn(run);
                let thread = thread.map_err(|error| {
                    Error::Internal(format!("starting the thread of the Raft group: {error}"))
                })?;
                (Some(thread), None, handle)
            }
        };
        let mut group = RaftGroup { shared, machine, thread, task, runtime, member: None };
        group.member = opened.await.unwrap_or(Err(Error::Stopped))?;
        Ok(group)
    }

    /// Queues a proposal, which shares an entry and a sync with concurrent
    /// ones. Resolves once it is applied. Dropping the future does not withdraw
    /// the proposal.
    pub fn propose(&self, proposal: Bytes) -> impl Future<Output = Result<M::Answer>> + Send {
        let queued = self.shared.queue.push(proposal);
        async move { queued?.await.unwrap_or(Err(Error::Stopped)) }
    }

    /// Proposes a command of the leader: it has no effect unless this member
    /// still leads in `term` when it is appended.
    pub async fn propose_in_term(&self, term: u64, proposal: Bytes) -> Result<M::Answer> {
        match &self.member {
            None => self.propose(proposal).await,
            Some(member) => member.propose_in_term(term, proposal).await,
        }
    }

    /// Waits until a read of local state is linearizable. Returns immediately in
    /// a group of one, which has applied everything that was answered before.
    pub async fn barrier(&self) -> Result<()> {
        match &self.member {
            Some(member) => member.barrier().await,
            None if self.shared.leads.load(Ordering::Acquire) => Ok(()),
            None => Err(Error::Stopped),
        }
    }

    /// Puts a question to the leader's machine; see [`Machine::ask`].
    pub async fn ask_leader(&self, question: Bytes) -> Result<Bytes> {
        match &self.member {
            Some(member) => member.ask_leader(question).await,
            // Nothing has to wait for other members.
            None => Ok(self.machine.ask(question, Duration::ZERO).unwrap_or_default()),
        }
    }

    /// Hands leadership over to a member; to any if `to` is `None`.
    pub async fn transfer_leader(&self, to: Option<u64>) -> Result<()> {
        match &self.member {
            Some(member) => member.transfer_leader(to).await,
            None => Err(Error::MemberNotFound),
        }
    }

    /// Returns the time since another member was last known to lead.
    pub fn silence(&self) -> Duration {
        self.member.as_ref().map_or(Duration::ZERO, |member| member.silence())
    }

    /// Returns whether the group has other members.
    pub fn has_peers(&self) -> bool {
        self.member.is_some()
    }

    /// Returns who leads, and notifies of changes.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.shared.leadership.subscribe()
    }

    /// Returns why the group does not serve requests, or `None` if it does.
    pub fn failure(&self) -> Option<Error> {
        if let Some(failure) = self.shared.callers.failure() {
            return Some(failure);
        }
        if self.member.is_some() {
            let leader = self.shared.leader.load(Ordering::Acquire);
            return (leader == 0).then_some(Error::NoLeader);
        }
        let leads = self.shared.leads.load(Ordering::Acquire);
        (!leads).then_some(Error::Stopped)
    }

    pub fn status(&self) -> GroupStatus {
        let shared = &self.shared;
        let applied = shared.callers.applied();
        let leader = match &self.member {
            Some(_) => shared.leader.load(Ordering::Acquire),
            None if shared.leads.load(Ordering::Acquire) => shared.member,
            None => 0,
        };
        GroupStatus {
            member: shared.member,
            leader,
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

    /// Returns how long requests spent in each phase.
    pub fn phases(&self) -> &Phases {
        &self.shared.log.phases
    }

    /// Returns the runtime of the group's thread, for its clock and statistics.
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// Finishes the queued proposals and closes the log.
    pub async fn close(mut self) -> Result<()> {
        if let Some(member) = &self.member
            && self.shared.leads.load(Ordering::Acquire)
        {
            // Otherwise the others would wait for an election timeout.
            let _ = member.transfer_leader(None).await;
        }
        self.shared.queue.close(Error::Stopped);
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
        self.stop();
        self.shared.callers.failure().map_or(Ok(()), Err)
    }

    fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        self.shared.queue.close(Error::Stopped);
        self.machine.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the Raft group panicked");
        }
    }
}

impl<M: Machine> Drop for RaftGroup<M> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a group until its queue is closed or it fails.
async fn run<M: Machine>(
    mut settings: GroupSettings,
    machine: Arc<M>,
    shared: Arc<GroupShared<M>>,
    ready: Ready<M>,
) {
    let seed = settings.world.random.next_u64();
    let running = async {
        match settings.peers.clone() {
            None => run_alone(&settings, machine, &shared, ready).await,
            Some(peers) => {
                if matches!(settings.log_io, LogIo::Inline) {
                    settings.log_io = LogIo::Thread;
                }
                match ClusterMember::start(&settings, peers, machine, shared.clone()).await {
                    Err(error) => {
                        shared.queue.close(error.clone());
                        let _ = ready.send(Err(error));
                    }
                    Ok(member) => {
                        let _ = ready.send(Ok(Some(member.clone())));
                        let _ = member.serve().await;
                        member.end().await;
                    }
                }
            }
        }
    };
    Runtime::scope(seed, running).await;
}

fn build_runtime(threads: GroupThreads) -> Result<tokio::runtime::Runtime> {
    let built = match threads {
        GroupThreads::Several => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("stele-raft")
            .enable_all()
            .build(),
        // Without I/O, the thread sleeps on a condition variable, which is
        // cheaper to wake.
        GroupThreads::One | GroupThreads::Current => {
            tokio::runtime::Builder::new_current_thread().enable_time().build()
        }
    };
    built.map_err(|error| {
        Error::Internal(format!("creating the runtime of the Raft group: {error}"))
    })
}
