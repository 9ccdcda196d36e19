//! Passes committed entries to the machine and its answers to the waiting
//! callers. The machine's state on disk serves as the snapshot up to which the
//! log can be purged.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use stele_engine::AbortOnPanic;
use stele_engine::fatal::Mutex;
use tokio_stream::{Stream, StreamExt};

use super::log::RaftLog;
use super::queue::{Reply, refuse};
use super::types::{Gathered, LogId, Snapshot, SnapshotMeta, StoredMembership, Types};
use super::{Committed, Machine, Position};
use crate::error::Error;

/// The callers that wait for the answers of the entry in progress.
pub struct Waiting<A> {
    slot: Mutex<Option<(u64, Vec<Reply<A>>)>>,
    /// The error with which the machine stopped the group.
    failure: Mutex<Option<Error>>,
    applied: AtomicU64,
}

impl<A> Waiting<A> {
    pub fn new(applied: u64) -> Waiting<A> {
        Waiting {
            slot: Mutex::new(None),
            failure: Mutex::new(None),
            applied: AtomicU64::new(applied),
        }
    }

    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    pub fn failure(&self) -> Option<Error> {
        self.failure.lock().clone()
    }

    /// Registers the callers of the entry with this ticket.
    pub fn begin(&self, ticket: u64, replies: Vec<Reply<A>>) {
        let before = self.slot.lock().replace((ticket, replies));
        assert!(before.is_none(), "one entry after the other");
    }

    /// Returns whether any caller of the entry is still waiting.
    fn is_awaited(&self, ticket: u64) -> bool {
        let slot = self.slot.lock();
        let mine = slot.as_ref().filter(|(waiting, _)| *waiting == ticket);
        mine.is_some_and(|(_, replies)| replies.iter().any(|reply| !reply.is_closed()))
    }

    /// Fails the callers of an entry that is not applied, or whose outcome is
    /// unknown.
    pub fn abandon(&self, why: &Error) {
        if let Some((_, replies)) = self.slot.lock().take() {
            refuse(replies, why);
        }
    }

    fn answer(&self, ticket: u64, answers: Vec<A>) {
        let waiting = self.slot.lock().take_if(|(waiting, _)| *waiting == ticket);
        let Some((_, replies)) = waiting else { return };
        assert_eq!(replies.len(), answers.len(), "one answer for each proposal");
        for (reply, answer) in replies.into_iter().zip(answers) {
            let _ = reply.send(Ok(answer));
        }
    }
}

pub struct Applier<M: Machine> {
    machine: Arc<M>,
    waiting: Arc<Waiting<M::Answer>>,
    log: RaftLog,
    membership: StoredMembership,
}

impl<M: Machine> Applier<M> {
    pub fn new(machine: Arc<M>, waiting: Arc<Waiting<M::Answer>>, log: RaftLog) -> Applier<M> {
        let membership = log.membership_at(machine.applied().index);
        Applier { machine, waiting, log, membership }
    }

    fn apply_one(
        &mut self,
        position: Position,
        payload: EntryPayload<Gathered, u64, openraft::impls::BasicNode>,
    ) -> io::Result<()> {
        let Position { index, term } = position;
        let (ticket, proposals) = match payload {
            EntryPayload::Normal(Gathered { ticket, proposals }) => (ticket, proposals),
            EntryPayload::Blank => (0, Arc::default()),
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(position.log_id(), membership);
                (0, Arc::default())
            }
        };
        let proposals = Arc::unwrap_or_clone(proposals);
        let awaited = ticket > 0 && self.waiting.is_awaited(ticket);
        // The runtime would catch a panic, and the group would hang.
        let abort = AbortOnPanic::during("while a log entry was applied");
        let answers = self.machine.apply(Committed { index, term, proposals, awaited });
        let answers = answers.map_err(|error| {
            let told = io::Error::other(error.to_string());
            self.waiting.failure.lock().get_or_insert(error);
            told
        })?;
        self.waiting.applied.store(index, Ordering::Release);
        if ticket > 0 {
            self.waiting.answer(ticket, answers);
        }
        drop(abort);
        Ok(())
    }
}

impl<M: Machine> RaftStateMachine<Types> for Applier<M> {
    type SnapshotData = ();
    type SnapshotBuilder = Mark;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.machine.applied().log_id(), self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(entry) = entries.next().await {
            let (entry, responder) = entry?;
            let position = Position::of(&entry.log_id);
            self.log.release(position.index);
            self.apply_one(position, entry.payload)?;
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Mark {
        Mark { log: self.log.clone(), flushed: self.machine.flushed() }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, _snapshot: ()) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("nobody sends snapshots: {meta}")))
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let purged = self.log.purged();
        Ok((purged.index > 0).then(|| self.log.snapshot_at(purged.index)))
    }
}

/// Builds snapshots, which only record how far the machine is flushed.
pub struct Mark {
    log: RaftLog,
    flushed: u64,
}

impl RaftSnapshotBuilder<Types> for Mark {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        Ok(self.log.snapshot_at(self.flushed.max(self.log.purged().index)))
    }
}
