//! The stored state of a member, and the watermarks that bound reads of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use parking_lot::RwLock;
use stele_engine::fatal::Mutex;
use stele_engine::{Commit, Store};

use super::buckets::BucketHashes;
use super::counts::Counts;
use super::lease::StoredLease;
use super::quotas::Quotas;
use super::tables::{Identity, Tables};
use super::watermarks::{Sample, Watermarks};
use crate::auth::{AuthState, SharedAuth};
use crate::command::{ActiveAlarm, Alarm};
use crate::consensus::Position;
use crate::error::{Error, Result};

/// The stored state of a member, shared by the applier and all readers.
pub struct MemberState {
    /// Replaced when a snapshot is installed.
    store: RwLock<Arc<Store>>,
    pub tables: Tables,
    pub identity: Identity,
    revision: AtomicI64,
    compacted: AtomicI64,
    waterline: AtomicI64,
    live_bytes: AtomicI64,
    written_bytes: AtomicI64,
    /// The written bytes, the wall clock and the group clock at the newest
    /// sample.
    sampled_bytes: AtomicI64,
    sampled_time_micros: AtomicI64,
    sampled_clock_micros: AtomicI64,
    applied_index: AtomicU64,
    applied_term: AtomicU64,
    pub counts: RwLock<Counts>,
    /// Users, roles and tokens.
    pub auth: SharedAuth,
    alarms: Mutex<Vec<ActiveAlarm>>,
    /// Whether there are any alarms, to check without the lock.
    alarmed: AtomicBool,
    level: AtomicU32,
    quotas: RwLock<Arc<Quotas>>,
    /// Whether there are any quotas, to check without the lock.
    has_quotas: AtomicBool,
    /// The hashes as of the newest samples, oldest first.
    hashes: Mutex<VecDeque<BucketHashes>>,
}

/// The number of samples whose hashes are kept in memory, for members to be
/// compared at one of them.
const HASHES_MAX: usize = 64;

/// The content of a store that is about to replace the current one.
pub struct Replacement {
    pub watermarks: Watermarks,
    pub leases: Vec<(i64, StoredLease)>,
    samples: Vec<Sample>,
    alarms: Vec<ActiveAlarm>,
    quotas: Quotas,
    counts: Counts,
    auth: AuthState,
    store: Store,
}

/// What was found in the store when it was opened, for the applier.
pub struct Recovered {
    pub watermarks: Watermarks,
    pub samples: Vec<Sample>,
}

impl MemberState {
    /// Opens the state in a store. A new store is initialized with the identity
    /// that `new` returns.
    pub fn open(store: Store, new: impl FnOnce() -> Identity) -> Result<(MemberState, Recovered)> {
        let tables = Tables::open(&store, new)?;
        let watermarks = tables.read_watermarks(&store)?;
        let samples = tables.read_samples(&store)?;
        let alarms = tables.read_alarms(&store)?;
        let quotas = tables.read_quotas(&store)?;
        let state = MemberState {
            revision: AtomicI64::new(watermarks.revision),
            compacted: AtomicI64::new(watermarks.compacted),
            waterline: AtomicI64::new(watermarks.waterline),
            live_bytes: AtomicI64::new(watermarks.live_bytes),
            written_bytes: AtomicI64::new(watermarks.written_bytes),
            sampled_bytes: AtomicI64::new(samples.last().map_or(0, |newest| newest.written_bytes)),
            sampled_time_micros: AtomicI64::new(
                samples.last().map_or(i64::MIN, |newest| newest.time_micros),
            ),
            sampled_clock_micros: AtomicI64::new(
                samples.last().map_or(0, |newest| newest.clock_micros),
            ),
            applied_index: AtomicU64::new(watermarks.applied.index),
            applied_term: AtomicU64::new(watermarks.applied.term),
            counts: RwLock::new(Counts::load(&store, &tables, watermarks.revision)?),
            auth: SharedAuth::new(tables.read_auth(&store)?),
            alarmed: AtomicBool::new(!alarms.is_empty()),
            alarms: Mutex::new(alarms),
            level: AtomicU32::new(watermarks.level),
            has_quotas: AtomicBool::new(!quotas.is_empty()),
            quotas: RwLock::new(Arc::new(quotas)),
            hashes: Mutex::new(VecDeque::new()),
            identity: tables.identity(&store)?,
            store: RwLock::new(Arc::new(store)),
            tables,
        };
        Ok((state, Recovered { watermarks, samples }))
    }

