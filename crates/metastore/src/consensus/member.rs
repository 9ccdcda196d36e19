//! A member of a group of several. Every member accepts proposals and reads:
//! those of a follower go to the leader in batches, and are answered when this
//! member applies them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::ClientWriteError;
use openraft::impls::ProgressResponder;
use openraft::vote::leader_id_std::CommittedLeaderId;
use openraft::{Config, Instant as _, Raft, ReadPolicy, ServerState, SnapshotPolicy};
use stele_engine::fatal::Mutex;
use stele_engine::world::{Clock, Random};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::apply::MachineAdapter;
use super::group::GroupShared;
use super::incoming::Incoming;
use super::log::RaftLog;
use super::membership::{AppliedMembers, Member, MemberRecord, members_of};
use super::message::{Placed, Request, entry_data, response};
use super::network::Network;
use super::outbox::{Outbox, REMOVED};
use super::outgoing::Outgoing;
use super::queue::ProposalBatch;
use super::settings::PeerSettings;
use super::transport::{Inbox, Lane, Unreached};
use super::types::{EntryData, Types, Vote};
use super::{GroupSettings, GroupThreads, Leadership, Machine};
use crate::error::{Error, Result};

/// The maximum number of entries that are proposed and not answered.
const IN_FLIGHT_MAX: u32 = 64;
/// How long closing waits for entries in flight.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// The pause before a request is sent to a leader again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// A leader that cannot sync for this long hands over.
const SYNC_STALL_MAX: Duration = Duration::from_secs(1);

/// A running member.
pub struct ClusterMember<M: Machine> {
    pub(super) shared: Arc<GroupShared<M>>,
    pub(super) machine: Arc<M>,
    pub(super) raft: Raft<Types, MachineAdapter<M>>,
    pub(super) log: RaftLog,
    pub(super) peers: PeerSettings,
    pub(super) outbox: Arc<Outbox>,
    /// The members as of the last entry applied.
    members: Arc<AppliedMembers>,
    /// All members that this one has ever seen in a membership of the log.
    seen: Mutex<BTreeSet<u64>>,
    /// The snapshots that are sent to others.
    outgoing: Arc<Outgoing>,
    /// The snapshot that is being received.
    pub(super) incoming: tokio::sync::Mutex<Option<Incoming>>,
    /// Whether blocking work runs on other threads.
    pub(super) offloads: bool,
    /// Held by the change of members in progress.
    pub(super) changing: tokio::sync::Mutex<()>,
    rules: super::Rules,
    clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    ticket: AtomicU64,
    /// Whether the leader is being checked after a connection to it has ended.
    pub(super) checks_leader: AtomicBool,
    /// The readers that wait for the next confirmation of leadership.
    readers: Mutex<Vec<oneshot::Sender<Result<()>>>>,
    reader_arrived: Notify,
    /// When the leader was last heard of.
    heard: Mutex<Instant>,
    /// The last entry that may be purged.
    purge_target: Arc<AtomicU64>,
}

