//! Changes of the members, through the leader from any member. One at a time: each
//! adds, removes or promotes one member, so that any two majorities overlap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::raft::{ClientWriteResponse, Precondition};
use openraft::{ChangeMembers, EntryPayload, Instant as _};
use tokio::time::{sleep, timeout};

use super::change::{Changed, Group, MemberChange, majority};
use super::member::ClusterMember;
use super::membership::{Member, MemberRecord, members_of};
use super::message::Request;
use super::transport::{Lane, Unreached};
use super::types::{LogId, Membership, Types};
use super::{Machine, Position};
use crate::error::{Error, Result};

/// The pause before a change is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// The pause before a member tries again to publish what it is.
const PUBLISH_PAUSE: Duration = Duration::from_millis(200);
/// A learner has caught up when it has this share of the leader's log, as in etcd.
const CAUGHT_UP_PERCENT: u64 = 90;

type Written = Result<ClientWriteResponse<Types>, RaftError<Types, ClientWriteError<Types>>>;

/// A change as the library makes it.
enum Step {
    /// Voters that differ by one, with their records.
    Voters(Membership),
    /// Learners and records.
    Records(ChangeMembers<u64, MemberRecord>),
}

impl<M: Machine> ClusterMember<M> {
    /// Changes the members. Returns when this member has applied the change.
    pub async fn change_members(&self, change: MemberChange) -> Result<()> {
        let changed = timeout(self.peers.request_timeout, async {
            loop {
                let leader = self.shared.leader.load(Ordering::Acquire);
                let changed = match leader {
                    0 => Changed::NotLeader,
                    leader if leader == self.shared.member => {
                        self.change_as_leader(change.clone()).await
                    }
                    leader => self.forward_change(leader, &change).await,
                };
                match changed {
                    Changed::NotLeader => sleep(RETRY_PAUSE).await,
                    Changed::Refused(error) => return Err(error),
                    Changed::Done(index) => {
                        self.shared.callers.wait_applied(index).await;
                        return Ok(());
                    }
                }
            }
        });
        match changed.await {
            Ok(changed) => changed,
            Err(_) if self.shared.leader.load(Ordering::Acquire) == 0 => Err(Error::NoLeader),
            Err(_) => Err(Error::Timeout),
        }
    }

    async fn forward_change(&self, leader: u64, change: &MemberChange) -> Changed {
        let request = Request::Change(change.clone()).encode();
        match self.outbox.call(leader, Lane::Client, request).await {
            Ok(bytes) => Changed::decode(bytes).unwrap_or(Changed::Refused(Error::Timeout)),
            Err(Unreached::NotSent(_)) => Changed::NotLeader,
            // Tried again, it could be refused because it has been made.
            Err(Unreached::Unknown(_)) => Changed::Refused(Error::Timeout),
        }
    }

    /// Makes a change if this member leads.
    pub(super) async fn change_as_leader(&self, change: MemberChange) -> Changed {
        let made = async {
            let _one_at_a_time = self.changing.lock().await;
            loop {
                match self.try_change(&change).await {
                    Some(changed) => return changed,
                    None => sleep(RETRY_PAUSE).await,
                }
            }
        };
        let made = timeout(self.peers.request_timeout, made).await;
        made.unwrap_or(Changed::Refused(Error::Timeout))
    }

