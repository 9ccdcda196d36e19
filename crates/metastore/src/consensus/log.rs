//! The Raft log in the engine's segments: entries, suffix truncation by Cut
//! records, and one State record with the vote. Entries stay in memory until
//! they are purged, because other members may still need them; in a group of
//! one, until they are applied. `disk` writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend};
use stele_engine::fatal::Mutex;
use stele_engine::log::{self, LogReader, LogWriter};
use stele_engine::world::{Clock, DirLock, Files};
use tokio::sync::{mpsc, oneshot};

use super::disk::{self, Append, Job, LogDisk, LogIo, failed};
use super::entries::Entries;
use super::head::Head;
use super::install::Install;
use super::membership::MemberRecord;
use super::record::{HardState, encode_entry, proposals_bytes};
use super::replay::{Replay, check};
use super::types::{
    Entry, EntryData, LogId, Membership, Snapshot, SnapshotMeta, StoredMembership, Types, Vote,
};
use super::{GroupSettings, Position, watch};
use crate::error::{Error, Result};
use crate::histogram::Histogram;
use crate::phases::Phases;

/// The stream of the log that holds Raft's entries.
pub const RAFT_STREAM: u16 = 1;
const LOG_DIR: &str = "log";
const LOCK_FILE: &str = "lock";

/// A member's log. Clones share it.
#[derive(Clone)]
pub struct RaftLog {
    inner: Arc<Mutex<Inner>>,
    disk: DiskHandle,
    progress: Arc<Progress>,
    /// Whether entries are kept after they are applied, until they are purged.
    keeps_applied: bool,
    dir: Arc<PathBuf>,
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
}

/// Access to the log's files.
#[derive(Clone)]
enum DiskHandle {
    Inline(Arc<Mutex<LogDisk>>),
    Queue(mpsc::UnboundedSender<Job>),
}

struct Inner {
    /// The stored state, including what earlier incarnations purged.
    state: HardState,
    entries: Entries,
    _lock: Box<dyn DirLock>,
}

/// The progress of the log, readable without its lock.
#[derive(Default)]
pub struct Progress {
    pub last: AtomicU64,
    /// The last entry that is synced.
    pub synced: watch::Sender<u64>,
    /// Bytes written and syncs since the log was opened.
    pub bytes: AtomicU64,
    pub syncs: AtomicU64,
    /// The duration of the last append, and of all of them.
    pub append_micros: AtomicU64,
    pub append_times: Histogram,
    pub phases: Phases,
}