impl<M: Machine> ClusterMember<M> {
    /// Opens the log and joins the group, which is created if there is none.
    pub async fn start(
        settings: &GroupSettings,
        peers: PeerSettings,
        machine: Arc<M>,
        shared: Arc<GroupShared<M>>,
    ) -> Result<Arc<ClusterMember<M>>> {
        let log = RaftLog::open(settings, machine.applied(), shared.log.clone())?;
        let pristine = log.is_pristine();
        let mut adapter = MachineAdapter::new(machine.clone(), shared.callers.clone(), log.clone());
        let purge_target = Arc::new(AtomicU64::new(0));
        adapter.serve_member(settings.member, purge_target.clone(), settings.rules);
        let members = adapter.members();
        let outbox = Arc::new(Outbox::new(peers.transport.clone()));
        let source = machine.clone();
        let source = Box::new(move || source.checkpoint());
        let offloads = settings.threads != GroupThreads::Current;
        let rate = peers.snapshot_bytes_per_second;
        let outgoing = Arc::new(Outgoing::new(source, log.clone(), rate, offloads));
        adapter.exchange_snapshots(outgoing.clone(), offloads);
        let network = Network {
            member: settings.member,
            outbox: Some(outbox.clone()),
            outgoing: Some(outgoing.clone()),
            rules: settings.rules,
        };
        let seen = log.members_ever();
        let config = Arc::new(config(&peers, settings.rules)?);
        let raft = Raft::new(settings.member, config, network, log.clone(), adapter).await;
        let raft = raft.map_err(|error| Error::Internal(format!("starting Raft: {error}")))?;
        let member = Arc::new(ClusterMember {
            shared,
            machine,
            raft,
            log,
            rules: settings.rules,
            clock: settings.world.clock.clone(),
            random: settings.world.random.clone(),
            checks_leader: AtomicBool::new(false),
            // Tickets of earlier runs may still be in the log.
            ticket: AtomicU64::new(settings.world.random.next_u64() >> 1),
            readers: Mutex::new(Vec::new()),
            reader_arrived: Notify::new(),
            heard: Mutex::new(Instant::now()),
            purge_target,
            outbox,
            members,
            seen: Mutex::new(seen),
            outgoing,
            incoming: tokio::sync::Mutex::default(),
            offloads,
            changing: tokio::sync::Mutex::default(),
            peers,
        });
        if pristine && !member.peers.joining {
            member.bootstrap().await?;
        }
        member.follow_membership();
        let transport = member.peers.transport.clone();
        transport.serve(Arc::new(Receiver(member.clone())));
        Ok(member)
    }

    /// Creates the group. All members do so alike, with the same first entry.
    async fn bootstrap(&self) -> Result<()> {
        let record = |(id, address): (&u64, &String)| (*id, MemberRecord::at(address));
        let members: BTreeMap<u64, MemberRecord> = self.peers.members.iter().map(record).collect();
        self.raft
            .initialize(members)
            .await
            .map_err(|error| Error::Internal(format!("bootstrapping the Raft group: {error}")))
    }

    /// Runs the member until its queue is closed or it fails.
    pub async fn serve(self: &Arc<Self>) -> Result<()> {
        // Aborts the tasks when it is dropped.
        let mut tasks = JoinSet::new();
        tasks.spawn(self.clone().watch());
        tasks.spawn(self.clone().confirm_reads());
        tasks.spawn(self.clone().publish());
        let served = self.submit_batches().await;
        drop(tasks);
        let why = served.as_ref().err().cloned().unwrap_or(Error::Stopped);
        self.shared.callers.abandon_all(&why);
        for reader in std::mem::take(&mut *self.readers.lock()) {
            let _ = reader.send(Err(why.clone()));
        }
        served
    }

    async fn submit_batches(self: &Arc<Self>) -> Result<()> {
        let flights = Arc::new(Semaphore::new(IN_FLIGHT_MAX as usize));
        loop {
            let flight = flights.clone().acquire_owned().await;
            let flight = flight.expect("the semaphore is never closed");
            let free = self.log.now();
            let Some(batch) = self.shared.queue.take().await else { break };
            let ticket = self.next_ticket();
            self.shared.log.phases.note_taken(ticket, free, self.log.now());
            let member = self.clone();
            tokio::spawn(async move {
                member.submit(ticket, batch).await;
                drop(flight);
            });
        }
        // Those that are not answered by then have an unknown outcome.
        let _ = timeout(CLOSE_WAIT, flights.acquire_many(IN_FLIGHT_MAX)).await;
        self.shared.callers.failure().map_or(Ok(()), Err)
    }

