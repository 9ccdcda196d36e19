//! The Raft log in the engine's segments: entries, suffix truncation by Cut
//! records, and one State record with the vote. Entries stay in memory until
//! they are applied; with one member, older ones are never read.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use stele_engine::fatal::Mutex;
use stele_engine::log::{self, LogReader, LogWriter};
use stele_engine::world::{Clock, DirLock};

use super::entries::Entries;
use super::head::Head;
use super::record::{HardState, encode_entry};
use super::replay::{Replay, check};
use super::types::{Entry, LogId, Snapshot, SnapshotMeta, StoredMembership, Types, Vote};
use super::{GroupSettings, Position};
use crate::error::{Error, Result};
use crate::histogram::Histogram;

/// The stream of the log that holds Raft's entries.
pub const RAFT_STREAM: u16 = 1;
const LOG_DIR: &str = "log";
const LOCK_FILE: &str = "lock";

/// A member's log. Clones share it.
#[derive(Clone)]
pub struct RaftLog(Arc<Mutex<Inner>>);

struct Inner {
    writer: LogWriter,
    head: Head,
    /// The stored state, including what earlier incarnations purged.
    state: HardState,
    entries: Entries,
    progress: Arc<Progress>,
    clock: Arc<dyn Clock>,
    _lock: Box<dyn DirLock>,
}

/// The progress of the log, readable without its lock.
#[derive(Default)]
pub struct Progress {
    pub last: AtomicU64,
    /// Bytes written and syncs since the log was opened.
    pub bytes: AtomicU64,
    pub syncs: AtomicU64,
    /// The duration of the last append, and of all of them.
    pub append_micros: AtomicU64,
    pub append_times: Histogram,
}

impl RaftLog {
    /// Opens the log of a member whose machine has applied everything up to
    /// `applied`. Only later entries are kept in memory.
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
        let mut replay = Replay::new(&log_dir, applied);
        let end = reader.replay(|item| replay.item(&item))?;
        let state = match end.states.get(&RAFT_STREAM) {
            None => HardState::new(settings.member),
            Some(bytes) => HardState::decode(bytes.clone())
                .map_err(|what| stele_engine::Error::data_loss(&log_dir, 0, what))?,
        };
        let entries = replay.finish(&state);
        check(dir, settings.member, &state, &entries, applied)?;
        let incarnation = end.incarnation + 1;
        let secret = settings.world.random.next_u64();
        let writer = LogWriter::start(files, &log_dir, incarnation, secret, end, &settings.log)?;
        let clock = settings.world.clock.clone();
        let inner = Inner { writer, head, state, entries, progress, clock, _lock: lock };
        inner.update_progress();
        Ok(RaftLog(Arc::new(Mutex::new(inner))))
    }

    /// Returns whether nothing was ever written.
    pub fn is_pristine(&self) -> bool {
        let inner = self.0.lock();
        inner.state.vote.is_none() && inner.entries.last == Position::default()
    }

    pub fn last(&self) -> Position {
        self.0.lock().entries.last
    }

    pub fn purged(&self) -> Position {
        self.0.lock().entries.purged
    }

    /// Reserves space for an entry of this size. If it fails, nothing has
    /// changed.
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        Ok(self.0.lock().writer.reserve_entry(bytes)?)
    }

    /// Drops entries up to and including `index` from memory, because they are
    /// being applied.
    pub fn release(&self, index: u64) {
        let entries = &mut self.0.lock().entries;
        while entries.held.front().is_some_and(|entry| entry.log_id.index < index) {
            entries.held.pop_front();
        }
    }

    /// Returns the membership in force after the entry at `index`.
    pub fn membership_at(&self, index: u64) -> StoredMembership {
        let (at, membership) = self.0.lock().entries.membership(index);
        StoredMembership::new(at.log_id(), membership)
    }

    /// Returns the snapshot that represents the machine's state on disk up to
    /// `index`.
    pub fn snapshot_at(&self, index: u64) -> Snapshot {
        let last_membership = self.membership_at(index);
        let last_log_id = self.0.lock().entries.position(index).log_id();
        Snapshot { meta: SnapshotMeta { last_log_id, last_membership }, snapshot: () }
    }

    /// Closes the log cleanly.
    pub fn close(&self) -> Result<()> {
        Ok(self.0.lock().writer.close()?)
    }
}

impl Inner {
    /// Stores a new state durably.
    fn save(&mut self, state: HardState) -> stele_engine::Result<()> {
        self.writer.put_state(RAFT_STREAM, &state.encode())?;
        self.writer.sync()?;
        self.state = state;
        self.update_progress();
        Ok(())
    }

    fn append(&mut self, new: Vec<Entry>) -> stele_engine::Result<()> {
        let entry = |entry: &Entry| {
            let index = Position::of(&entry.log_id).index;
            log::LogEntry { stream: RAFT_STREAM, index, payload: encode_entry(entry) }
        };
        let records: Vec<log::LogEntry> = new.iter().map(entry).collect();
        let started = self.clock.elapsed();
        self.writer.append(&records)?;
        self.writer.sync()?;
        let took = self.clock.elapsed().saturating_sub(started);
        self.progress.append_times.add(took);
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.progress.append_micros.store(took, Ordering::Relaxed);
        for entry in new {
            assert_eq!(entry.log_id.index, self.entries.last.index, "entries follow each other");
            self.entries.push(entry);
        }
        self.update_progress();
        Ok(())
    }

