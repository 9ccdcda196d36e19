//! A table: its schema, memory fragments and tablets form an immutable version,
//! which is replaced as a whole.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::chain::TabletMap;
use super::link::Link;
use super::load_samples::LoadSamples;
use super::turns::Turns;
use crate::budget::MemoryBudget;
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::config::{TableConfig, TableState, TabletConfigs};
use crate::memory::MemoryFragment;
use crate::schema::Schema;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{ArcSwap, Guard, Mutex, MutexGuard};
use crate::txn::Txn;

pub struct Table {
    pub id: TableId,
    pub name: String,
    version: ArcSwap<TableVersion>,
    /// Number of changes of the schema and of the rows that can be written.
    fence: AtomicU64,
    /// The order of changes of the tablets.
    turns: Turns,
    /// Held while tablets are loaded or unloaded.
    loads: Mutex<()>,
    /// Number of runs in the version's longest chain, in the low bits below the
    /// version number.
    chain_longest: AtomicU64,
    /// The last answer of `stopped`.
    stopped: Mutex<Option<Stopped>>,
    /// Whether the table is being dropped: it takes no more commits.
    dropping: AtomicBool,
    dropped: AtomicBool,
    /// How busy its rows are.
    pub samples: LoadSamples,
    /// The newest commit that touched any row.
    newest: AtomicU64,
    /// The newest commit that deleted a range of rows.
    range_deleted: AtomicU64,
}

/// The first rows of the tablets whose writers must stop, as of a version and an event.
struct Stopped {
    version: u64,
    event: u64,
    tablets: Arc<BTreeSet<Vec<u8>>>,
}

/// The state of a table at one point in time.
#[derive(Clone)]
pub struct TableVersion {
    /// Increases with each version.
    pub number: u64,
    pub schema: Arc<Schema>,
    /// One per group of the schema.
    pub memory: Vec<GroupMemory>,
    pub tablets: Arc<TabletMap>,
    /// Whether all tablets take reads and writes.
    pub all_active: bool,
}

impl TableVersion {
    /// Returns the memory of the groups without hidden families.
    pub fn visible_memory(&self) -> &[GroupMemory] {
        &self.memory[..self.schema.visible_groups()]
    }

    /// Returns the approximate size on disk of a range of rows, without hidden families.
    pub fn disk_bytes(&self, range: &RowRange) -> u64 {
        let visible = self.schema.visible_groups();
        let tablets = self.tablets.overlapping(range);
        let chains = tablets.flat_map(|tablet| &tablet.chains[..visible]);
        let links = chains.flat_map(|chain| &chain.runs).flat_map(|run| run.links_of(range));
        links.map(|link| link.bytes_in(range)).sum()
    }

    /// Returns the size at which the memory of a group is flushed: with many
    /// tablets more, so that each gets a worthwhile part of the file, but not most
    /// of the memory.
    pub fn flush_bytes(&self, fragment_bytes: usize, budget_bytes: usize) -> usize {
        const BYTES_PER_TABLET: usize = 64 << 10;
        let more = (self.tablets.len() - 1) * BYTES_PER_TABLET;
        (fragment_bytes + more).min((budget_bytes / 4).max(fragment_bytes))
    }

    /// Returns the version as the config describes it.
    pub fn config(&self, id: TableId, name: &str) -> TableConfig {
        let tablets = self.tablets.iter().map(|tablet| Arc::new(tablet.config())).collect();
        TableConfig {
            id,
            name: name.to_string(),
            schema: self.schema.clone(),
            state: TableState::Active,
            flushed: self.memory.iter().map(|memory| memory.flushed).collect(),
            tablets: TabletConfigs::new(tablets),
        }
    }

    fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.tablets.iter().flat_map(|tablet| tablet.links())
    }
}

/// Number of low bits of `Table::chain_longest` that count runs.
const RUNS_BITS: u32 = 24;