    /// Returns `None` if the change must be tried again.
    async fn try_change(&self, change: &MemberChange) -> Option<Changed> {
        if !self.shared.leads.load(Ordering::Acquire) {
            return Some(Changed::NotLeader);
        }
        let (at, membership) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            let newest = &metrics.membership_config;
            (*newest.log_id(), newest.membership().clone())
        };
        let members = members_of(&membership);
        let (healthy, caught_up) = self.health();
        let group = Group { members: &members, healthy: &healthy, caught_up: &caught_up };
        if let Err(error) = group.check(change) {
            return Some(Changed::Refused(error));
        }
        if matches!(change, MemberChange::Remove { id } if *id == self.shared.member) {
            // Another leader removes this member.
            let _ = self.transfer_leader(None).await;
            return Some(Changed::NotLeader);
        }
        let step = match step(&membership, &members, change) {
            Ok(step) => step,
            Err(error) => return Some(Changed::Refused(error)),
        };
        let started = members.iter().filter(|member| !member.learner && member.record.is_started());
        let needs_new_member = match (change, &step) {
            (MemberChange::Add { .. }, Step::Voters(new)) => {
                started.count() < majority(new.voter_ids().count())
            }
            _ => false,
        };
        let written = self.write_step(step, at);
        let MemberChange::Add { id, .. } = change else {
            return outcome(written.await);
        };
        if !needs_new_member {
            return outcome(written.await);
        }
        tokio::select! {
            biased;
            written = written => outcome(written),
            () = self.wait_in_log(*id) => Some(Changed::Done(0)),
        }
    }

    /// Writes a change, unless the membership at `at` is no longer the newest.
    async fn write_step(&self, step: Step, at: Option<LogId>) -> Written {
        let unchanged = [Precondition::LastMembershipLogId { last_membership_log_id: at }];
        match step {
            Step::Voters(new) => {
                self.raft.append_membership(new, EntryPayload::Blank, unchanged).await
            }
            Step::Records(change) => self.raft.change_membership_if(change, true, unchanged).await,
        }
    }

    async fn wait_in_log(&self, member: u64) {
        let mut metrics = self.raft.metrics();
        while self.newest_members().iter().all(|other| other.id != member) {
            let _ = timeout(self.peers.heartbeat, metrics.changed()).await;
        }
    }

    /// Returns the members that answered recently, and those of them that have
    /// caught up.
    fn health(&self) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let recent = self.peers.election_timeout * 5;
        let answers = metrics.heartbeat.iter().flatten();
        let fresh = answers.filter(|(_, at)| at.as_ref().is_some_and(|at| at.elapsed() < recent));
        let mut healthy: BTreeSet<u64> = fresh.map(|(id, _)| *id).collect();
        healthy.insert(self.shared.member);
        let last = metrics.last_log_index.map_or(0, |index| index + 1);
        let matched = metrics.replication.iter().flatten();
        let caught_up = matched.filter(|(id, matched)| {
            let matched = matched.as_ref().map_or(0, |log_id| Position::of(log_id).index);
            healthy.contains(id) && matched * 100 >= last * CAUGHT_UP_PERCENT
        });
        let caught_up = caught_up.map(|(id, _)| *id).collect();
        (healthy, caught_up)
    }

    /// Publishes what this member is, once it has entries of the group: a member
    /// that has published and has none has lost them.
    pub(super) async fn publish(self: Arc<Self>) {
        let Some(published) = self.peers.published.clone() else { return };
        let id = self.shared.member;
        loop {
            let members = self.members();
            let mine = members.iter().find(|member| member.id == id);
            match mine.filter(|_| self.synced() > 1) {
                Some(Member { record, .. })
                    if record.name == published.name
                        && record.client_urls == published.client_urls =>
                {
                    return;
                }
                Some(_) => {
                    let (name, client_urls) =
                        (published.name.clone(), published.client_urls.clone());
                    let change = MemberChange::Publish { id, name, client_urls };
                    if let Err(error) = self.change_members(change).await {
                        tracing::debug!(%error, "publishing the addresses of this member");
                    }
                }
                None => {}
            }
            sleep(PUBLISH_PAUSE).await;
        }
    }
}

/// Returns what the library must do for a change that was checked.
fn step(membership: &Membership, members: &[Member], change: &MemberChange) -> Result<Step> {
    let mut voters: BTreeSet<u64> = membership.voter_ids().collect();
    let mut records: BTreeMap<u64, MemberRecord> =
        members.iter().map(|member| (member.id, member.record.clone())).collect();
    let changed = |id: &u64, change: &dyn Fn(&mut MemberRecord)| {
        let mut record = records.get(id).cloned().unwrap_or_default();
        change(&mut record);
        Ok(Step::Records(ChangeMembers::SetNodes(BTreeMap::from([(*id, record)]))))
    };
    match change {
        MemberChange::Add { id, peer_urls, learner } => {
            let record = MemberRecord { peer_urls: peer_urls.clone(), ..MemberRecord::default() };
            if *learner {
                return Ok(Step::Records(ChangeMembers::AddNodes(BTreeMap::from([(*id, record)]))));
            }
            voters.insert(*id);
            records.insert(*id, record);
        }
        MemberChange::Remove { id } if !voters.contains(id) => {
            return Ok(Step::Records(ChangeMembers::RemoveNodes(BTreeSet::from([*id]))));
        }
        MemberChange::Remove { id } => {
            voters.remove(id);
            records.remove(id);
        }
        MemberChange::Promote { id } => {
            voters.insert(*id);
        }
        MemberChange::Update { id, peer_urls } => {
            return changed(id, &|record| record.peer_urls.clone_from(peer_urls));
        }
        MemberChange::Publish { id, name, client_urls } => {
            return changed(id, &|record| {
                record.name.clone_from(name);
                record.client_urls.clone_from(client_urls);
            });
        }
    }
    let new = Membership::new(vec![voters], records);
    new.map(Step::Voters).map_err(|error| Error::Internal(format!("invalid membership: {error}")))
}

/// Returns what became of a change; `None` if it must be tried again.
fn outcome(written: Written) -> Option<Changed> {
    let error = match written {
        Ok(response) => return Some(Changed::Done(Position::of(&response.log_id).index)),
        Err(RaftError::APIError(error)) => error,
        Err(RaftError::Fatal(error)) => {
            let error = Error::Internal(format!("changing the members: {error}"));
            return Some(Changed::Refused(error));
        }
    };
    match error {
        ClientWriteError::ForwardToLeader(_) => Some(Changed::NotLeader),
        // Another change is not committed yet, or was made meanwhile.
        ClientWriteError::PreconditionFailed(_)
        | ClientWriteError::ChangeMembershipError(
            ChangeMembershipError::InProgress(_) | ChangeMembershipError::UncommittedLeaderLog(_),
        ) => None,
        // A later leader has removed it from the log.
        ClientWriteError::LogEntryDiscarded(_) => Some(Changed::Refused(Error::LeaderChanged)),
        error => Some(Changed::Refused(Error::Internal(format!("changing the members: {error}")))),
    }
}