impl RaftLog {
    /// Opens the log of a member whose machine has applied everything up to
    /// `applied`. A group of one keeps only later entries in memory. Must be
    /// called on a runtime.
    pub fn open(
        settings: &GroupSettings,
        applied: Position,
        progress: Arc<Progress>,
    ) -> Result<RaftLog> {
        let (files, dir) = (settings.world.files.clone(), &settings.dir);
        let io = stele_engine::Error::io;
        files.create_dir_all(dir).map_err(|error| io("creating", dir, error))?;
        let lock_path = dir.join(LOCK_FILE);
        let lock = files.lock(&lock_path).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => stele_engine::Error::Locked { path: dir.clone() },
            _ => io("locking", &lock_path, error),
        })?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            files.sync_dir(parent).map_err(|error| io("syncing", parent, error))?;
        }
        let head = Head::open(files.clone(), dir)?;
        let log_dir = dir.join(LOG_DIR);
        let reader = LogReader::open(&*files, &log_dir, head.segment())?;
        let keeps_applied = settings.peers.is_some();
        let mut replay = Replay::new(&log_dir, applied, keeps_applied);
        let end = reader.replay(|item| replay.item(&item))?;
        let state = match end.states.get(&RAFT_STREAM) {
            None => HardState::new(settings.member),
            Some(bytes) => HardState::decode(bytes.clone())
                .map_err(|what| stele_engine::Error::data_loss(&log_dir, 0, what))?,
        };
        let mut entries = replay.finish(&state)?;
        // The machine installed a snapshot, and the log was not replaced any more.
        let install = Install::read(&*files, dir)?;
        let install = install.filter(|install| {
            install.position == applied && install.position.index > state.purged.index
        });
        let (mut state, mut cut) = (state, false);
        if let Some(install) = &install {
            cut = install.conflicts_with(&entries);
            state = install.state(&state);
            install.apply_to(&mut entries);
        }
        check(dir, settings.member, &state, &entries, applied)?;
        let incarnation = end.incarnation + 1;
        let secret = settings.world.random.next_u64();
        let log_files = files.clone();
        let writer =
            LogWriter::start(log_files, &log_dir, incarnation, secret, end, &settings.log)?;
        let clock = settings.world.clock.clone();
        progress.last.store(entries.last.index, Ordering::Release);
        progress.synced.send_replace(entries.last.index);
        let mut disk = LogDisk { writer, head, progress: progress.clone(), clock: clock.clone() };
        if install.is_some() {
            if cut {
                disk.truncate_after(applied.index)?;
            }
            disk.purge(&state.encode(), applied.index)?;
            progress.synced.send_replace(entries.last.index);
        }
        let inner = Inner { state, entries, _lock: lock };
        Ok(RaftLog {
            inner: Arc::new(Mutex::new(inner)),
            disk: start_disk(disk, settings)?,
            progress,
            keeps_applied,
            dir: Arc::new(dir.clone()),
            files,
            clock,
        })
    }

    /// Returns whether nothing was ever written.
    pub fn is_pristine(&self) -> bool {
        let inner = self.inner.lock();
        inner.state.vote.is_none() && inner.entries.last == Position::default()
    }

    pub fn last(&self) -> Position {
        self.inner.lock().entries.last
    }

    pub fn purged(&self) -> Position {
        self.inner.lock().entries.purged
    }

    /// Reserves space for an entry of this size. If it fails, nothing has
    /// changed. A log with a thread of its own reserves when it writes.
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        match &self.disk {
            DiskHandle::Inline(disk) => Ok(disk.lock().writer.reserve_entry(bytes)?),
            DiskHandle::Queue(_) => Ok(()),
        }
    }

    /// Waits until the entry at `index` is synced, or returns at once if the log
    /// is written within the caller's step.
    pub async fn wait_synced(&self, index: u64) {
        if *self.progress.synced.borrow() >= index {
            return;
        }
        let mut synced = self.progress.synced.subscribe();
        // The sender lives as long as the log.
        let _ = synced.wait_for(|synced| *synced >= index).await;
    }

    /// Drops entries up to and including `index` from memory, because they are
    /// being applied and nobody else needs them.
    pub fn release(&self, index: u64) {
        if self.keeps_applied {
            return;
        }
        let entries = &mut self.inner.lock().entries;
        while entries.held.front().is_some_and(|entry| entry.log_id.index < index) {
            entries.held.pop_front();
        }
    }

    /// Notes that the entry in progress is applied.
    pub fn note_applied(&self) {
        self.progress.phases.note_applied(self.clock.elapsed());
    }

    /// Returns the last entry that can be purged: `last_wanted`, or an earlier
    /// one if the entries after it have fewer than `kept_bytes`.
    pub fn purgeable(&self, last_wanted: u64, kept_bytes: usize) -> u64 {
        let entries = &self.inner.lock().entries;
        let first = entries.index_of_first_held();
        let mut bytes = 0;
        for (at, entry) in entries.held.iter().enumerate().rev() {
            bytes += match &entry.payload {
                EntryPayload::Normal(EntryData { proposals, .. }) => proposals_bytes(proposals),
                _ => 0,
            };
            if bytes > kept_bytes {
                return last_wanted.min(first + at as u64);
            }
        }
        last_wanted.min(entries.purged.index)
    }

    /// Returns the membership in force after the entry at `index`.
    pub fn membership_at(&self, index: u64) -> StoredMembership {
        let (at, membership) = self.inner.lock().entries.membership(index);
        StoredMembership::new(at.log_id(), membership)
    }

    /// Returns the snapshot that represents the machine's state on disk up to
    /// `index`.
    pub fn snapshot_at(&self, index: u64) -> Snapshot {
        let last_membership = self.membership_at(index);
        let last_log_id = self.inner.lock().entries.position(index).log_id();
        Snapshot { meta: SnapshotMeta { last_log_id, last_membership }, snapshot: None }
    }

    /// Returns the position of an entry, and the membership in force there.
    pub fn position_and_membership(&self, index: u64) -> (Position, StoredMembership) {
        let position = self.inner.lock().entries.position(index);
        (position, self.membership_at(index))
    }

    /// Stores durably that a snapshot is about to replace the machine's state.
    pub fn prepare_install(&self, install: &Install) -> Result<()> {
        install.write(&*self.files, &self.dir)
    }

    /// Lets the log begin after a snapshot that the machine has installed.
    pub async fn install(&self, install: Install) -> Result<()> {
        let (state, cut) = {
            let inner = self.inner.lock();
            (install.state(&inner.state), install.conflicts_with(&inner.entries))
        };
        let (bytes, index) = (state.encode(), install.position.index);
        self.with_disk(move |disk| {
            if cut {
                disk.truncate_after(index)?;
            }
            disk.purge(&bytes, index)
        })
        .await??;
        let mut inner = self.inner.lock();
        inner.state = state;
        install.apply_to(&mut inner.entries);
        self.progress.last.store(inner.entries.last.index, Ordering::Release);
        self.progress.synced.send_if_modified(|synced| {
            let before = std::mem::replace(synced, index.max(*synced));
            before < index
        });
        Ok(())
    }

    /// Returns all members that the log has ever had, as far as it reaches.
    pub fn members_ever(&self) -> BTreeSet<u64> {
        let memberships = &self.inner.lock().entries.memberships;
        let ids = memberships.iter().flat_map(|(_, membership)| membership.nodes());
        ids.map(|(id, _)| *id).collect()
    }

    /// Returns the voters in force after the entry at `index`.
    pub fn voters_at(&self, index: u64) -> Vec<u64> {
        self.inner.lock().entries.membership(index).1.voter_ids().collect()
    }

    /// Appends a membership with one voter, whatever the members were, and closes
    /// the log. For the recovery of a group without a quorum, while nothing else
    /// uses the log.
    pub fn become_only_voter(&self, member: u64) -> Result<()> {
        let DiskHandle::Inline(disk) = &self.disk else {
            return Err(Error::Internal("the Raft log is in use".into()));
        };
        let (last, state) = {
            let inner = self.inner.lock();
            (inner.entries.last, inner.state.clone())
        };
        let voted = state.vote.map_or(0, |vote| vote.leader_id.term);
        let term = last.term.max(voted) + 1;
        let state = HardState { vote: Some(Vote::new(term, member)), ..state };
        let log_id = Position { index: last.index + 1, term }.log_id();
        let log_id = log_id.ok_or_else(|| Error::Internal("an entry has index 0".into()))?;
        let members = BTreeMap::from([(member, MemberRecord::default())]);
        let payload = EntryPayload::Membership(Membership::from(members));
        let mut disk = disk.lock();
        disk.save(&state.encode())?;
        self.inner.lock().state = state;
        let records = self.push(vec![Entry { log_id, payload }]);
        let started = disk.clock.elapsed();
        disk.append(&records)?;
        disk.sync(last.index + 1, started)?;
        Ok(disk.writer.close()?)
    }

    /// Closes the log cleanly.
    pub async fn close(&self) -> Result<()> {
        Ok(self.with_disk(|disk| disk.writer.close()).await??)
    }

    /// Runs a step on the log's files, after everything that was queued.
    async fn with_disk<T: Send + 'static>(
        &self,
        step: impl FnOnce(&mut LogDisk) -> T + Send + 'static,
    ) -> Result<T> {
        match &self.disk {
            DiskHandle::Inline(disk) => Ok(step(&mut disk.lock())),
            DiskHandle::Queue(queue) => {
                let (sender, done) = oneshot::channel();
                let job = Job::Other(Box::new(move |disk| {
                    let _ = sender.send(step(disk));
                }));
                let ended = |_| disk::ended(&self.dir);
                queue.send(job).map_err(|_| disk::ended(&self.dir))?;
                done.await.map_err(ended)
            }
        }
    }

    /// Adds entries to memory and returns their records.
    fn push(&self, new: Vec<Entry>) -> Vec<log::LogEntry> {
        let record = |entry: &Entry| {
            let index = Position::of(&entry.log_id).index;
            log::LogEntry { stream: RAFT_STREAM, index, payload: encode_entry(entry) }
        };
        let records = new.iter().map(record).collect();
        let mut inner = self.inner.lock();
        for entry in new {
            assert_eq!(entry.log_id.index, inner.entries.last.index, "entries follow each other");
            inner.entries.push(entry);
        }
        self.progress.last.store(inner.entries.last.index, Ordering::Release);
        records
    }

    async fn save(&self, state: HardState) -> Result<()> {
        let bytes = state.encode();
        self.with_disk(move |disk| disk.save(&bytes)).await??;
        self.inner.lock().state = state;
        Ok(())
    }

    async fn cut_after(&self, index: u64) -> Result<()> {
        self.with_disk(move |disk| disk.truncate_after(index)).await??;
        let mut inner = self.inner.lock();
        inner.entries.truncate_after(index);
        self.progress.last.store(inner.entries.last.index, Ordering::Release);
        Ok(())
    }

    async fn purge_to(&self, index: u64) -> Result<()> {
        let (purged, state) = {
            let inner = self.inner.lock();
            let purged = inner.entries.position(index);
            let (membership_at, membership) = inner.entries.membership(index);
            (purged, HardState { purged, membership_at, membership, ..inner.state.clone() })
        };
        let bytes = state.encode();
        self.with_disk(move |disk| disk.purge(&bytes, index)).await??;
        let mut inner = self.inner.lock();
        inner.state = state;
        inner.entries.purge(purged);
        Ok(())
    }
}

