//! What is stored and how it is read.
//!
//! A [`State`] is the tables of one member in one engine store (`tables`), and
//! the numbers that reads go by (`numbers`): the newest revision, below which
//! everything is there to be read, and the two lines below which it is not.
//! Values are stored as they are sent (`tail`). Reads (`read`) run beside
//! `apply`: a read picks a revision, and cells are stored under theirs, so what
//! is written meanwhile is not seen. How many keys a range holds is kept up to
//! date (`counts`), what changed when is a table of its own (`changes`), and
//! `lock` is what is stored of a key's lock.

pub(crate) mod changes;
mod counts;
mod hash;
mod lock;
mod numbers;
mod read;
mod retained;
pub(crate) mod tables;
mod tail;

pub use changes::{Change, ChangeKind, ChangeScan};
pub use counts::{Counts, Staged};
pub use hash::Hash;
pub use lock::{Holder, KeyLockInfo, Waiter};
pub use numbers::{Numbers, Sample};
pub(crate) use read::is_expired;
pub use read::{Floor, RangeScan, RangeSummary, pick};
pub use retained::Seen;
pub use tables::{Identity, LOCK, Tables, VALUE};
pub use tail::{KeyView, Tail, push_varint, varint, varint_len};

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use stele_engine::fatal::Mutex;
use stele_engine::{Columns, Commit, FamilyColumns, ScanSpec, Store, TimeRange, View};

use crate::command::Alarm;
use crate::consensus::Position;
use crate::error::Result;

/// The stored state of a member. Shared by the one that applies and all that
/// read.
pub struct State {
    pub store: Store,
    pub tables: Tables,
    pub identity: Identity,
    revision: AtomicI64,
    compacted: AtomicI64,
    waterline: AtomicI64,
    live_bytes: AtomicI64,
    written_bytes: AtomicI64,
    /// The written bytes, the wall clock and the group's clock as of the newest
    /// sample of time.
    sampled_bytes: AtomicI64,
    sampled_time_micros: AtomicI64,
    sampled_clock_micros: AtomicI64,
    applied_index: AtomicU64,
    applied_term: AtomicU64,
    pub counts: RwLock<Counts>,
    alarms: Mutex<Vec<(u64, Alarm)>>,
    /// Whether there are any, for calls that only want to know that.
    alarmed: AtomicBool,
}

/// What was found in the store when it was opened, for whoever applies.
pub struct Found {
    pub numbers: Numbers,
    pub samples: Vec<Sample>,
}

impl State {
    /// The state in a store, which is made ready if it is new: then it is of
    /// the member that `new` chooses.
    pub fn open(store: Store, new: impl FnOnce() -> Identity) -> Result<(State, Found)> {
        let tables = Tables::open(&store, new)?;
        let numbers = tables.read_numbers(&store)?;
        let samples = tables.read_samples(&store)?;
        let alarms = tables.read_alarms(&store)?;
        let state = State {
            revision: AtomicI64::new(numbers.revision),
            compacted: AtomicI64::new(numbers.compacted),
            waterline: AtomicI64::new(numbers.waterline),
            live_bytes: AtomicI64::new(numbers.live_bytes),
            written_bytes: AtomicI64::new(numbers.written_bytes),
            sampled_bytes: AtomicI64::new(samples.last().map_or(0, |newest| newest.written_bytes)),
            sampled_time_micros: AtomicI64::new(
                samples.last().map_or(i64::MIN, |newest| newest.time_micros),
            ),
            sampled_clock_micros: AtomicI64::new(
                samples.last().map_or(0, |newest| newest.clock_micros),
            ),
            applied_index: AtomicU64::new(numbers.applied.index),
            applied_term: AtomicU64::new(numbers.applied.term),
            counts: RwLock::new(Counts::load(&store, &tables, numbers.revision)?),
            alarmed: AtomicBool::new(!alarms.is_empty()),
            alarms: Mutex::new(alarms),
            identity: tables.identity(&store)?,
            store,
            tables,
        };
        Ok((state, Found { numbers, samples }))
    }

    /// The newest revision. Everything up to it is there to be read.
    pub fn revision(&self) -> i64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Reads below this revision are refused to etcd's clients.
    pub fn compacted(&self) -> i64 {
        self.compacted.load(Ordering::Acquire).max(self.waterline())
    }

    /// Reads below this revision are refused to everybody.
    pub fn waterline(&self) -> i64 {
        self.waterline.load(Ordering::Acquire)
    }