    /// Proposes a batch until it is answered, known to be lost, or overdue.
    async fn submit(&self, ticket: u64, batch: ProposalBatch<M::Answer>) {
        let ProposalBatch { proposals, senders } = batch;
        let answered = self.shared.callers.begin(ticket, senders);
        let data = entry_data(self.shared.member, ticket, proposals);
        let placed = timeout(self.peers.request_timeout, self.place(data, answered)).await;
        let why = match placed {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_) if self.shared.leader.load(Ordering::Acquire) == 0 => Error::NoLeader,
            Err(_) => Error::Timeout,
        };
        self.shared.callers.abandon(ticket, &why);
    }

    fn next_ticket(&self) -> u64 {
        self.ticket.fetch_add(1, Ordering::Relaxed).max(1)
    }

    /// Brings an entry into the leader's log, and waits until it is answered.
    async fn place(&self, data: EntryData, mut answered: oneshot::Receiver<()>) -> Result<()> {
        loop {
            let Leadership { leader, term, .. } = *self.shared.leadership.borrow();
            let placed = async {
                match leader {
                    0 => Placed::Refused,
                    leader if leader == self.shared.member => self.write(data.clone(), None).await,
                    leader => tokio::select! {
                        biased;
                        placed = self.forward(leader, &data) => placed,
                        // Nobody answers at the other end of a connection that is cut.
                        () = self.superseded(term) => Placed::Unknown,
                    },
                }
            };
            let placed = tokio::select! {
                biased;
                _ = &mut answered => return Ok(()),
                placed = placed => placed,
            };
            match placed {
                Placed::Committed => {
                    let _ = answered.await;
                    return Ok(());
                }
                Placed::Unknown => {
                    return tokio::select! {
                        biased;
                        _ = answered => Ok(()),
                        error = self.given_up(term) => Err(error),
                    };
                }
                // Another leader may have committed it before.
                Placed::Discarded => return Err(Error::LeaderChanged),
                Placed::Refused => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// Waits until a later leader is known than that of a term.
    async fn superseded(&self, term: u64) {
        let mut leadership = self.shared.leadership.subscribe();
        let later = leadership.wait_for(|now| now.term > term && now.leader != 0).await;
        later.expect("the sender lives as long as the member");
    }

    /// Waits until an entry that was sent to the leader of a term has most likely not
    /// been committed: this member has applied what the next leader began with, or the
    /// same one still leads. Returns the error for its callers; its outcome remains
    /// unknown, because the request may arrive late.
    async fn given_up(&self, term: u64) -> Error {
        let superseded = timeout(self.peers.election_timeout * 2, self.superseded(term)).await;
        let index = loop {
            match self.read_index().await {
                Some(index) => break index,
                None => tokio::time::sleep(RETRY_PAUSE).await,
            }
        };
        self.shared.callers.wait_applied(index).await;
        match superseded {
            Ok(()) => Error::LeaderFailed,
            Err(_) => Error::ConnectionLost,
        }
    }

    /// Appends an entry to the log of this member if it leads, and if `term` is
    /// given, only in that term. Returns once it is applied here.
    async fn write(&self, data: EntryData, term: Option<u64>) -> Placed {
        let (responder, done) = ProgressResponder::complete_only();
        let mut request = self.raft.write(data).responder(responder);
        if let Some(term) = term {
            request = request.with_leader(CommittedLeaderId::new(term));
        }
        if request.await.is_err() {
            return Placed::Unknown;
        }
        match done.await {
            Ok(Ok(_)) => Placed::Committed,
            Ok(Err(ClientWriteError::ForwardToLeader(_))) => Placed::Refused,
            Ok(Err(ClientWriteError::LogEntryDiscarded(_))) => Placed::Discarded,
            _ => Placed::Unknown,
        }
    }

    async fn forward(&self, leader: u64, data: &EntryData) -> Placed {
        let request = Request::Forward(data.clone()).encode();
        match self.outbox.call(leader, Lane::Client, request).await {
            Ok(bytes) => response::decode_placed(bytes).unwrap_or(Placed::Unknown),
            Err(Unreached::NotSent(_)) => Placed::Refused,
            Err(Unreached::Unknown(_)) => Placed::Unknown,
        }
    }

    /// Proposes a command of the leader, which has no effect unless this member
    /// still leads in `term`.
    pub async fn propose_in_term(&self, term: u64, proposal: Bytes) -> Result<M::Answer> {
        if self.rules.propose_without_fence {
            return self.shared.queue.push(proposal)?.await.unwrap_or(Err(Error::Stopped));
        }
        let (sender, answer) = oneshot::channel();
        let ticket = self.next_ticket();
        let answered = self.shared.callers.begin(ticket, vec![sender]);
        let data = entry_data(self.shared.member, ticket, vec![proposal]);
        let write = async {
            match self.write(data, Some(term)).await {
                Placed::Committed | Placed::Unknown => {
                    let _ = answered.await;
                    Ok(())
                }
                Placed::Refused | Placed::Discarded => Err(Error::LeaderChanged),
            }
        };
        let written = tokio::select! {
            biased;
            written = timeout(self.peers.request_timeout, write) => {
                written.unwrap_or(Err(Error::Timeout))
            }
            () = self.deposed(term) => Err(Error::LeaderChanged),
        };
        if let Err(error) = written {
            self.shared.callers.abandon(ticket, &error);
        }
        answer.await.unwrap_or(Err(Error::Stopped))
    }

    /// Waits until the group is in a later term. If this member leads again, it
    /// has applied what remained of its entries of this term.
    async fn deposed(&self, term: u64) {
        let mut leadership = self.shared.leadership.subscribe();
        if leadership.wait_for(|now| now.term > term).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until a read of the local state is linearizable.
    pub async fn barrier(&self) -> Result<()> {
        let (sender, confirmed) = oneshot::channel();
        self.readers.lock().push(sender);
        self.reader_arrived.notify_one();
        match timeout(self.peers.request_timeout, confirmed).await {
            Ok(confirmed) => confirmed.unwrap_or(Err(Error::Stopped)),
            Err(_) if self.shared.leader.load(Ordering::Acquire) == 0 => Err(Error::NoLeader),
            Err(_) => Err(Error::Timeout),
        }
    }

    /// Confirms the leader for all readers that arrived before the round began.
    async fn confirm_reads(self: Arc<Self>) {
        loop {
            self.reader_arrived.notified().await;
            let mut waiting = std::mem::take(&mut *self.readers.lock());
            while !waiting.is_empty() {
                let round = timeout(self.peers.heartbeat * 5, self.read_index()).await;
                if let Ok(Some(index)) = round {
                    self.release_readers(std::mem::take(&mut waiting), index);
                    break;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
                waiting.append(&mut self.readers.lock());
                waiting.retain(|reader| !reader.is_closed());
            }
        }
    }

    fn release_readers(self: &Arc<Self>, readers: Vec<oneshot::Sender<Result<()>>>, index: u64) {
        let release = |readers: Vec<oneshot::Sender<Result<()>>>| {
            readers.into_iter().for_each(|reader| {
                let _ = reader.send(Ok(()));
            });
        };
        if self.shared.callers.applied() >= index {
            return release(readers);
        }
        let member = self.clone();
        tokio::spawn(async move {
            member.shared.callers.wait_applied(index).await;
            release(readers);
        });
    }

    /// Returns the index that a read which begins now must wait for, or `None`
    /// if there is no leader to confirm it.
    async fn read_index(&self) -> Option<u64> {
        let leader = self.shared.leader.load(Ordering::Acquire);
        if leader == self.shared.member {
            return self.confirmed_index().await;
        }
        if leader == 0 {
            return None;
        }
        let request = Request::ReadIndex.encode();
        let bytes = self.outbox.call(leader, Lane::Client, request).await.ok()?;
        response::decode_read_index(bytes).ok()?
    }

    /// Returns the index of the newest entry that may have been answered, after
    /// a round of heartbeats has confirmed that this member leads.
    async fn confirmed_index(&self) -> Option<u64> {
        if self.rules.read_without_confirmation {
            return Some(self.shared.callers.applied());
        }
        let confirmed = self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await.ok()?;
        Some(confirmed.read_log_id().index() + 1)
    }

    /// Puts a question to the leader's machine.
    pub async fn ask_leader(&self, question: Bytes) -> Result<Bytes> {
        let asked = timeout(self.peers.request_timeout, async {
            loop {
                let Leadership { leader, term, .. } = *self.shared.leadership.borrow();
                let answer = if leader == self.shared.member {
                    self.answer(question.clone()).await
                } else if leader == 0 {
                    None
                } else {
                    tokio::select! {
                        biased;
                        answer = self.forward_question(leader, question.clone()) => answer,
                        () = self.superseded(term) => None,
                    }
                };
                match answer {
                    Some(answer) => return answer,
                    None => tokio::time::sleep(RETRY_PAUSE).await,
                }
            }
        });
        let none = || match self.shared.leader.load(Ordering::Acquire) {
            0 => Error::NoLeader,
            _ => Error::Timeout,
        };
        asked.await.map_err(|_| none())
    }

    async fn forward_question(&self, leader: u64, question: Bytes) -> Option<Bytes> {
        let request = Request::Ask(question).encode();
        let answer = self.outbox.call(leader, Lane::Client, request).await.ok()?;
        response::decode_answer(answer).ok().flatten()
    }

    /// Answers a question if this member leads: no other member led when it was
    /// received.
    async fn answer(&self, question: Bytes) -> Option<Bytes> {
        if !self.shared.leads.load(Ordering::Acquire) {
            return None;
        }
        let asked = self.clock.elapsed();
        if self.rules.renew_without_confirmation {
            return self.machine.ask(question, asked);
        }
        // The library's lease does not say that: it outlives a handover, and the
        // restart of the members that granted it.
        let confirmed = self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await.ok()?;
        // An entry that is not committed yet may end the lease.
        let mut index = self.log.last().index.max(confirmed.read_log_id().index() + 1);
        let mut leadership = self.shared.leadership.subscribe();
        loop {
            tokio::select! {
                biased;
                () = self.shared.callers.wait_applied(index) => {}
                // The entry may never be applied.
                _ = leadership.wait_for(|now| !now.leads) => return None,
            }
            index = self.shared.callers.applied() + 1;
            if let Some(answer) = self.machine.ask(question.clone(), asked) {
                return Some(answer);
            }
        }
    }

    /// Hands leadership over to a member, or to the one with the longest log.
    pub async fn transfer_leader(&self, to: Option<u64>) -> Result<()> {
        let to = match to {
            Some(to) => to,
            None => self.best_follower().ok_or(Error::NotLeader)?,
        };
        if !self.voters().contains(&to) {
            return Err(Error::MemberNotFound);
        }
        if self.shared.leader.load(Ordering::Acquire) != self.shared.member {
            return Err(Error::NotLeader);
        }
        let triggered = self.raft.trigger().transfer_leader(to).await;
        triggered.map_err(|error| Error::Internal(error.to_string()))
    }

    /// Returns the voters of the newest membership in the log.
    pub(super) fn voters(&self) -> BTreeSet<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().voter_ids().collect()
    }

    /// Returns the voters of the newest membership in the log without this member.
    fn others(&self) -> BTreeSet<u64> {
        let mut others = self.voters();
        others.remove(&self.shared.member);
        others
    }

    /// Asks the others, who answer each request of a member that has been removed with
    /// just that. A leader says nothing any more to a member that it has removed, and a
    /// learner has no other reason to ask.
    fn ask_whether_removed(self: &Arc<Self>, last_asked: &mut Instant) {
        if last_asked.elapsed() < self.peers.election_timeout {
            return;
        }
        *last_asked = Instant::now();
        for other in self.others() {
            let member = self.clone();
            tokio::spawn(async move { member.inquire(other, Bytes::new()).await });
        }
    }

    /// Returns the members as of the last entry applied.
    pub fn members(&self) -> Arc<Vec<Member>> {
        self.members.all()
    }

    /// Returns whether this member does not vote. In a new group, the members vote
    /// before they have applied the entry that says so.
    pub fn is_learner(&self) -> bool {
        self.members.is_learner() && (self.peers.joining || self.shared.callers.applied() > 0)
    }

    /// Returns the members of the newest membership in the log; those of the
    /// settings before there is any.
    pub fn newest_members(&self) -> Vec<Member> {
        let metrics = self.raft.metrics();
        let members = members_of(metrics.borrow_watched().membership_config.membership());
        if !members.is_empty() {
            return members;
        }
        let member = |(id, address): (&u64, &String)| Member {
            id: *id,
            record: MemberRecord::at(address),
            learner: false,
        };
        self.peers.members.iter().map(member).collect()
    }

    /// Returns the vote of this member if it is newer than that of a leader.
    pub(super) fn newer_vote(&self, leader: Vote) -> Option<Vote> {
        let metrics = self.raft.metrics();
        let vote = metrics.borrow_watched().vote;
        (vote > leader).then_some(vote)
    }

    /// Lets requests reach the members of the newest membership.
    fn follow_membership(&self) {
        self.outbox.set_members(&self.newest_members());
        // Only what is in the log: a member that joins knows of members, itself
        // among them, that the entries it has so far do not have yet.
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        self.seen.lock().extend(membership.nodes().map(|(id, _)| *id));
    }

    /// Returns whether a member has been removed, as far as this one knows.
    fn is_removed(&self, member: u64) -> bool {
        let members = self.members();
        !members.is_empty()
            && members.iter().all(|other| other.id != member)
            && self.newest_members().iter().all(|other| other.id != member)
            && self.seen.lock().contains(&member)
    }

    pub(super) fn best_follower(&self) -> Option<u64> {
        let voters = self.voters();
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let others = metrics.replication.as_ref()?.iter();
        let others = others.filter(|(id, _)| **id != self.shared.member && voters.contains(id));
        others.max_by_key(|(_, matched)| **matched).map(|(id, _)| *id)
    }

    /// Follows the library's state: who leads, and whether it has failed. Purges
    /// the log.
    async fn watch(self: Arc<Self>) {
        let mut metrics = self.raft.metrics();
        let mut led_term = 0;
        let mut last_purge = Instant::now();
        let mut unsynced = Unsynced::default();
        let mut last_asked = Instant::now();
        loop {
            let changed = timeout(self.peers.heartbeat, metrics.changed()).await;
            self.follow_membership();
            let (failed, leader, term) = self.observe();
            // A library that has panicked reports nothing.
            let ended = matches!(changed, Ok(Err(_)));
            let ended = ended.then(|| Error::Internal("Raft has ended unexpectedly".into()));
            if leader == 0 {
                self.ask_whether_removed(&mut last_asked);
            }
            let removed = leader == 0 && self.outbox.is_refused_by_majority(&self.others())
                || self.is_removed(self.shared.member);
            let removed = removed.then_some(Error::Removed { member: self.shared.member });
            if let Some(error) = failed.or(ended).or(removed) {
                tracing::error!(%error, "the Raft group has stopped");
                self.shared.set_leader(0, term, false);
                self.shared.callers.set_failure(error.clone());
                self.shared.queue.close(error.clone());
                self.shared.callers.abandon_all(&error);
                self.shared.queue.refuse_all(&error);
                return;
            }
            let mine = leader == self.shared.member;
            if mine && led_term != term {
                // Entries of earlier terms are applied before this member acts
                // as the leader.
                if let Ok(Some(index)) = timeout(self.peers.heartbeat, self.confirmed_index()).await
                    && self.shared.callers.applied() >= index
                {
                    led_term = term;
                }
            }
            self.shared.set_leader(leader, term, mine && led_term == term);
            if mine && unsynced.stalled(self.log.last().index, self.synced()) {
                tracing::warn!("the log cannot be synced: leadership is handed over");
                let _ = self.transfer_leader(None).await;
            }
            if last_purge.elapsed() >= self.peers.purge_interval {
                last_purge = Instant::now();
                self.purge().await;
            }
        }
    }

    /// Returns the time since another member was last known to lead.
    pub fn silence(&self) -> Duration {
        self.heard.lock().elapsed()
    }

    pub(super) fn synced(&self) -> u64 {
        *self.shared.log.synced.borrow()
    }

    /// Returns why the library has stopped, and the leader and the term. A
    /// leader that has not heard of a majority for an election timeout does not
    /// count as one, neither does one that has not been heard of.
    fn observe(&self) -> (Option<Error>, u64, u64) {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let failed = metrics.running_state.as_ref().err().map(|error| {
            let failure = self.shared.callers.failure();
            failure.unwrap_or_else(|| Error::Internal(format!("Raft has stopped: {error}")))
        });
        let patience = self.peers.election_timeout * 2;
        let leader = if metrics.state == ServerState::Leader {
            let acked = metrics.last_quorum_acked.as_ref();
            let fresh = acked.is_some_and(|at| (**at).elapsed() < patience);
            if fresh { self.shared.member } else { 0 }
        } else {
            let fresh = self.heard.lock().elapsed() < patience;
            metrics.current_leader.filter(|_| fresh).unwrap_or(0)
        };
        (failed, leader, metrics.current_term)
    }

    /// Purges the part of the log that no member is likely to need.
    async fn purge(&self) {
        self.machine.tidy();
        self.outgoing.release_idle();
        let wanted = purge_max(
            self.machine.flushed(),
            self.shared.callers.applied(),
            self.peers.log_kept_entries,
        );
        // A snapshot that is being sent ends where the log must go on.
        let wanted = wanted.min(self.outgoing.index().unwrap_or(u64::MAX));
        let target = self.log.purgeable(wanted, self.peers.log_kept_bytes);
        if target > self.log.purged().index {
            self.purge_target.store(target, Ordering::Release);
            if let Err(error) = self.raft.trigger().snapshot().await {
                tracing::warn!(%error, "the Raft log was not purged");
            }
        }
    }

    pub async fn end(&self) {
        self.peers.transport.close();
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "the Raft group did not shut down cleanly");
        }
        if let Err(error) = self.log.close().await {
            tracing::warn!(%error, "the Raft log was not closed cleanly");
        }
    }
}

/// Detects a log that cannot be synced.
#[derive(Default)]
struct Unsynced {
    since: Option<(u64, Instant)>,
}

impl Unsynced {
    /// Returns whether the same entry has been waiting for too long.
    fn stalled(&mut self, last: u64, synced: u64) -> bool {
        if synced >= last {
            self.since = None;
            return false;
        }
        let (entry, since) = *self.since.get_or_insert((synced + 1, Instant::now()));
        if entry != synced + 1 {
            self.since = Some((synced + 1, Instant::now()));
            return false;
        }
        let stalled = since.elapsed() >= SYNC_STALL_MAX;
        if stalled {
            self.since = None;
        }
        stalled
    }
}

/// Receives the requests of other members.
struct Receiver<M: Machine>(Arc<ClusterMember<M>>);

impl<M: Machine> Inbox for Receiver<M> {
    fn receive(&self, from: u64, request: Bytes) -> stele_grpc::Pending<'static, Bytes> {
        let member = self.0.clone();
        Box::pin(async move {
            match Request::decode(request) {
                Ok(request) => member.handle(from, request).await.unwrap_or_default(),
                Err(what) => {
                    tracing::warn!(member = format_args!("{from:x}"), what, "bad request");
                    Bytes::new()
                }
            }
        })
    }

    fn disconnected(&self, from: u64) {
        if self.0.shared.leader.load(Ordering::Acquire) == from {
            tokio::spawn(self.0.clone().check_leader(from));
        }
    }
}