/// Starts the thread or task that writes the log.
fn start_disk(disk: LogDisk, settings: &GroupSettings) -> Result<DiskHandle> {
    if matches!(settings.log_io, LogIo::Inline) {
        return Ok(DiskHandle::Inline(Arc::new(Mutex::new(disk))));
    }
    let (queue, jobs) = mpsc::unbounded_channel();
    match &settings.log_io {
        LogIo::Task { sync_max, random } => {
            let times = (*sync_max, random.clone());
            let early = settings.rules.acknowledge_before_sync;
            tokio::spawn(disk::run_task(disk, jobs, times, early));
        }
        LogIo::Inline | LogIo::Thread => {
            let thread = std::thread::Builder::new().name("stele-raft-log".to_string());
            let started = thread.spawn(move || disk::run_thread(disk, jobs));
            started.map_err(|error| {
                Error::Internal(format!("starting the thread of the Raft log: {error}"))
            })?;
        }
    }
    Ok(DiskHandle::Queue(queue))
}

impl RaftLogReader<Types> for RaftLog {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<Entry>> {
        let entries = &self.inner.lock().entries;
        // The library's index of the first entry held.
        let held_from = entries.index_of_first_held() - 1;
        let from = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index + 1,
            Bound::Unbounded => held_from,
        };
        let to = match range.end_bound() {
            Bound::Included(index) => index + 1,
            Bound::Excluded(index) => *index,
            Bound::Unbounded => entries.last.index,
        };
        let to = to.min(entries.last.index);
        if from >= to {
            return Ok(Vec::new());
        }
        if from < held_from {
            return Err(failed(&format!("entry {} is no longer in memory", from + 1)));
        }
        let range = (from - held_from) as usize..(to - held_from) as usize;
        Ok(entries.held.range(range).cloned().collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.inner.lock().state.vote)
    }
}

