//! Applies log entries in order, each as one engine commit, and publishes their
//! changes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_engine::fatal::{Mutex, MutexGuard};
use stele_engine::world::Clock;
use stele_engine::{Commit, Store};

use super::checkpoint::StateCheckpoint;
use super::current;
use super::overlay::{FinishedEntry, Overlay};
use super::run::EntryRun;
use super::staging::{Home, StagedState};
use super::stall::Stall;
use crate::command::{self, Answer, Command, LEVEL_OF_HASHES, Proposal, check_level_of};
use crate::consensus::{
    Checkpoint, Committed, GroupStatus, Machine, Position, SnapshotFile, Staging,
};
use crate::error::{Error, Result};
use crate::histogram::Histogram;
use crate::lease::Leases;
use crate::state::{BucketHashes, Growth, MemberState, Recovered, Sample, Watermarks};
use crate::watch::Hub;

/// Applies log entries to the state.
pub struct Applier {
    home: Home,
    state: Arc<MemberState>,
    hub: Arc<Hub>,
    leases: Arc<Leases>,
    deleted_keys_max: i64,
    clock: Arc<dyn Clock>,
    apply_times: Histogram,
    stall: Stall,
    core: Mutex<Core>,
}

/// State that only the applying thread needs.
struct Core {
    watermarks: Watermarks,
    /// From the oldest retained to the newest.
    samples: VecDeque<Sample>,
    /// The waterlines of entries that are not flushed yet: log index and revision.
    waterlines: VecDeque<(u64, i64)>,
    /// The state in memory may be ahead of the stored one.
    failed: bool,
}

impl Core {
    fn new(state: &MemberState, recovered: Recovered) -> Result<Core> {
        let Recovered { watermarks, samples } = recovered;
        // The recovered watermarks are on disk, but the engine may not know the line
        // yet.
        let known = state.tables.engine_waterline(&state.store())?;
        let line = (watermarks.waterline > known)
            .then_some((watermarks.applied.index, watermarks.waterline));
        Ok(Core {
            watermarks,
            samples: samples.into(),
            waterlines: line.into_iter().collect(),
            failed: false,
        })
    }
}

impl Applier {
    /// Creates the applier of a state as it was recovered from the store.
    pub(super) fn new(
        home: Home,
        state: Arc<MemberState>,
        hub: Arc<Hub>,
        leases: Arc<Leases>,
        clock: Arc<dyn Clock>,
        deleted_keys_max: i64,
        recovered: Recovered,
    ) -> Result<Applier> {
        let core = Mutex::new(Core::new(&state, recovered)?);
        let (apply_times, stall) = (Histogram::default(), Stall::default());
        Ok(Applier { home, state, hub, leases, deleted_keys_max, clock, apply_times, stall, core })
    }

    /// Returns the highest feature level that this member speaks.
    pub(super) fn level_spoken(&self) -> u32 {
        self.home.level_spoken
    }

    /// Returns the watermarks of the state, and the samples from oldest to newest.
    pub fn history(&self) -> (Watermarks, Vec<Sample>) {
        let core = self.core.lock();
        (core.watermarks, core.samples.iter().copied().collect())
    }

    pub(super) fn state(&self) -> &MemberState {
        &self.state
    }

    pub(super) fn home(&self) -> &Home {
        &self.home
    }

