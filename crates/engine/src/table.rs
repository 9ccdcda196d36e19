//! A table: its schema, its memory fragments and its tablets, as one immutable
//! version that is swapped whole.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::budget::MemoryBudget;
use crate::cell::commit::TableId;
use crate::cell::rows::RowRange;
use crate::config::FileName;
use crate::link::Link;
use crate::memory::MemoryFragment;
use crate::schema::Schema;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{ArcSwap, Guard, Mutex};
use crate::tablet::{Chain, Tablet};
use crate::txn::Txn;

pub struct Table {
    pub id: TableId,
    pub name: String,
    version: ArcSwap<TableVersion>,
    /// Runs in the longest chain of the version, below the number of that
    /// version.
    chain_longest: AtomicU64,
    /// What was found out last about the length of the chains.
    shrinkable: Mutex<Option<Shrinkable>>,
    dropped: AtomicBool,
    /// The newest commit that touched any row.
    newest: AtomicU64,
    /// The newest commit that deleted a range of rows.
    range_deleted: AtomicU64,
}

/// Whether compaction can shorten chains, as of a version and an event.
#[derive(Clone, Copy)]
struct Shrinkable {
    version: u64,
    event: u64,
    answer: bool,
}

/// What a table is made of at one moment.
#[derive(Clone)]
pub struct TableVersion {
    /// Greater than that of every version before it.
    pub number: u64,
    pub schema: Arc<Schema>,
    /// One for each group of the schema.
    pub memory: Vec<GroupMemory>,
    /// In row order, without holes.
    pub tablets: Vec<Tablet>,
}

impl TableVersion {
    /// About how many bytes the rows of a range take on disk.
    pub fn disk_bytes(&self, range: &RowRange) -> u64 {
        let chains = self.tablets.iter().flat_map(|tablet| &tablet.chains);
        let links = chains.flat_map(|chain| &chain.runs).flat_map(|run| run.links_of(range));
        let of_link = |link: &Arc<Link>| {
            let part = range.intersection(&link.file.rows);
            link.fragment().map_or(0, |fragment| fragment.estimate_bytes(&part))
        };
        links.map(of_link).sum()
    }

    /// Runs in the longest chain.
    pub fn chain_longest(&self) -> usize {
        self.chains().map(|chain| chain.runs.len()).max().unwrap_or(0)
    }

    fn chains(&self) -> impl Iterator<Item = &Chain> {
        self.tablets.iter().flat_map(|tablet| &tablet.chains)
    }

    /// The files that chains name.
    pub fn file_names(&self) -> BTreeSet<FileName> {
        self.chains().flat_map(Chain::links).map(|link| link.file.name).collect()
    }

    fn doom_files(&self) {
        self.chains().flat_map(Chain::links).for_each(|link| link.doom());
    }
}

/// How many bits of `Table::chain_longest` count runs.
const RUNS_BITS: u32 = 24;

/// The length of the longest chain, in a number that grows with the version.
fn longest_of(version: &TableVersion) -> u64 {
    let runs = (version.chain_longest() as u64).min((1 << RUNS_BITS) - 1);
    version.number << RUNS_BITS | runs
}

fn load_txn(txn: &AtomicU64) -> Txn {
    Txn::from_raw(txn.load(Ordering::Acquire)).expect("only txns are stored")
}

/// The memory fragments of one group.
#[derive(Clone)]
pub struct GroupMemory {
    /// Takes the writes.
    pub active: Arc<MemoryFragment>,
    /// When the active fragment took its first write.
    pub active_since: Arc<OnceLock<Duration>>,
    /// On their way to disk; oldest first.
    pub sealed: Vec<Arc<MemoryFragment>>,
}

impl GroupMemory {
    pub fn new(budget: &Arc<MemoryBudget>) -> GroupMemory {
        GroupMemory {
            active: Arc::new(MemoryFragment::new(budget)),
            active_since: Arc::default(),
            sealed: Vec::new(),
        }
    }

    pub fn bytes(&self) -> usize {
        self.fragments().map(|fragment| fragment.bytes()).sum()
    }

    /// The oldest commit that is in memory alone.
    pub fn txn_min(&self) -> Option<Txn> {
        self.fragments().filter_map(|fragment| fragment.txn_min()).min()
    }