impl RaftLogStorage<Types> for RaftLog {
    type LogReader = RaftLog;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let entries = &self.inner.lock().entries;
        let last_purged_log_id = entries.purged.log_id();
        Ok(LogState { last_purged_log_id, last_log_id: entries.last.log_id() })
    }

    async fn get_log_reader(&mut self) -> RaftLog {
        self.clone()
    }

    /// The vote is durable before it takes effect.
    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let state = HardState { vote: Some(*vote), ..self.inner.lock().state.clone() };
        self.save(state).await.map_err(|error| failed(&error))
    }

    /// Returns once the entries can be read; reports when they are durable.
    async fn append<I>(&mut self, entries: I, durable: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let records = self.push(entries.into_iter().collect());
        match &self.disk {
            DiskHandle::Inline(disk) => {
                let appended = append_and_sync(&mut disk.lock(), &records);
                let outcome =
                    || appended.as_ref().map_or_else(|error| Err(failed(error)), |()| Ok(()));
                durable.io_completed(outcome());
                outcome()
            }
            DiskHandle::Queue(queue) => {
                let job = Job::Append(Append { records, durable });
                queue.send(job).map_err(|_| failed(&disk::ended(&self.dir)))
            }
        }
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        let index = last_log_id.map_or(0, |log_id| Position::of(&log_id).index);
        self.cut_after(index).await.map_err(|error| failed(&error))
    }

    /// If the disk is full, leaves the work to the next purge.
    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        match self.purge_to(Position::of(&log_id).index).await {
            Err(Error::Engine(error)) if matches!(*error, stele_engine::Error::DiskFull { .. }) => {
                tracing::warn!(%error, "disk full: the Raft log is truncated once there is space");
                Ok(())
            }
            purged => purged.map_err(|error| failed(&error)),
        }
    }
}