    /// Returns the store. A read that has begun goes on in the store in which it
    /// began, when another takes its place.
    pub fn store(&self) -> Arc<Store> {
        self.store.read().clone()
    }

    /// Reads what another store holds, without using it yet.
    pub(crate) fn replacement(&self, store: Store) -> Result<Replacement> {
        let tables = Tables::open(&store, || self.identity)?;
        if tables != self.tables {
            return Err(Error::Internal("a snapshot has other tables".into()));
        }
        if tables.identity(&store)?.cluster_id != self.identity.cluster_id {
            return Err(Error::ClusterMismatch);
        }
        tables.set_identity(&store, self.identity)?;
        let watermarks = tables.read_watermarks(&store)?;
        Ok(Replacement {
            samples: tables.read_samples(&store)?,
            alarms: tables.read_alarms(&store)?,
            quotas: tables.read_quotas(&store)?,
            counts: Counts::load(&store, &tables, watermarks.revision)?,
            auth: tables.read_auth(&store)?,
            leases: tables.read_leases(&store)?,
            watermarks,
            store,
        })
    }

    /// Takes another store into use. The lines are published first: a reader that
    /// misses what the other store has dropped sees them afterwards.
    pub(crate) fn replace(&self, new: Replacement) -> Recovered {
        let Replacement { watermarks, samples, alarms, quotas, counts, auth, store, .. } = new;
        self.compacted.store(watermarks.compacted, Ordering::Release);
        self.waterline.store(watermarks.waterline, Ordering::Release);
        let store = Arc::new(store);
        let old = std::mem::replace(&mut *self.store.write(), store);
        *self.counts.write() = counts;
        self.auth.publish(Arc::new(auth));
        self.set_alarms(alarms);
        self.set_quotas(Arc::new(quotas));
        if let Some(newest) = samples.last() {
            self.set_sampled(newest);
        }
        self.hashes.lock().clear();
        self.publish(&watermarks);
        drop(old);
        Recovered { watermarks, samples }
    }

    /// Returns the newest revision. Everything up to it can be read.
    pub fn revision(&self) -> i64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Returns the revision below which etcd's clients cannot read.
    pub fn compacted(&self) -> i64 {
        self.compacted.load(Ordering::Acquire).max(self.waterline())
    }

    /// Returns the revision below which nobody can read.
    pub fn waterline(&self) -> i64 {
        self.waterline.load(Ordering::Acquire)
    }

    /// Returns the bytes of the current keys and values.
    pub fn live_bytes(&self) -> i64 {
        self.live_bytes.load(Ordering::Acquire)
    }

    /// Returns the bytes of all keys and values ever written.
    pub fn written_bytes(&self) -> i64 {
        self.written_bytes.load(Ordering::Acquire)
    }

    /// Returns the written bytes at the newest sample.
    pub fn sampled_bytes(&self) -> i64 {
        self.sampled_bytes.load(Ordering::Acquire)
    }

    /// Returns the wall clock and the group clock at the newest sample; `None`
    /// before the first.
    pub fn sampled_time(&self) -> Option<(i64, i64)> {
        let time_micros = self.sampled_time_micros.load(Ordering::Acquire);
        let clock_micros = self.sampled_clock_micros.load(Ordering::Acquire);
        (time_micros != i64::MIN).then_some((time_micros, clock_micros))
    }

    pub(crate) fn set_sampled(&self, sample: &Sample) {
        self.sampled_bytes.store(sample.written_bytes, Ordering::Release);
        self.sampled_clock_micros.store(sample.clock_micros, Ordering::Release);
        self.sampled_time_micros.store(sample.time_micros, Ordering::Release);
    }