    /// Bytes of the keys and values there are now.
    pub fn live_bytes(&self) -> i64 {
        self.live_bytes.load(Ordering::Acquire)
    }

    /// Bytes of keys and values ever written.
    pub fn written_bytes(&self) -> i64 {
        self.written_bytes.load(Ordering::Acquire)
    }

    /// The same when time was last sampled.
    pub fn sampled_bytes(&self) -> i64 {
        self.sampled_bytes.load(Ordering::Acquire)
    }

    /// The wall clock and the group's clock when time was last sampled; `None`
    /// before the first sample.
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

    pub fn alarms(&self) -> Vec<(u64, Alarm)> {
        if !self.alarmed.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.alarms.lock().clone()
    }

    pub fn has_alarm(&self, wanted: Alarm) -> bool {
        self.alarmed.load(Ordering::Acquire)
            && self.alarms.lock().iter().any(|(_, alarm)| *alarm == wanted)
    }

    pub(crate) fn set_alarms(&self, alarms: Vec<(u64, Alarm)>) {
        let alarmed = !alarms.is_empty();
        *self.alarms.lock() = alarms;
        self.alarmed.store(alarmed, Ordering::Release);
    }

    /// Makes a log entry's changes the state. Called in the order of the log.
    pub(crate) fn commit(&self, commit: &Commit, index: u64) -> Result<()> {
        self.store.apply_at(commit, index)?;
        Ok(())
    }

    /// Makes a part of a log entry's changes durable ahead of the rest, so that
    /// a large entry is not held in memory whole. All of its cells have
    /// revisions that are not published yet. After a crash the whole entry is
    /// applied again and writes the same cells.
    pub(crate) fn commit_part(&self, commit: &Commit) -> Result<()> {
        self.store.apply_part(commit)?;
        Ok(())
    }

    /// Everything up to this log index is on disk without the log.
    pub fn flushed(&self) -> u64 {
        self.store.flushed_index()
    }

    /// Lets readers see what has been committed. The lines come first: a
    /// reader that sees the new revision sees them too.
    pub(crate) fn publish(&self, numbers: &Numbers) {
        self.compacted.store(numbers.compacted, Ordering::Release);
        self.waterline.store(numbers.waterline, Ordering::Release);
        self.live_bytes.store(numbers.live_bytes, Ordering::Release);
        self.written_bytes.store(numbers.written_bytes, Ordering::Release);
        self.applied_term.store(numbers.applied.term, Ordering::Release);
        self.applied_index.store(numbers.applied.index, Ordering::Release);
        self.revision.store(numbers.revision, Ordering::Release);
    }

    /// The stored tail of a key at a revision.
    pub fn get(&self, key: &[u8], revision: i64) -> Result<Option<Bytes>> {
        self.get_by(key, &value_spec(revision))
    }

    /// The stored tail of a key, by a spec that was made before.
    pub(crate) fn get_by(&self, key: &[u8], spec: &ScanSpec) -> Result<Option<Bytes>> {
        let mut found = None;
        self.store.read_row(self.tables.user, key, spec, |cell| {
            found = Some(Bytes::copy_from_slice(cell.value));
        })?;
        Ok(found)
    }

    /// The lock of a key, as it is now.
    pub fn lock_info(&self, key: &[u8]) -> Result<Option<KeyLockInfo>> {
        self.read_retained(0, Floor::Retained, |revision, _| {
            self.lock_info_at(key, revision).map(Seen::MaybeLess)
        })
    }

    /// The lock of a key at a revision, which is retained.
    pub(crate) fn lock_info_at(&self, key: &[u8], revision: i64) -> Result<Option<KeyLockInfo>> {
        let spec = ScanSpec {
            columns: Columns::Families(vec![FamilyColumns::all(LOCK)]),
            versions: Some(1),
            times: Some(TimeRange { min: i64::MIN, max: revision }),
            view: View::Latest,
            ..ScanSpec::default()
        };
        let mut found = None;
        self.store.read_row(self.tables.user, key, &spec, |cell| {
            found = Some(KeyLockInfo::parse(cell.value));
        })?;
        found.transpose()
    }
}

/// Reads values as they were at a revision: of each key the newest version up
/// to it, unless that is an erasure.
pub(crate) fn value_spec(revision: i64) -> ScanSpec {
    ScanSpec {
        columns: Columns::Families(vec![FamilyColumns::all(VALUE)]),
        times: Some(TimeRange { min: i64::MIN, max: revision }),
        versions: Some(1),
        view: View::Latest,
        ..ScanSpec::default()
    }
}
