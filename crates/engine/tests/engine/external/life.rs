//! A store with an external log that crashes repeatedly, a caller that owns the log,
//! and a model of the state after every prefix of that log.

use std::collections::BTreeMap;
use std::path::Path;

use stele_engine::schema::{Family, Group, Schema};
use stele_engine::world::sim::{FaultRates, Operation, SimFiles, disk_error, disk_full};
use stele_engine::*;

use crate::support::die::Die;
use crate::support::power::Powered;

pub const DIR: &str = "/store";
const TABLES: [&str; 2] = ["left", "right"];
/// Each in its own group.
const FAMILIES: [&[u8]; 2] = [b"f", b"g"];
const ROWS: u64 = 10;

/// Table, row, family, timestamp.
type Cells = BTreeMap<(usize, Vec<u8>, Vec<u8>, i64), Vec<u8>>;

/// One logged change to one row.
#[derive(Clone, Debug)]
enum Change {
    Set { table: usize, row: u64, family: usize },
    DeleteRow { table: usize, row: u64 },
}

tally! {
    commits: "commits",
    again: "commits applied again",
    flushes: "flushes",
    failed_flushes: "failed flushes",
    compactions: "compactions",
    died_while_opening: "crashes while opening",
}

pub struct Machine {
    /// Number of tablets of each table; if there are several, they are split and
    /// joined.
    tablets: u64,
    die: Die,
    sim: SimFiles,
    /// The caller's log: the entry with index `n` is at `n - 1`.
    log: Vec<Vec<Change>>,
    /// The highest index that a store reported as flushed.
    flushed: u64,
    pub tally: Tally,
}

impl Machine {
    pub fn new(seed: u64, tablets: u64) -> Machine {
        let (die, sim) = (Die::new(seed), SimFiles::new(seed));
        Machine { tablets, die, sim, log: Vec::new(), flushed: 0, tally: Tally::default() }
    }

    /// Runs one life: recover as of the flushed index, catch up, run random steps,
    /// crash.
    pub fn live(&mut self) {
        let (store, power) = self.reopen();
        let tables = self.tables(&store);
        self.check_reopened(&store, tables);
        self.apply_again(&store, tables);
        self.inject_faults(&power);
        for _ in 0..5 + self.die.below(60) {
            self.step(&store, tables);
            if power.is_out() {
                break;
            }
        }
        self.sim.set_fault_rates(FaultRates::default());
        self.sim.set_capacity(None);
        let stats = store.stats();
        self.tally.flushes += stats.flushes;
        self.tally.compactions += stats.compactions;
        if self.die.one_in(4) {
            // Whatever closing returns, it must not lose flushed data.
            let _ = store.close();
        } else {
            power.cut_after(0);
            drop(store);
        }
        self.sim =
            if self.die.one_in(3) { self.sim.crash_keeping_writes() } else { self.sim.crash() };
    }

    fn reopen(&mut self) -> (Store, Powered) {
        let mut deaths = 0;
        loop {
            let power = Powered::new(self.sim.clone());
            if deaths < 2 && self.die.one_in(3) {
                power.cut_after(self.die.below(30));
            }
            let world = power.world(self.die.below(1 << 40));
            match Store::open_external(Path::new(DIR), self.options(), world) {
                Ok(store) if !power.is_out() => {
                    power.cut_after(i64::MAX as u64);
                    return (store, power);
                }
                Ok(store) => drop(store),
                Err(error) => assert!(power.is_out(), "the store does not open: {error}"),
            }
            deaths += 1;
            self.tally.died_while_opening += 1;
            self.sim = self.sim.crash();
        }
    }

    fn options(&self) -> Options {
        let mut options = Options::default();
        // Little memory, so that writers trigger flushes themselves.
        options.memory.budget_bytes = self.die.pick(&[8 << 10, 64 << 10, 1 << 20]);
        options.flush.fragment_bytes = self.die.pick(&[2 << 10, 1 << 20]);
        options.compact.chain_min = 2;
        options.compact.output_bytes = 2 << 10;
        options
    }

    fn tables(&self, store: &Store) -> [TableId; 2] {
        TABLES.map(|name| {
            store.table(name).unwrap_or_else(|| {
                let groups = [("one", "f"), ("two", "g")];
                let groups = groups.map(|(group, family)| Group::new(group, [Family::new(family)]));
                let schema = Schema::new(groups.to_vec()).unwrap();
                let splits = (1..self.tablets).map(|at| (at * 2).to_be_bytes().to_vec()).collect();
                store.create_table_with_splits(name, schema, splits).unwrap()
            })
        })
    }

    fn check_reopened(&self, store: &Store, tables: [TableId; 2]) {
        let flushed = store.flushed_index();
        assert!(flushed >= self.flushed, "{} was flushed, and now {flushed}", self.flushed);
        assert!(flushed <= self.log.len() as u64, "flushed what was never applied");
        assert_eq!(store.applied_index(), flushed);
        assert_eq!(contents(store, tables), self.model(flushed), "as of {flushed}");
    }