/// Returns the length of the longest chain combined with the version number, so
/// that later versions compare greater.
fn longest_of(version: &TableVersion) -> u64 {
    let runs = (version.tablets.summary().longest as u64).min((1 << RUNS_BITS) - 1);
    version.number << RUNS_BITS | runs
}

fn load_txn(txn: &AtomicU64) -> Txn {
    Txn::from_raw(txn.load(Ordering::Acquire)).expect("only txns are stored")
}

/// The memory fragments of one group.
#[derive(Clone)]
pub struct GroupMemory {
    /// Receives the writes.
    pub active: Arc<MemoryFragment>,
    /// When the active fragment received its first write.
    pub active_since: Arc<OnceLock<Duration>>,
    /// Waiting to be flushed, oldest first.
    pub sealed: Vec<Arc<MemoryFragment>>,
    /// Commits up to this txn are in files, in all tablets.
    pub flushed: Txn,
}

impl GroupMemory {
    pub fn new(budget: &Arc<MemoryBudget>, flushed: Txn) -> GroupMemory {
        GroupMemory {
            active: Arc::new(MemoryFragment::new(budget)),
            active_since: Arc::default(),
            sealed: Vec::new(),
            flushed,
        }
    }

    pub fn bytes(&self) -> usize {
        self.fragments().map(|fragment| fragment.bytes()).sum()
    }

    /// Returns the oldest commit that is only in memory.
    pub fn txn_min(&self) -> Option<Txn> {
        self.fragments().filter_map(|fragment| fragment.txn_min()).min()
    }

    pub fn fragments(&self) -> impl Iterator<Item = &Arc<MemoryFragment>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }
}

impl Table {
    pub fn new(id: TableId, name: String, version: TableVersion) -> Table {
        version.links().for_each(|link| link.add_reference());
        Table {
            id,
            name,
            fence: AtomicU64::new(0),
            turns: Turns::default(),
            loads: Mutex::new(()),
            chain_longest: AtomicU64::new(longest_of(&version)),
            version: ArcSwap::from_pointee(version),
            stopped: Mutex::new(None),
            dropping: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            samples: LoadSamples::default(),
            newest: AtomicU64::new(0),
            range_deleted: AtomicU64::new(0),
        }
    }

    /// Returns the current version, for brief use.
    pub fn version(&self) -> Guard<Arc<TableVersion>> {
        self.version.load()
    }

    /// Returns the current version, to be held for the duration of a batch. If
    /// a snapshot was taken before, the version contains everything up to it.
    pub fn pinned_version(&self) -> Arc<TableVersion> {
        self.version.load_full()
    }

    /// Returns the current version and a txn at which it is complete: it
    /// contains everything up to the txn, and no rewrite has dropped what the
    /// txn sees.
    pub fn capture(&self, txn: impl Fn() -> Txn) -> (Arc<TableVersion>, Txn) {
        loop {
            let version = self.version.load_full();
            let txn = txn();
            if Arc::ptr_eq(&version, &self.version.load()) {
                return (version, txn);
            }
        }
    }

    /// Replaces the current version with a changed copy. `change` is called
    /// again if another thread replaced the version first, so it always sees
    /// the version that it replaces. Takes no lock, so that no thread waits for
    /// one of low priority.
    pub fn change<T>(&self, change: impl Fn(&mut TableVersion) -> T) -> T {
        let mut replaced = None;
        self.version.rcu(|current| {
            let mut next = TableVersion::clone(current);
            next.number += 1;
            let result = change(&mut next);
            let same = Arc::ptr_eq(&current.tablets, &next.tablets);
            if !same {
                next.all_active = next.tablets.summary().active;
            }
            replaced = Some((result, (!same).then(|| longest_of(&next))));
            next
        });
        let (result, longest) = replaced.expect("rcu calls its closure at least once");
        if let Some(longest) = longest {
            // Keeps the value of a newer version, if there is one.
            self.chain_longest.fetch_max(longest, Ordering::Relaxed);
        }
        result
    }

    pub(super) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Returns the number of changes of the schema and of the rows that can be
    /// written. What was prepared before the last of them must be prepared again.
    pub fn fence(&self) -> u64 {
        self.fence.load(Ordering::Acquire)
    }