impl<M: Machine> ClusterMember<M> {
    /// Returns the response, or `None` if the library has stopped.
    async fn handle(&self, from: u64, request: Request) -> Option<Bytes> {
        let raft = &self.raft;
        // A member that joins does not know its id.
        if from == 0 && !matches!(request, Request::Members) {
            return None;
        }
        if self.is_removed(from) {
            return Some(Bytes::from_static(REMOVED));
        }
        Some(match request {
            Request::Append(append) => {
                let answer = raft.append_entries(append).await.ok()?;
                if !matches!(answer, openraft::raft::AppendEntriesResponse::HigherVote(_)) {
                    *self.heard.lock() = Instant::now();
                }
                // One entry creates the group.
                response::append(&answer, self.log.last().index <= 1)
            }
            Request::Vote(vote) => response::vote(&raft.vote(vote).await.ok()?),
            Request::PreVote(vote) => response::vote(&raft.pre_vote(vote).await.ok()?),
            Request::Transfer(transfer) => {
                response::transfer(&raft.handle_transfer_leader(transfer).await.ok()?)
            }
            // Only the member itself proposes in its name.
            Request::Forward(data) if data.origin != from => response::placed(Placed::Refused),
            Request::Forward(data) => response::placed(self.write(data, None).await),
            Request::ReadIndex => response::read_index(self.confirmed_index_if_leader().await),
            Request::Ask(question) => response::answer(self.answer(question).await),
            Request::Inquire(question) => {
                let answer = self.machine.inquire(question, self.shared.status());
                response::answer(Some(answer))
            }
            Request::MoveLeader(to) => response::moved(self.hand_over(to).await),
            Request::Change(change) => self.change_as_leader(change).await.encode(),
            Request::Members => response::members(&self.newest_members()),
            Request::SnapshotBegin(begin) => self.begin_snapshot(from, begin).await.encode(),
            Request::SnapshotChunk(chunk) => self.write_snapshot(from, chunk).await.encode(),
            Request::SnapshotEnd { vote, position } => {
                self.end_snapshot(from, vote, position).await.encode()
            }
        })
    }

