//! A Raft group as its users see it.

//! A Raft group as its users see it, and the thread that it runs on.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use stele_engine::AbortOnPanic;
use tokio::sync::oneshot;

use super::callers::Callers;
use super::leader::run;
use super::log::Progress;
use super::queue::Queue;
use super::{GroupSettings, Machine};
use crate::error::{Error, Result};
use crate::histogram::Histogram;

/// A member of a group with one voter.
pub struct RaftGroup<M: Machine> {
    shared: Arc<GroupShared<M>>,
    machine: Arc<M>,
    thread: Option<JoinHandle<()>>,
    runtime: tokio::runtime::Handle,
}

/// What the group's thread shares with its users.
pub struct GroupShared<M: Machine> {
    pub member: u64,
    pub queue: Queue<M::Answer>,
    pub callers: Arc<Callers<M::Answer>>,
    /// Whether this member leads and has applied all entries of earlier terms.
    pub leads: AtomicBool,
    pub term: AtomicU64,
    pub log: Arc<Progress>,
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
    /// Opens the log, creates the group if there is none, and becomes its
    /// leader. Entries that the machine has not applied are applied before this
    /// returns.
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
            log: Arc::default(),
        });
        let (ready, opened) = oneshot::channel();
        let (of_thread, of_group) = (shared.clone(), machine.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| {
            Error::Internal(format!("creating the runtime of the Raft group: {error}"))
        })?;
        let handle = runtime.handle().clone();
        let run = move || {
            // After a panic here, proposers would wait forever.
            let _abort = AbortOnPanic::during("on the thread of the Raft group");
            runtime.block_on(run(settings, machine, of_thread, ready));
        };
        let thread = thread::Builder::new().name("stele-raft".to_string()).spawn(run);
        let thread = thread.map_err(|error| {
            Error::Internal(format!("starting the thread of the Raft group: {error}"))
        })?;
        let group = RaftGroup { shared, machine: of_group, thread: Some(thread), runtime: handle };
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
        self.shared.callers.failure().or_else(|| (!leads).then_some(Error::Stopped))
    }

    pub fn status(&self) -> GroupStatus {
        let shared = &self.shared;
        let leads = shared.leads.load(Ordering::Acquire);
        let applied = shared.callers.applied();
        GroupStatus {
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
        self.shared.callers.failure().map_or(Ok(()), Err)
    }

    fn stop(&mut self) {
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