    /// Makes commits that were prepared before be prepared again, because the rows that
    /// can be written have changed.
    pub fn raise_fence(&self) {
        self.fence.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until no other thread loads or unloads tablets.
    pub fn lock_loads(&self) -> MutexGuard<'_, ()> {
        self.loads.lock()
    }

    /// Replaces the schema, and makes another change in the same step. The caller
    /// excludes writers.
    pub(super) fn set_schema(&self, schema: &Arc<Schema>, also: impl Fn(&mut TableVersion)) {
        self.change(|version| {
            version.schema = schema.clone();
            also(version);
        });
        self.fence.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the newest txn up to which any group is in files.
    pub fn flushed(&self) -> Txn {
        self.version().memory.iter().map(|memory| memory.flushed).max().unwrap_or(Txn::ZERO)
    }

    /// Returns the number of runs in the longest chain.
    pub fn chain_longest(&self) -> usize {
        (self.chain_longest.load(Ordering::Relaxed) & ((1 << RUNS_BITS) - 1)) as usize
    }

    /// Returns the first rows of the tablets whose writers must stop because of a
    /// chain that compaction can shorten. `find_out` is called at most once per version
    /// and event, however many callers there are.
    pub fn stopped(
        &self,
        version: u64,
        event: u64,
        find_out: impl FnOnce() -> BTreeSet<Vec<u8>>,
    ) -> Arc<BTreeSet<Vec<u8>>> {
        let mut known = self.stopped.lock();
        match &*known {
            Some(known) if (known.version, known.event) == (version, event) => {
                known.tablets.clone()
            }
            _ => {
                let tablets = Arc::new(find_out());
                *known = Some(Stopped { version, event, tablets: tablets.clone() });
                tablets
            }
        }
    }

    /// Refuses commits from now on, or accepts them again because the table could not be
    /// dropped. The caller excludes writers.
    pub fn set_dropping(&self, dropping: bool) {
        self.dropping.store(dropping, Ordering::Release);
        self.fence.fetch_add(1, Ordering::AcqRel);
    }

    pub fn is_dropping(&self) -> bool {
        self.dropping.load(Ordering::Acquire)
    }

    /// Marks the table as dropped: it gives up its references, and files without any are
    /// removed after their last readers. The caller has a turn for the whole table, so
    /// that no worker adds files meanwhile; later ones find that it is dropped.
    pub fn mark_dropped(&self) {
        if !self.dropped.swap(true, Ordering::AcqRel) {
            self.version().links().for_each(|link| link.remove_reference());
        }
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Returns the newest commit that touched the table.
    pub fn newest(&self) -> Txn {
        load_txn(&self.newest)
    }

    /// Returns the newest commit that deleted a range, and thus touched rows
    /// that cannot be listed.
    pub fn range_deleted(&self) -> Txn {
        load_txn(&self.range_deleted)
    }

    /// Records a commit to the table. Called in txn order.
    pub fn touched(&self, txn: Txn, deleted_range: bool) {
        self.newest.store(txn.raw(), Ordering::Release);
        if deleted_range {
            self.range_deleted.store(txn.raw(), Ordering::Release);
        }
    }

    /// Records that tablets were loaded: whatever was read before may have changed since.
    /// The caller excludes writers.
    pub fn loaded(&self, latest: Txn) {
        self.newest.fetch_max(latest.raw(), Ordering::AcqRel);
    }

    /// Seals the group's active fragment. The caller excludes writers.
    pub fn seal(&self, group: usize, budget: &Arc<MemoryBudget>) {
        self.change(|version| {
            // The group may be gone since the caller chose it.
            let Some(memory) = version.memory.get_mut(group) else { return };
            if !memory.active.is_empty() {
                let sealed = std::mem::replace(memory, GroupMemory::new(budget, memory.flushed));
                memory.sealed = sealed.sealed;
                memory.sealed.push(sealed.active);
            }
        });
    }
}
