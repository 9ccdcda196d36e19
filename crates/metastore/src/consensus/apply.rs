//! Passes committed entries to the machine, once they are synced locally, and
//! its answers to the waiting callers. The machine's state on disk serves as the snapshot up to which the
//! log can be purged.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend};
use stele_engine::AbortOnPanic;
use tokio_stream::{Stream, StreamExt};

use super::callers::Callers;
use super::disk::failed;
use super::install::Install;
use super::log::RaftLog;
use super::membership::AppliedMembers;
use super::outgoing::{Outgoing, offload};
use super::rules::Rules;
use super::types::{
    EntryData, LogId, Payload, Snapshot, SnapshotData, SnapshotMeta, StoredMembership, Types,
};
use super::{Committed, Machine, Position};

/// The state machine as the Raft library sees it: a [`Machine`] and the callers
/// of the entry in progress.
pub struct MachineAdapter<M: Machine> {
    machine: Arc<M>,
    callers: Arc<Callers<M::Answer>>,
    log: RaftLog,
    membership: StoredMembership,
    /// The members as of the last entry applied.
    members: Arc<AppliedMembers>,
    /// The entries whose callers wait here; 0 in a group of one.
    origin: u64,
    /// The last entry that may be purged.
    purge_target: Arc<AtomicU64>,
    rules: Rules,
    /// The snapshots that are sent; `None` in a group of one.
    outgoing: Option<Arc<Outgoing>>,
    /// Whether blocking work runs on other threads.
    offloads: bool,
}

impl<M: Machine> MachineAdapter<M> {
    pub fn new(
        machine: Arc<M>,
        callers: Arc<Callers<M::Answer>>,
        log: RaftLog,
    ) -> MachineAdapter<M> {
        let membership = log.membership_at(machine.applied().index);
        MachineAdapter {
            members: Arc::new(AppliedMembers::new(0, membership.membership())),
            machine,
            callers,
            log,
            membership,
            origin: 0,
            purge_target: Arc::new(AtomicU64::new(u64::MAX)),
            rules: Rules::default(),
            outgoing: None,
            offloads: false,
        }
    }

    /// Lets snapshots be sent and received.
    pub fn exchange_snapshots(&mut self, outgoing: Arc<Outgoing>, offloads: bool) {
        (self.outgoing, self.offloads) = (Some(outgoing), offloads);
    }

    /// Makes this the machine of a member of a group of several.
    pub fn serve_member(&mut self, member: u64, purge_target: Arc<AtomicU64>, rules: Rules) {
        (self.origin, self.purge_target, self.rules) = (member, purge_target, rules);
        self.members = Arc::new(AppliedMembers::new(member, self.membership.membership()));
    }

    /// Returns the members as of the last entry applied, to be read at any time.
    pub fn members(&self) -> Arc<AppliedMembers> {
        self.members.clone()
    }

    fn set_membership(&mut self, membership: StoredMembership) {
        self.members.set(membership.membership());
        self.membership = membership;
    }

    fn apply_one(&mut self, position: Position, payload: Payload) -> io::Result<()> {
        let Position { index, term } = position;
        let began = self.log.now();
        let (ticket, proposals) = match payload {
            EntryPayload::Normal(EntryData { origin, ticket, proposals }) => {
                (if origin == self.origin { ticket } else { 0 }, proposals)
            }
            EntryPayload::Blank => (0, Arc::default()),
            EntryPayload::Membership(membership) => {
                self.set_membership(StoredMembership::new(position.log_id(), membership));
                (0, Arc::default())
            }
        };
        let proposals = Arc::unwrap_or_clone(proposals);
        let awaited = ticket > 0 && self.callers.is_awaited(ticket);
        // The runtime would catch a panic, and the group would hang.
        let abort = AbortOnPanic::during("while a log entry was applied");
        let answers = self.machine.apply(Committed { index, term, proposals, awaited });
        let answers = answers.map_err(|error| {
            let failure = io::Error::other(error.to_string());
            self.callers.set_failure(error);
            failure
        })?;
        self.callers.set_applied(index);
        if ticket > 0 {
            self.log.note_applied(ticket, index, began);
            self.callers.answer(ticket, answers);
        }
        drop(abort);
        Ok(())
    }
}

impl<M: Machine> RaftStateMachine<Types> for MachineAdapter<M> {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = FlushedSnapshot;

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
            // The machine may flush its state at any time, and must not be ahead
            // of the log after a crash.
            if !self.rules.apply_before_sync {
                self.log.wait_synced(position.index).await;
            }
            self.apply_one(position, entry.payload)?;
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> FlushedSnapshot {
        let target = self.purge_target.load(Ordering::Acquire);
        FlushedSnapshot { log: self.log.clone(), flushed: self.machine.flushed().min(target) }
    }

    /// The machine's state is replaced first, atomically, then the log: if it is
    /// interrupted in between, the log is replaced when it is opened.
    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: SnapshotData,
    ) -> io::Result<()> {
        let (Some(staged), Some(last)) = (snapshot, &meta.last_log_id) else {
            let why = format!("a snapshot has no data: {meta}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        };
        let position = Position::of(last);
        let membership_at = meta.last_membership.log_id().as_ref().map(Position::of);
        let install = Install {
            position,
            membership_at: membership_at.unwrap_or_default(),
            membership: meta.last_membership.membership().clone(),
        };
        self.log.prepare_install(&install).map_err(|error| failed(&error))?;
        let replace = move || staged.install(position);
        offload(self.offloads, replace).await.map_err(|error| failed(&error))?;
        self.log.install(install).await.map_err(|error| failed(&error))?;
        self.set_membership(meta.last_membership.clone());
        self.callers.set_applied(position.index);
        Ok(())
    }

    /// Returns up to where a snapshot is there or can be made.
    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let sent = self.outgoing.as_ref().and_then(|outgoing| outgoing.index());
        let index = sent.unwrap_or(self.machine.flushed()).max(self.log.purged().index);
        Ok((index > 0).then(|| self.log.snapshot_at(index)))
    }
}

/// Builds snapshots, which only record how far the machine is flushed.
pub struct FlushedSnapshot {
    log: RaftLog,
    flushed: u64,
}

impl RaftSnapshotBuilder<Types> for FlushedSnapshot {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        Ok(self.log.snapshot_at(self.flushed.max(self.log.purged().index)))
    }
}