    fn apply_again(&mut self, store: &Store, tables: [TableId; 2]) {
        for index in store.applied_index() + 1..=self.log.len() as u64 {
            store.apply_at(&self.commit(tables, index), index).unwrap();
            self.tally.again += 1;
        }
        assert_eq!(contents(store, tables), self.model(self.log.len() as u64));
        self.note(store);
    }

    fn inject_faults(&mut self, power: &Powered) {
        let die = &self.die;
        match die.below(6) {
            0 => {}
            1..4 => power.cut_after(die.below(80)),
            4 => {
                let rate = || die.pick(&[0.0, 0.05, 0.2]);
                self.sim.set_fault_rates(FaultRates { read: 0.0, write: rate(), sync: rate() });
            }
            _ => {
                use Operation::*;
                let operation = die.pick(&[Write, Sync, SyncDir, Rename, Create, Remove, SetLen]);
                let error = if die.one_in(2) { disk_error() } else { disk_full() };
                self.sim.fail_next(operation, die.pick(&["fragments", "manifest", ""]), error);
            }
        }
    }

    fn step(&mut self, store: &Store, tables: [TableId; 2]) {
        if self.tablets > 1 && self.die.one_in(10) {
            let (table, at) = (self.die.pick(&tables), self.die.below(ROWS).to_be_bytes());
            drop(
                store
                    .split(table, &at)
                    .and_then(|is_new| if is_new { Ok(()) } else { store.join(table, &at) }),
            );
            return self.note(store);
        }
        match self.die.below(100) {
            0..75 => self.apply(store, tables),
            75..85 => {
                let outcome = store.flush(tables[0]);
                self.tally.failed_flushes += u64::from(outcome.is_err());
            }
            85..90 => drop(store.compact(self.die.pick(&tables))),
            90..96 => drop(store.step()),
            _ => {
                let at = store.applied_index();
                assert_eq!(at, self.log.len() as u64);
                assert_eq!(contents(store, tables), self.model(at));
            }
        }
        self.note(store);
    }

    /// Appends to the log before applying to the store. If the store refuses, the entry
    /// stays in the log and the same index is applied again.
    fn apply(&mut self, store: &Store, tables: [TableId; 2]) {
        let next = store.applied_index() + 1;
        if next > self.log.len() as u64 {
            let changes = self.random_changes();
            self.log.push(changes);
        }
        match store.apply_at(&self.commit(tables, next), next) {
            Ok(_) => {
                assert_eq!(store.applied_index(), next);
                self.tally.commits += 1;
            }
            Err(_) => {
                assert_eq!(store.applied_index(), next - 1, "a refused commit left something");
                self.log.truncate(next as usize - 1);
            }
        }
    }

    /// Checks that the flushed index never decreases.
    fn note(&mut self, store: &Store) {
        assert!(store.flushed_index() >= self.flushed);
        self.flushed = store.flushed_index();
    }

    fn random_changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        for table in 0..TABLES.len() {
            for row in 0..ROWS {
                match self.die.below(12) {
                    0..2 => {
                        let family = self.die.below(2) as usize;
                        changes.push(Change::Set { table, row, family });
                    }
                    2 => changes.push(Change::DeleteRow { table, row }),
                    _ => {}
                }
            }
        }
        changes
    }

    /// Returns the commit of an entry. An entry may have no changes: its index still
    /// counts.
    fn commit(&self, tables: [TableId; 2], index: u64) -> Commit {
        let mut commit = CommitBuilder::new();
        let mut open = None;
        for change in &self.log[index as usize - 1] {
            let (Change::Set { table, row, .. } | Change::DeleteRow { table, row }) = change;
            if open != Some(*table) {
                commit.table(tables[*table]);
                open = Some(*table);
            }
            commit.row(&row.to_be_bytes());
            match change {
                Change::Set { family, .. } => {
                    commit.set(FAMILIES[*family], b"", index as i64, &value(index))
                }
                Change::DeleteRow { .. } => commit.delete_row(),
            };
        }
        commit.finish()
    }

    /// Returns the state after the first `index` entries of the log.
    fn model(&self, index: u64) -> Cells {
        let mut cells = Cells::new();
        for (index, changes) in (1..=index).zip(&self.log) {
            for change in changes {
                match change {
                    Change::Set { table, row, family } => {
                        let (row, family) =
                            (row.to_be_bytes().to_vec(), FAMILIES[*family].to_vec());
                        cells.insert((*table, row, family, index as i64), value(index));
                    }
                    Change::DeleteRow { table, row } => {
                        cells.retain(|(t, r, _, _), _| t != table || **r != row.to_be_bytes());
                    }
                }
            }
        }
        cells
    }
}

fn value(index: u64) -> Vec<u8> {
    index.to_string().repeat(20).into_bytes()
}

fn contents(store: &Store, tables: [TableId; 2]) -> Cells {
    let mut cells = Cells::new();
    for (at, table) in tables.into_iter().enumerate() {
        store
            .read(table, ScanSpec::default(), |cell| {
                let key = (at, cell.row.to_vec(), cell.family.to_vec(), cell.timestamp);
                cells.insert(key, cell.value.to_vec());
            })
            .unwrap();
    }
    cells
}
