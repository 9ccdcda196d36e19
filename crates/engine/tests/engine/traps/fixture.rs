//! A store on a simulated machine whose syncs a test can block, and helpers for the
//! trap tests.

use std::path::Path;
use std::sync::Arc;

use stele_engine::schema::{Family, Group, Schema};
use stele_engine::world::sim::{Hold, Operation, SimFiles};
use stele_engine::world::{ManualClock, SeededRandom, Threads, World};
use stele_engine::*;

pub const DIR: &str = "/store";

pub struct Machine {
    pub sim: SimFiles,
    pub clock: Arc<ManualClock>,
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        Machine::on(SimFiles::new(seed))
    }

    pub fn on(sim: SimFiles) -> Machine {
        Machine { sim, clock: Arc::new(ManualClock::at(1_000_000_000)) }
    }

    pub fn world(&self) -> World {
        World {
            clock: self.clock.clone(),
            files: Arc::new(self.sim.clone()),
            random: Arc::new(SeededRandom::new(1)),
            spawner: None,
        }
    }

    /// Blocks syncs of files whose path contains this part.
    pub fn hold_syncs(&self, path_part: &str) -> Hold {
        self.sim.hold(Operation::Sync, path_part, "")
    }

    pub fn open_with(&self, options: Options) -> Store {
        Store::open(Path::new(DIR), options, self.world()).unwrap()
    }

    pub fn open(&self) -> Store {
        self.open_with(Options::default())
    }

    /// Opens the store with worker threads.
    pub fn open_threaded(&self, options: Options) -> Store {
        let world = World { spawner: Some(Arc::new(Threads)), ..self.world() };
        Store::open(Path::new(DIR), options, world).unwrap()
    }

    /// Closes the store and reopens it.
    pub fn open_again(&self, store: Store) -> Store {
        store.close().unwrap();
        self.open()
    }

    /// Simulates a power failure; returns the machine with what is left.
    pub fn crash(&self, store: Store) -> Machine {
        let next = Machine::on(self.sim.crash());
        drop(store);
        next
    }

    /// Kills the process; the machine keeps running.
    pub fn kill(&self, store: Store) -> Machine {
        let next = Machine::on(self.sim.crash_keeping_writes());
        drop(store);
        next
    }
}

/// Returns one group with the families f and g.
pub fn schema() -> Schema {
    Schema::with_families([Family::new("f"), Family::new("g")]).unwrap()
}

/// Returns one group for f and one for g.
pub fn two_groups() -> Schema {
    let groups = vec![Group::new("f", [Family::new("f")]), Group::new("g", [Family::new("g")])];
    Schema::new(groups).unwrap()
}

/// Returns a commit to one row of one table.
pub fn to_row(
    table: TableId,
    row: &[u8],
    build: impl for<'c> FnOnce(&'c mut CommitBuilder) -> &'c mut CommitBuilder,
) -> Commit {
    let mut commit = CommitBuilder::new();
    build(commit.table(table).row(row));
    commit.finish()
}

/// Returns a commit that sets one cell.
pub fn set(table: TableId, row: &str, value: &str) -> Commit {
    to_row(table, row.as_bytes(), |c| c.set(b"f", b"q", 1, value.as_bytes()))
}

/// Returns a commit that increments a row's counter.
pub fn count(table: TableId, row: &str) -> Commit {
    let one = 1i64.to_be_bytes();
    to_row(table, row.as_bytes(), |c| c.merge(FoldId::SUM, b"f", b"n", 1, &one))
}

pub fn put(store: &Store, commit: &Commit) -> Txn {
    store.apply(commit, Txn::MAX, Durability::Durable).unwrap()
}

/// Returns rows and values, in order.
pub fn cells_in(store: &Store, table: TableId, spec: ScanSpec) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let read = store.read(table, spec, |cell| {
        let show = |bytes: &[u8]| bytes.escape_ascii().to_string();
        found.push((show(cell.row), show(cell.value)));
    });
    read.unwrap();
    found
}

pub fn cells(store: &Store, table: TableId, view: View) -> Vec<(String, String)> {
    cells_in(store, table, ScanSpec { view, ..ScanSpec::default() })
}

/// Returns the sum in the last cell of the table.
pub fn sum(store: &Store, table: TableId, view: View) -> i64 {
    let mut sum = 0;
    let spec = ScanSpec { view, ..ScanSpec::default() };
    let read = store.read(table, spec, |cell| {
        sum = i64::from_be_bytes(cell.value.try_into().unwrap());
    });
    read.unwrap();
    sum
}

pub fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(row, value)| (row.to_string(), value.to_string())).collect()
}

/// Returns the number of segments in the log's directory.
pub fn segments(sim: &SimFiles) -> usize {
    sim.files().keys().filter(|path| path.starts_with("/store/log")).count()
}