    pub fn fragments(&self) -> impl Iterator<Item = &Arc<MemoryFragment>> {
        std::iter::once(&self.active).chain(&self.sealed)
    }
}

impl Table {
    pub fn new(id: TableId, name: String, version: TableVersion) -> Table {
        Table {
            id,
            name,
            chain_longest: AtomicU64::new(longest_of(&version)),
            version: ArcSwap::from_pointee(version),
            shrinkable: Mutex::new(None),
            dropped: AtomicBool::new(false),
            newest: AtomicU64::new(0),
            range_deleted: AtomicU64::new(0),
        }
    }

    /// The current version, for a short look.
    pub fn version(&self) -> Guard<Arc<TableVersion>> {
        self.version.load()
    }

    /// The current version, to be kept for as long as a batch takes. Taken
    /// after a snapshot is held, it has everything up to that snapshot.
    pub fn pinned_version(&self) -> Arc<TableVersion> {
        self.version.load_full()
    }

    /// The current version together with a txn for which it is whole:
    /// everything up to the txn is in it, and nothing was rewritten past it.
    pub fn capture(&self, txn: impl Fn() -> Txn) -> (Arc<TableVersion>, Txn) {
        loop {
            let version = self.version.load_full();
            let txn = txn();
            if Arc::ptr_eq(&version, &self.version.load()) {
                return (version, txn);
            }
        }
    }

    /// Makes the next version from the current one. What `change` reads of it
    /// is current when the next version takes its place: `change` is called
    /// again if another thread was faster. No lock is held, so that nobody
    /// waits for a thread with low priority.
    pub fn change<T>(&self, change: impl Fn(&mut TableVersion) -> T) -> T {
        let mut made = None;
        self.version.rcu(|current| {
            let mut next = TableVersion::clone(current);
            next.number += 1;
            let result = change(&mut next);
            if self.is_dropped() {
                next.doom_files();
            }
            made = Some((result, longest_of(&next)));
            next
        });
        let (result, longest) = made.expect("a version was made");
        // That of a newer version stays.
        self.chain_longest.fetch_max(longest, Ordering::Relaxed);
        result
    }

    /// The newest commit that is in files.
    pub fn flushed_through(&self) -> Txn {
        self.version().chains().map(|chain| chain.flushed_through).max().unwrap_or(Txn::ZERO)
    }

    /// Runs in the longest chain.
    pub fn chain_longest(&self) -> usize {
        (self.chain_longest.load(Ordering::Relaxed) & ((1 << RUNS_BITS) - 1)) as usize
    }

    /// Whether compaction can shorten the chains that are too long: `find_out`
    /// is called once for each version and event, however many ask.
    pub fn can_shrink(&self, event: u64, find_out: impl FnOnce() -> bool) -> bool {
        let mut known = self.shrinkable.lock();
        let version = self.version().number;
        match *known {
            Some(known) if (known.version, known.event) == (version, event) => known.answer,
            _ => {
                let answer = find_out();
                *known = Some(Shrinkable { version, event, answer });
                answer
            }
        }
    }

    /// No config names the table any more: its files go with their last
    /// readers, also those that a worker is about to add.
    pub fn drop_it(&self) {
        self.dropped.store(true, Ordering::Release);
        self.change(|_| ());
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// The newest commit that touched the table.
    pub fn newest(&self) -> Txn {
        load_txn(&self.newest)
    }

    /// The newest commit that deleted a range of rows, and so touched rows
    /// that nobody can list.
    pub fn range_deleted(&self) -> Txn {
        load_txn(&self.range_deleted)
    }

    /// A commit touched the table. Called in txn order.
    pub fn touched(&self, txn: Txn, deleted_range: bool) {
        self.newest.store(txn.raw(), Ordering::Release);
        if deleted_range {
            self.range_deleted.store(txn.raw(), Ordering::Release);
        }
    }

    /// Closes the group's active fragment to writes. The caller keeps writers
    /// away meanwhile.
    pub fn seal(&self, group: usize, budget: &Arc<MemoryBudget>) {
        self.change(|version| {
            let memory = &mut version.memory[group];
            if !memory.active.is_empty() {
                let sealed = std::mem::replace(memory, GroupMemory::new(budget));
                memory.sealed = sealed.sealed;
                memory.sealed.push(sealed.active);
            }
        });
    }
}