    /// Removes what the last snapshot replaced, unless it is still being read.
    /// Returns whether nothing is left.
    pub(super) fn tidy(&self) -> Result<bool> {
        let files = &*self.home.world.files;
        let dir = current::other_dir(files, &self.home.dir)?;
        let lock_path = dir.join("lock");
        let exists = files.exists(&lock_path);
        if !exists.map_err(|error| stele_engine::Error::io("looking for", &lock_path, error))? {
            return Ok(true);
        }
        // A store holds its lock until its last reader has ended.
        match files.lock(&lock_path) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(stele_engine::Error::io("locking", &lock_path, error).into()),
            Ok(_lock) => current::clear(files, &dir).map(|()| true),
        }
    }

    /// Replaces the state by that of a store in the other directory, as of entry
    /// `applied`. Watchers go on from where they are, in the history of the new
    /// state, or fail if that does not reach back to them.
    pub(super) fn install(&self, store: Store, applied: Position) -> Result<()> {
        let mut core = self.core.lock();
        let mut new = self.state.replacement(store)?;
        if new.watermarks.applied != applied {
            return Err(Error::Internal(format!(
                "a snapshot as of entry {} has applied entry {}",
                applied.index, new.watermarks.applied.index
            )));
        }
        let leases = std::mem::take(&mut new.leases);
        let (revision, clock_micros) = (new.watermarks.revision, new.watermarks.clock_micros);
        current::switch(&*self.home.world.files, &self.home.dir)?;
        let recovered = self.state.replace(new);
        *core = Core::new(&self.state, recovered)?;
        self.leases.replace(leases, clock_micros);
        self.hub.publish(None, revision);
        self.hub.notify_all_locks();
        Ok(())
    }

    /// Returns how long entries took to apply.
    pub fn apply_times(&self) -> &Histogram {
        &self.apply_times
    }

    /// Returns why entries cannot be applied at present; `None` if they can.
    pub fn stalled_by(&self) -> Option<Error> {
        self.stall.reason()
    }

    /// Lets the engine drop history below a waterline that is on disk outside
    /// the log. Otherwise, if the log were replayed over it, old reads would
    /// see less than they did the first time.
    pub fn sync_engine_waterline(&self) -> Result<()> {
        let flushed = self.state.flushed();
        let mut newest_flushed = None;
        let mut core = self.core.lock();
        while let Some((_, line)) = core.waterlines.pop_front_if(|(index, _)| *index <= flushed) {
            newest_flushed = Some(line);
        }
        drop(core);
        if let Some(line) = newest_flushed {
            self.state.tables.set_waterline(&self.state.store(), line)?;
        }
        Ok(())
    }

    fn apply_entry(
        &self,
        core: &mut MutexGuard<'_, Core>,
        entry: Committed,
    ) -> Result<Vec<Result<Answer>>> {
        let proposals = decode_all(&entry, self.level_spoken())?;
        let mut watermarks = core.watermarks;
        watermarks.applied = Position { index: entry.index, term: entry.term };
        let newest_sample = core.samples.back().copied();
        let shared = RefCell::new(&mut *core);
        let commit_part = |part: &Commit| {
            let commit = || self.state.commit_part(part);
            let Err(refused) = commit() else { return Ok(()) };
            MutexGuard::unlocked(&mut shared.borrow_mut(), || self.stall.retry(refused, commit))
        };
        let mut run = EntryRun {
            overlay: Overlay::new(&self.state, watermarks, self.hub.is_watched(), &commit_part),
            leases: &self.leases,
            deleted_keys_max: self.deleted_keys_max,
            newest_sample,
            version: 0,
            awaited: entry.awaited,
            result_bytes: 0,
            compared_left: usize::MAX,
            quota_growth: Growth::new(),
        };
        let mut answers = Vec::with_capacity(proposals.len());
        for proposal in &proposals {
            let answer = run.run(proposal);
            if let Err(error @ (Error::Engine(_) | Error::Internal(_))) = answer {
                return Err(error);
            }
            answers.push(answer);
        }
        let finished = run.overlay.finish();
        let commit = || self.state.commit(&finished.commit, entry.index);
        if let Err(refused) = commit() {
            // Release the lock while waiting, so that others can read the
            // applied state.
            MutexGuard::unlocked(core, || self.stall.retry(refused, commit))?;
        }
        self.publish(core, finished)?;
        Ok(answers)
    }

    /// Publishes a finished commit: first the counts, last the watchers.
    fn publish(&self, core: &mut Core, finished: FinishedEntry) -> Result<()> {
        let FinishedEntry { watermarks, counts, created, locked, events, alarms, .. } = finished;
        let (sample, quotas) = (finished.sample, finished.quotas);
        if let Some(auth) = finished.auth {
            self.state.auth.publish(auth);
        }
        if !finished.tokens.is_empty() {
            self.state.auth.add_tokens(&finished.tokens, self.clock.elapsed());
        }
        self.state.counts.write().apply_staged(counts, watermarks.revision);
        if let Some(alarms) = alarms {
            self.state.set_alarms(alarms);
        }
        if watermarks.waterline > core.watermarks.waterline {
            core.waterlines.push_back((watermarks.applied.index, watermarks.waterline));
            core.samples.retain(|sample| sample.revision >= watermarks.waterline);
        }
        if let Some(quotas) = quotas {
            self.state.set_quotas(quotas);
        }
        if let Some(sample) = sample {
            self.state.set_sampled(&sample);
            core.samples.push_back(sample);
            if watermarks.level >= LEVEL_OF_HASHES {
                let (index, revision) = (watermarks.applied.index, watermarks.revision);
                let buckets = watermarks.buckets;
                self.state.keep_hashes(BucketHashes { index, revision, buckets });
            }
        }
        core.watermarks = watermarks;
        self.state.publish(&watermarks);
        self.hub.publish(events, watermarks.revision);
        self.hub.notify_locks(&locked);
        if created.is_empty() { Ok(()) } else { self.state.split_large_buckets(&created) }
    }
}

impl Machine for Applier {
    type Answer = Result<Answer>;

    fn apply(&self, entry: Committed) -> Result<Vec<Result<Answer>>> {
        let mut core = self.core.lock();
        if core.failed {
            return Err(Error::Stopped);
        }
        let started = self.clock.elapsed();
        let answers = self.apply_entry(&mut core, entry);
        self.apply_times.add(self.clock.elapsed().saturating_sub(started));
        core.failed = answers.is_err();
        answers
    }

    fn applied(&self) -> Position {
        self.state.applied()
    }

    fn flushed(&self) -> u64 {
        self.state.flushed()
    }

    fn ask(&self, question: Bytes, asked: Duration) -> Option<Bytes> {
        self.leases.answer(question, asked)
    }

    fn inquire(&self, question: Bytes, group: GroupStatus) -> Bytes {
        self.answer(question, group)
    }

    fn checkpoint(&self) -> Result<Arc<dyn Checkpoint>> {
        let files = self.home.world.files.clone();
        Ok(Arc::new(StateCheckpoint::create(self.state.store(), files)?))
    }

    fn receive(
        self: Arc<Self>,
        description: Bytes,
        files: Vec<SnapshotFile>,
    ) -> Result<Box<dyn Staging>> {
        Ok(Box::new(StagedState::begin(self, &description, files)?))
    }

    fn tidy(&self) {
        if let Err(error) = Applier::tidy(self) {
            tracing::warn!(%error, "the state before the last snapshot was not removed");
        }
    }

    fn close(&self) {
        self.stall.close();
    }
}

/// Decodes the proposals of an entry. An unknown proposal is fatal, because
/// members that know it have applied it.
fn decode_all(entry: &Committed, level_spoken: u32) -> Result<Vec<Proposal>> {
    let decode = |proposal| {
        let decoded = command::decode(proposal)?;
        if let Command::RaiseLevel { level } = decoded.command {
            check_level_of(level, level_spoken)?;
        }
        Ok(decoded)
    };
    let decoded = entry.proposals.iter().map(decode);
    decoded.collect::<Result<_>>().map_err(|error| {
        let why = error.to_string();
        Error::UnknownEntry { index: entry.index, why }
    })
}