fn append_and_sync(disk: &mut LogDisk, records: &[log::LogEntry]) -> stele_engine::Result<()> {
    let started = disk.clock.elapsed();
    disk.append(records)?;
    disk.sync(records.last().map_or(0, |record| record.index), started)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use openraft::vote::leader_id_std::CommittedLeaderId;
    use stele_engine::world::sim::SimFiles;
    use stele_engine::world::{ManualClock, SeededRandom, World};

    use super::super::types::EntryData;
    use super::*;

    fn open(sim: &SimFiles, applied: Position) -> RaftLog {
        let world = World {
            clock: Arc::new(ManualClock::at(0)),
            files: Arc::new(sim.clone()),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        };
        let settings = GroupSettings::new("/raft".into(), world, 1);
        RaftLog::open(&settings, applied, Arc::default()).unwrap()
    }

    fn entry(index: u64, term: u64, payload: &str) -> Entry {
        let log_id = LogId::new(CommittedLeaderId::new(term), index - 1);
        let proposals = Arc::new(vec![Bytes::copy_from_slice(payload.as_bytes())]);
        Entry {
            log_id,
            payload: EntryPayload::Normal(EntryData { origin: 0, ticket: 0, proposals }),
        }
    }

    fn append(log: &RaftLog, entries: Vec<Entry>) {
        let records = log.push(entries);
        let DiskHandle::Inline(disk) = &log.disk else { panic!("the log has a thread") };
        append_and_sync(&mut disk.lock(), &records).unwrap();
    }

    /// Runs a step of a log without a thread, which never waits.
    fn now<T>(step: impl Future<Output = Result<T>>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(step).unwrap()
    }

    /// Returns index, term and payload of all entries in memory.
    fn read(log: &RaftLog) -> Vec<(u64, u64, String)> {
        let inner = log.inner.lock();
        let line = |entry: &Entry| {
            let EntryPayload::Normal(data) = &entry.payload else { panic!("{entry}") };
            let Position { index, term } = Position::of(&entry.log_id);
            (index, term, String::from_utf8(data.proposals[0].to_vec()).unwrap())
        };
        inner.entries.held.iter().map(line).collect()
    }

    fn membership(voter: u64) -> Membership {
        Membership::from(std::collections::BTreeMap::from([(voter, MemberRecord::default())]))
    }

    #[test]
    fn a_suffix_that_was_cut_off_stays_off_over_restarts() {
        let sim = SimFiles::new(1);
        let log = open(&sim, Position::default());
        append(
            &log,
            vec![entry(1, 1, "a"), entry(2, 1, "b"), entry(3, 2, "lost"), entry(4, 2, "lost")],
        );
        now(log.cut_after(2));
        assert_eq!(log.last(), Position { index: 2, term: 1 });
        append(&log, vec![entry(3, 3, "c")]);
        let expected = [(1, 1, "a"), (2, 1, "b"), (3, 3, "c")]
            .map(|(index, term, payload)| (index, term, payload.to_string()));
        assert_eq!(read(&log), expected);
        drop(log);
        let sim = sim.crash();
        let log = open(&sim, Position::default());
        assert_eq!(read(&log), expected);
        drop(log);
        // The machine has applied the first two.
        let log = open(&sim, Position { index: 2, term: 1 });
        assert_eq!(read(&log), expected[2..]);
        assert_eq!(log.snapshot_at(2).meta.last_log_id, Position { index: 2, term: 1 }.log_id());
        drop(log);
        // It has applied an entry that follows the cut.
        let log = open(&sim, Position { index: 3, term: 3 });
        assert_eq!((read(&log), log.last().index), (Vec::new(), 3));
    }

    #[test]
    fn a_vote_is_durable_when_it_is_given() {
        let sim = SimFiles::new(1);
        let log = open(&sim, Position::default());
        for vote in [Vote::new(3, 1), Vote::new_committed(3, 1), Vote::new(4, 9)] {
            let state = HardState { vote: Some(vote), ..log.inner.lock().state.clone() };
            now(log.save(state));
        }
        drop(log);
        let log = open(&sim.crash(), Position::default());
        assert_eq!(log.inner.lock().state.vote, Some(Vote::new(4, 9)));
        assert!(!log.is_pristine());
    }

    /// A machine that remembers what it applied.
    #[derive(Default)]
    struct Applied(Mutex<(Position, Vec<Bytes>)>);

    impl crate::consensus::Machine for Applied {
        type Answer = ();

        fn apply(&self, entry: crate::consensus::Committed) -> Result<Vec<()>> {
            let mut inner = self.0.lock();
            inner.0 = Position { index: entry.index, term: entry.term };
            let answers = vec![(); entry.proposals.len()];
            inner.1.extend(entry.proposals);
            Ok(answers)
        }

        fn applied(&self) -> Position {
            self.0.lock().0
        }

        fn flushed(&self) -> u64 {
            0
        }
    }

    #[tokio::test]
    async fn a_survivor_of_three_members_leads_alone_after_its_recovery() {
        let sim = SimFiles::new(1);
        let log = open(&sim, Position::default());
        let three = BTreeMap::from([1, 2, 3].map(|member| (member, MemberRecord::default())));
        let voters = Entry {
            log_id: LogId::new(CommittedLeaderId::new(1), 0),
            payload: EntryPayload::Membership(Membership::from(three)),
        };
        append(&log, vec![voters, entry(2, 1, "a"), entry(3, 4, "b")]);
        assert_eq!(log.voters_at(3), [1, 2, 3]);
        log.become_only_voter(1).unwrap();
        assert_eq!(log.voters_at(4), [1]);
        assert_eq!(log.last(), Position { index: 4, term: 5 });
        drop(log);
        let world = World {
            clock: Arc::new(ManualClock::at(0)),
            files: Arc::new(sim.crash()),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        };
        let machine = Arc::new(Applied::default());
        let settings = GroupSettings::new("/raft".into(), world, 1);
        let group = crate::consensus::RaftGroup::open(settings, machine.clone()).await.unwrap();
        group.propose(Bytes::from_static(b"c")).await.unwrap();
        assert_eq!(machine.0.lock().1, ["a", "b", "c"]);
        group.close().await.unwrap();
    }

    #[test]
    fn a_log_begins_after_a_snapshot_also_if_installing_it_was_interrupted() {
        let at = |index, term| Position { index, term };
        for (finished, last) in [(true, 2), (false, 2), (true, 5), (false, 5)] {
            let sim = SimFiles::new(1);
            let log = open(&sim, at(0, 0));
            append(&log, (1..=last).map(|index| entry(index, 1, "old")).collect());
            let install =
                Install { position: at(4, 3), membership_at: at(3, 2), membership: membership(8) };
            log.prepare_install(&install).unwrap();
            if finished {
                now(log.install(install));
                append(&log, vec![entry(5, 3, "new")]);
            }
            drop(log);
            let mut sim = sim.crash();
            // Before the machine's state was replaced, nothing has changed.
            if !finished {
                let log = open(&sim, at(2, 1));
                assert_eq!(log.last(), at(last, 1));
                drop(log);
                sim = sim.crash();
                let log = open(&sim, at(4, 3));
                assert_eq!((log.last(), log.purged()), (at(4, 3), at(4, 3)));
                append(&log, vec![entry(5, 3, "new")]);
                drop(log);
                sim = sim.crash();
            }
            let log = open(&sim, at(4, 3));
            assert_eq!((log.last(), read(&log)), (at(5, 3), vec![(5, 3, "new".to_string())]));
            assert_eq!(log.membership_at(4).membership(), &membership(8));
        }
    }

    #[test]
    fn the_current_membership_outlives_the_entry_that_set_it() {
        let sim = SimFiles::new(1);
        let log = open(&sim, Position::default());
        let voters = |index: u64, voter| Entry {
            log_id: LogId::new(CommittedLeaderId::new(1), index - 1),
            payload: EntryPayload::Membership(membership(voter)),
        };
        append(&log, vec![voters(1, 7), entry(2, 1, "a"), voters(3, 8), entry(4, 1, "b")]);
        assert_eq!(log.membership_at(2).membership(), &membership(7));
        now(log.purge_to(2));
        assert_eq!(log.membership_at(2).membership(), &membership(7));
        drop(log);
        let mut sim = sim;
        for (applied, voter) in [(2, 7), (3, 8), (4, 8)] {
            sim = sim.crash();
            let log = open(&sim, Position { index: applied, term: 1 });
            assert_eq!(log.membership_at(applied).membership(), &membership(voter));
        }
    }
}