    async fn confirmed_index_if_leader(&self) -> Option<u64> {
        if self.shared.leader.load(Ordering::Acquire) != self.shared.member {
            return None;
        }
        self.confirmed_index().await
    }
}

/// Returns the last entry that may be purged.
fn purge_max(flushed: u64, applied: u64, kept: u64) -> u64 {
    flushed.min(applied.saturating_sub(kept))
}

fn config(peers: &PeerSettings, rules: super::Rules) -> Result<Config> {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let election = millis(peers.election_timeout);
    let config = Config {
        cluster_name: "stele".to_string(),
        heartbeat_interval: millis(peers.heartbeat),
        // The library adds the leader's lease, which is the longer of the two, to a random
        // time between them.
        election_timeout_min: election / 2,
        election_timeout_max: election,
        enable_pre_vote: Some(true),
        quorum_loss_probe_interval: Some(election * 5),
        max_payload_entries: 64,
        replication_lag_threshold: 1 << 40,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        enable_leader_restore: Some(false),
        // The library would notice before the simulator does.
        allow_log_reversion: Some(rules.commit_without_quorum),
        ..Config::default()
    };
    config.validate().map_err(|error| Error::Internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_purged_only_below_applied_minus_a_margin() {
        for (flushed, applied, purged) in
            [(0, 0, 0), (900, 900, 0), (5000, 5000, 4000), (4999, 6000, 4999), (7000, 6000, 5000)]
        {
            assert_eq!(purge_max(flushed, applied, 1000), purged);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_cannot_be_synced_for_a_second_is_noticed_once() {
        let mut unsynced = Unsynced::default();
        assert!(!unsynced.stalled(5, 5));
        assert!(!unsynced.stalled(6, 5));
        tokio::time::advance(SYNC_STALL_MAX / 2).await;
        // Another entry was synced meanwhile.
        assert!(!unsynced.stalled(8, 6));
        tokio::time::advance(SYNC_STALL_MAX / 2).await;
        assert!(!unsynced.stalled(9, 6));
        tokio::time::advance(SYNC_STALL_MAX / 2).await;
        assert!(unsynced.stalled(9, 6));
        assert!(!unsynced.stalled(9, 6));
    }
}
