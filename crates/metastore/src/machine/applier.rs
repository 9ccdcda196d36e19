//! Applies log entries in order, each as one engine commit, and publishes their
//! changes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_engine::Commit;
use stele_engine::fatal::{Mutex, MutexGuard};
use stele_engine::world::Clock;

use super::overlay::{FinishedEntry, Overlay};
use super::run::EntryRun;
use super::stall::Stall;
use crate::command::{self, Answer, Command, LEVEL_OF_HASHES, Proposal, check_level};
use crate::consensus::{Committed, Machine, Position};
use crate::error::{Error, Result};
use crate::histogram::Histogram;
use crate::lease::Leases;
use crate::state::{BucketHashes, Growth, MemberState, Recovered, Sample, Watermarks};
use crate::watch::Hub;

/// Applies log entries to the state.
pub struct Applier {
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
        let known = state.tables.engine_waterline(&state.store)?;
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
        state: Arc<MemberState>,
        hub: Arc<Hub>,
        leases: Arc<Leases>,
        clock: Arc<dyn Clock>,
        deleted_keys_max: i64,
        recovered: Recovered,
    ) -> Result<Applier> {
        let core = Mutex::new(Core::new(&state, recovered)?);
        let (apply_times, stall) = (Histogram::default(), Stall::default());
        Ok(Applier { state, hub, leases, deleted_keys_max, clock, apply_times, stall, core })
    }

    /// Returns the watermarks of the state, and the samples from oldest to newest.
    pub fn history(&self) -> (Watermarks, Vec<Sample>) {
        let core = self.core.lock();
        (core.watermarks, core.samples.iter().copied().collect())
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
            self.state.tables.set_waterline(&self.state.store, line)?;
        }
        Ok(())
    }

    fn apply_entry(
        &self,
        core: &mut MutexGuard<'_, Core>,
        entry: Committed,
    ) -> Result<Vec<Result<Answer>>> {
        let proposals = decode_all(&entry)?;
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

    fn close(&self) {
        self.stall.close();
    }
}

/// Decodes the proposals of an entry. An unknown proposal is fatal, because
/// members that know it have applied it.
fn decode_all(entry: &Committed) -> Result<Vec<Proposal>> {
    let decode = |proposal| {
        let decoded = command::decode(proposal)?;
        if let Command::RaiseLevel { level } = decoded.command {
            check_level(level)?;
        }
        Ok(decoded)
    };
    let decoded = entry.proposals.iter().map(decode);
    decoded.collect::<Result<_>>().map_err(|error| {
        let why = error.to_string();
        Error::UnknownEntry { index: entry.index, why }
    })
}