    /// Publishes the progress of the log.
    fn update_progress(&self) {
        let stats = self.writer.stats();
        self.progress.bytes.store(stats.bytes, Ordering::Relaxed);
        self.progress.syncs.store(stats.syncs, Ordering::Relaxed);
        self.progress.last.store(self.entries.last.index, Ordering::Release);
    }

    fn truncate_after(&mut self, index: u64) -> stele_engine::Result<()> {
        self.writer.cut(RAFT_STREAM, index + 1)?;
        self.writer.sync()?;
        self.entries.truncate_after(index);
        self.update_progress();
        Ok(())
    }

    /// Releases the segments that hold nothing after `index`.
    fn purge(&mut self, index: u64) -> Result<()> {
        let purged = self.entries.position(index);
        let (membership_at, membership) = self.entries.membership(index);
        self.save(HardState { purged, membership_at, membership, ..self.state.clone() })?;
        self.entries.purge(purged);
        let head = self.writer.head_for(&[(RAFT_STREAM, index + 1)]);
        if head > self.head.segment() {
            self.head.advance(head)?;
            self.writer.release_below(head)?;
        }
        Ok(())
    }
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

impl RaftLogReader<Types> for RaftLog {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<Entry>> {
        let entries = &self.0.lock().entries;
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
            return Err(failed(format!("entry {} is no longer in memory", from + 1)));
        }
        let range = (from - held_from) as usize..(to - held_from) as usize;
        Ok(entries.held.range(range).cloned().collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.0.lock().state.vote)
    }
}

impl RaftLogStorage<Types> for RaftLog {
    type LogReader = RaftLog;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let entries = &self.0.lock().entries;
        let last_purged_log_id = entries.purged.log_id();
        Ok(LogState { last_purged_log_id, last_log_id: entries.last.log_id() })
    }

    async fn get_log_reader(&mut self) -> RaftLog {
        self.clone()
    }

    /// The vote is durable before it takes effect.
    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let mut inner = self.0.lock();
        let state = HardState { vote: Some(*vote), ..inner.state.clone() };
        inner.save(state).map_err(failed)
    }

    /// Writes and syncs on the group's own thread.
    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let appended = self.0.lock().append(entries.into_iter().collect()).map_err(failed);
        callback.io_completed(appended.as_ref().map_err(failed).copied());
        appended
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        let index = last_log_id.map_or(0, |log_id| Position::of(&log_id).index);
        self.0.lock().truncate_after(index).map_err(failed)
    }

    /// If the disk is full, leaves the work to the next purge.
    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        match self.0.lock().purge(Position::of(&log_id).index) {
            Err(Error::Engine(error)) if matches!(*error, stele_engine::Error::DiskFull { .. }) => {
                tracing::warn!(%error, "disk full: the Raft log is truncated once there is space");
                Ok(())
            }
            purged => purged.map_err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use openraft::EntryPayload;
    use openraft::impls::BasicNode;
    use openraft::vote::leader_id_std::CommittedLeaderId;
    use stele_engine::world::sim::SimFiles;
    use stele_engine::world::{ManualClock, SeededRandom, World};

    use super::super::types::{EntryData, Membership};
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
        Entry { log_id, payload: EntryPayload::Normal(EntryData { ticket: 0, proposals }) }
    }

    fn append(log: &RaftLog, entries: Vec<Entry>) {
        log.0.lock().append(entries).unwrap();
    }

    /// Returns index, term and payload of all entries in memory.
    fn read(log: &RaftLog) -> Vec<(u64, u64, String)> {
        let inner = log.0.lock();
        let line = |entry: &Entry| {
            let EntryPayload::Normal(data) = &entry.payload else { panic!("{entry}") };
            let Position { index, term } = Position::of(&entry.log_id);
            (index, term, String::from_utf8(data.proposals[0].to_vec()).unwrap())
        };
        inner.entries.held.iter().map(line).collect()
    }

    fn membership(voter: u64) -> Membership {
        Membership::from(std::collections::BTreeMap::from([(voter, BasicNode::default())]))
    }

    #[test]
    fn a_suffix_that_was_cut_off_stays_off_over_restarts() {
        let sim = SimFiles::new(1);
        let log = open(&sim, Position::default());
        append(
            &log,
            vec![entry(1, 1, "a"), entry(2, 1, "b"), entry(3, 2, "lost"), entry(4, 2, "lost")],
        );
        log.0.lock().truncate_after(2).unwrap();
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
    }

    #[test]
    fn a_vote_is_durable_when_it_is_given() {
        let sim = SimFiles::new(1);
        let log = open(&sim, Position::default());
        for vote in [Vote::new(3, 1), Vote::new_committed(3, 1), Vote::new(4, 9)] {
            let state = HardState { vote: Some(vote), ..log.0.lock().state.clone() };
            log.0.lock().save(state).unwrap();
        }
        drop(log);
        let log = open(&sim.crash(), Position::default());
        assert_eq!(log.0.lock().state.vote, Some(Vote::new(4, 9)));
        assert!(!log.is_pristine());
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
        log.0.lock().purge(2).unwrap();
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