    pub fn applied(&self) -> Position {
        Position {
            index: self.applied_index.load(Ordering::Acquire),
            term: self.applied_term.load(Ordering::Acquire),
        }
    }

    /// Returns all alarms: the member and the kind of each.
    pub fn alarms(&self) -> Vec<(u64, Alarm)> {
        self.active_alarms().into_iter().map(|active| (active.member, active.alarm)).collect()
    }

    pub(crate) fn active_alarms(&self) -> Vec<ActiveAlarm> {
        if !self.alarmed.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.alarms.lock().clone()
    }

    pub fn has_alarm(&self, wanted: Alarm) -> bool {
        self.alarmed.load(Ordering::Acquire)
            && self.alarms.lock().iter().any(|active| active.alarm == wanted)
    }

    pub(crate) fn set_alarms(&self, alarms: Vec<ActiveAlarm>) {
        let alarmed = !alarms.is_empty();
        *self.alarms.lock() = alarms;
        self.alarmed.store(alarmed, Ordering::Release);
    }

    /// Returns the feature level of the group.
    pub fn level(&self) -> u32 {
        self.level.load(Ordering::Acquire)
    }

    /// Returns the quotas of prefixes; `None` if there are none.
    pub fn quotas(&self) -> Option<Arc<Quotas>> {
        self.has_quotas.load(Ordering::Acquire).then(|| self.quotas.read().clone())
    }

    pub(crate) fn set_quotas(&self, quotas: Arc<Quotas>) {
        let any = !quotas.is_empty();
        *self.quotas.write() = quotas;
        self.has_quotas.store(any, Ordering::Release);
    }

    /// Keeps the hashes as of a sample.
    pub(crate) fn keep_hashes(&self, hashes: BucketHashes) {
        let mut kept = self.hashes.lock();
        if kept.len() == HASHES_MAX {
            kept.pop_front();
        }
        kept.push_back(hashes);
    }

    /// Returns the hashes as of the sample at a log index; 0 is the newest.
    pub fn hashes_at(&self, index: u64) -> Option<BucketHashes> {
        let kept = self.hashes.lock();
        match index {
            0 => kept.back().copied(),
            index => kept.iter().rev().find(|hashes| hashes.index == index).copied(),
        }
    }

    /// Returns the bytes on disk and in memory, including history.
    pub fn stored_bytes(&self) -> i64 {
        let stats = self.store().stats();
        let stored = stats.fragment_bytes.saturating_add(stats.memory_used_bytes as u64);
        i64::try_from(stored).unwrap_or(i64::MAX)
    }

    /// Commits the changes of a log entry. Called in log order.
    pub(crate) fn commit(&self, commit: &Commit, index: u64) -> Result<()> {
        self.store().apply_at(commit, index)?;
        Ok(())
    }

    /// Commits a part of a log entry's changes ahead of the rest, so that a
    /// large entry is never held in memory whole. All of its cells have
    /// revisions that are not published yet. After a crash the whole entry is
    /// replayed and writes the same cells.
    pub(crate) fn commit_part(&self, commit: &Commit) -> Result<()> {
        self.store().apply_part(commit)?;
        Ok(())
    }

    /// Returns the log index up to which everything is on disk outside the log.
    pub fn flushed(&self) -> u64 {
        self.store().flushed_index()
    }

    /// Makes committed changes visible to readers. The lines are stored first:
    /// a reader that sees the new revision sees them too.
    pub(crate) fn publish(&self, watermarks: &Watermarks) {
        self.compacted.store(watermarks.compacted, Ordering::Release);
        self.waterline.store(watermarks.waterline, Ordering::Release);
        self.live_bytes.store(watermarks.live_bytes, Ordering::Release);
        self.written_bytes.store(watermarks.written_bytes, Ordering::Release);
        self.level.store(watermarks.level, Ordering::Release);
        self.applied_term.store(watermarks.applied.term, Ordering::Release);
        self.applied_index.store(watermarks.applied.index, Ordering::Release);
        self.revision.store(watermarks.revision, Ordering::Release);
    }
}
