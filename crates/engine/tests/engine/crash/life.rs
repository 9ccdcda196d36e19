//! A store that crashes repeatedly on one simulated machine, and the invariants after
//! each recovery.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::config::{RowFaults, SimRows};
use stele_engine::schema::{Compression, Family, Group, Schema};
use stele_engine::world::sim::{
    FaultRates, ObjectFaults, Operation, SimFiles, SimObjects, disk_error, disk_full,
};
use stele_engine::*;

use super::history::{AppliedCommit, Cells, Contents, FAMILIES, random_row, read_table};
use crate::support::die::Die;
use crate::support::power::Powered;
use crate::support::unsure::open_unsure;

pub const DIR: &str = "/store";
const TABLES_MAX: usize = 4;

tally! {
    lives: "lives",
    commits: "commits",
    lost_commits: "lost commits",
    flushes: "flushes",
    compactions: "compactions",
    interrupted_compactions: "interrupted compactions",
    died_while_opening: "crashes while opening",
    stopped: "stopped logs",
    refused_when_full: "commits refused by a full disk",
    resumed_after_full: "stores that resumed after a full disk",
    splits: "splits",
    joins: "joins",
    regroups: "changes of groups",
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Everything not synced may be lost.
    Power,
    /// Everything written remains.
    Kill,
    Close,
}

/// The faults during a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faults {
    None,
    /// The power fails after some changes to files.
    Cut,
    /// Operations fail at random.
    Rates,
    /// One operation fails.
    Once,
    /// The disk becomes full and later has free space again.
    Full,
    /// Requests to the object store fail at random.
    Objects,
    /// The object store can no longer be reached after some requests.
    ObjectsCut,
}

pub struct Survivor {
    /// Number of tablets of a new table; if there are several, they are split and
    /// joined.
    tablets: usize,
    /// How often changes of tablets get lost.
    rates: RowFaults,
    die: Die,
    sim: SimFiles,
    /// Where the fragments are, if not in the directory.
    objects: Option<SimObjects>,
    names: u64,
    sequence: u64,
    tables: BTreeMap<TableId, String>,
    /// Names of tables whose creation failed, and ids whose removal failed: either may
    /// have taken effect.
    maybe_created: Vec<String>,
    maybe_dropped: Vec<TableId>,
    /// The contents when the store was opened, and the commits since.
    base: Contents,
    applied: Vec<AppliedCommit>,
    /// How many of `applied` must survive a power failure or a kill, respectively.
    durable: usize,
    written: usize,
    newest: Txn,
    stopped: bool,
    end: End,
    /// Number of changes of tablets whose outcome was unknown.
    pub unknown: u64,
    pub tally: Tally,
}

impl Survivor {
    pub fn new(seed: u64, tablets: usize, rates: RowFaults) -> Survivor {
        Survivor {
            tablets,
            rates,
            die: Die::new(seed),
            sim: SimFiles::new(seed),
            objects: None,
            names: 0,
            sequence: 0,
            tables: BTreeMap::new(),
            maybe_created: Vec::new(),
            maybe_dropped: Vec::new(),
            base: Contents::new(),
            applied: Vec::new(),
            durable: 0,
            written: 0,
            newest: Txn::ZERO,
            stopped: false,
            end: End::Close,
            unknown: 0,
            tally: Tally::default(),
        }
    }

    /// Keeps the fragments in an object store.
    pub fn with_objects(seed: u64, tablets: usize, rates: RowFaults) -> Survivor {
        let objects = Some(SimObjects::new(seed));
        Survivor { objects, ..Survivor::new(seed, tablets, rates) }
    }

    /// Checks that collections delete everything that no config names, and nothing else.
    pub fn check_collected(&mut self) {
        let (store, _, _) = self.reopen();
        self.check(&store);
        for _ in 0..3 {
            store.collect(false).unwrap().unwrap();
        }
        let named: BTreeSet<_> = store.configs().unwrap().files().map(|file| file.name).collect();
        let objects = self.objects.as_ref().expect("the fragments are in an object store");
        assert_eq!(objects.files().into_keys().collect::<BTreeSet<_>>(), named);
        self.base = Contents::new();
        for &table in self.tables.keys() {
            let (cells, _) = read_table(&store, table, View::Durable).expect("a table reads");
            self.base.insert(table, cells);
        }
        self.newest = store.progress().1;
        self.end_life(store, &Powered::new(self.sim.clone()));
    }

    /// Runs one life: recover, check, run random steps, crash.
    pub fn live(&mut self) {
        let (store, power, rows) = self.reopen();
        self.tally.interrupted_compactions += u64::from(has_interrupted_compaction(&store));
        self.check(&store);
        let faults = self.inject_faults(&power);
        if faults == Faults::Full {
            // A change that is half applied and cannot be completed stops the store, and
            // no space would revive it.
            rows.set_rates(RowFaults::default());
        }
        let steps = 5 + self.die.below(60);
        let relief = self.die.below(steps);
        for step in 0..steps {
            if faults == Faults::Full && step == relief {
                self.relieve(&store);
            }
            self.step(&store, faults);
            if power.is_out() || self.objects.as_ref().is_some_and(SimObjects::is_cut) {
                break;
            }
        }
        self.sim.set_fault_rates(FaultRates::default());
        self.sim.set_capacity(None);
        self.tally.lives += 1;
        self.tally.flushes += store.stats().flushes;
        self.tally.compactions += store.stats().compactions;
        self.tally.stopped += u64::from(self.stopped);
        self.unknown += rows.counts().lost + rows.counts().answers_lost;
        self.end_life(store, &power);
    }

    fn end_life(&mut self, store: Store, power: &Powered) {
        self.end = self.die.pick(&[End::Power, End::Power, End::Kill, End::Close]);
        if self.end == End::Close {
            if store.close().is_ok() && !power.is_out() {
                self.durable = self.applied.len();
                self.written = self.applied.len();
            }
            self.end = End::Power;
        } else {
            power.cut_after(0);
            drop(store);
        }
        self.restart();
    }

    fn restart(&mut self) {
        self.sim = match self.end {
            End::Kill => self.sim.crash_keeping_writes(),
            _ => self.sim.crash(),
        };
        self.objects.iter().for_each(SimObjects::reconnect);
    }

    /// Opens the store; it may crash several times while opening.
    fn reopen(&mut self) -> (Store, Powered, Arc<SimRows>) {
        let mut lost_power = self.end != End::Kill;
        let mut deaths = 0;
        loop {
            let power = Powered::new(self.sim.clone());
            let dies = deaths < 3 && self.die.one_in(2);
            if dies {
                power.cut_after(self.die.below(40));
            }
            let seed = self.die.below(1 << 40);
            let (dir, world) = (Path::new(DIR), power.world(seed));
            match open_unsure(dir, self.options(), world, seed, self.rates) {
                Ok((store, rows)) if !power.is_out() => {
                    power.cut_after(i64::MAX as u64);
                    if lost_power {
                        self.written = self.durable;
                    }
                    return (store, power, rows);
                }
                Ok(opened) => drop(opened),
                Err(error) => assert!(dies, "the store does not open: {error}"),
            }
            deaths += 1;
            self.tally.died_while_opening += 1;
            self.end = self.die.pick(&[End::Power, End::Kill]);
            lost_power |= self.end == End::Power;
            self.restart();
        }
    }

    fn options(&self) -> Options {
        let die = &self.die;
        let mut options = Options::default();
        options.log.segment_bytes = die.pick(&[1 << 10, 4 << 10, 32 << 10]);
        options.log.record_bytes_max = die.pick(&[200, 1000, 1 << 20]);
        options.log.recycle_max = die.below(3) as usize;
        options.memory.budget_bytes = die.pick(&[64 << 10, 256 << 10, 4 << 20]);
        options.memory.cache_bytes = die.pick(&[0, 1 << 20]);
        options.memory.generation_commits_max = die.pick(&[7, u32::MAX]);
        options.flush.fragment_bytes = die.pick(&[6 << 10, 20 << 10, 64 << 20]);
        options.flush.replay_bytes_max = die.pick(&[8 << 10, 1 << 30]);
        options.compact.chain_min = 2 + die.below(3) as usize;
        options.compact.chain_max = 6;
        options.compact.output_bytes = die.pick(&[1, 1000, 8 << 10, 256 << 20]);
        options.snapshot_age_max = SnapshotAge(Duration::from_secs(30));
        if let Some(objects) = &self.objects {
            objects.set_hit_rate(die.pick(&[0.0, 0.5, 1.0]));
            options.objects.store = Some(Arc::new(objects.clone()));
        }
        options
    }

    fn inject_faults(&mut self, power: &Powered) -> Faults {
        let objects = self.objects.is_some() && self.die.one_in(2);
        let of_objects = [Faults::Objects, Faults::ObjectsCut, Faults::ObjectsCut];
        let faults = if objects {
            self.die.pick(&of_objects)
        } else {
            self.die.pick(&[
                Faults::None,
                Faults::Cut,
                Faults::Cut,
                Faults::Cut,
                Faults::Rates,
                Faults::Once,
                Faults::Full,
            ])
        };
        let die = &self.die;
        match faults {
            Faults::None => {}
            Faults::Cut => power.cut_after(die.below(150)),
            Faults::Rates => {
                let rate = || die.pick(&[0.0, 0.0, 0.02, 0.1]);
                let rates = FaultRates { read: rate(), write: rate(), sync: rate() };
                self.sim.set_fault_rates(rates);
            }
            Faults::Once => {
                use Operation::*;
                let operation =
                    die.pick(&[Write, Sync, SyncDir, Rename, Create, Remove, SetLen, Read]);
                let place = die.pick(&["log", "fragments", "manifest", ""]);
                let error = if die.one_in(2) { disk_error() } else { disk_full() };
                self.sim.fail_next(operation, place, error);
            }
            Faults::Objects => {
                let rate = || die.pick(&[0.0, 0.1, 0.5]);
                let faults = ObjectFaults {
                    put: rate(),
                    applied_put: rate(),
                    late_put: rate(),
                    get: die.pick(&[0.0, 0.05]),
                    list: rate(),
                    delete: rate(),
                };
                self.objects.iter().for_each(|objects| objects.set_faults(faults));
            }
            Faults::ObjectsCut => {
                let (after, applied) = (die.below(12), die.one_in(2));
                self.objects.iter().for_each(|objects| objects.cut_after(after, applied));
            }
            Faults::Full => {
                let used: usize = self.sim.files().values().map(Vec::len).sum();
                self.sim.set_capacity(Some(used as u64 + die.below(30 << 10)));
            }
        }
        faults
    }

    /// Frees disk space; the store resumes by itself.
    fn relieve(&mut self, store: &Store) {
        self.sim.set_capacity(None);
        if let Err(error) = self.commit(store, Durability::Durable) {
            panic!("the disk has space again: {error}");
        }
        self.tally.resumed_after_full += 1;
    }

    fn step(&mut self, store: &Store, faults: Faults) {
        let all: Vec<TableId> = self.tables.keys().copied().collect();
        let splits = self.tablets > 1 && self.die.one_in(12);
        let outcome = match self.die.below(100) {
            _ if all.is_empty() => self.create(store),
            _ if splits => self.split_or_join(store, self.die.pick(&all)),
            0..62 => {
                let durability = self.die.pick(&[
                    Durability::Accepted,
                    Durability::Written,
                    Durability::Durable,
                ]);
                self.commit(store, durability)
            }
            62..72 => self.read(store, View::Durable),
            72..76 => self.read(store, View::Latest),
            76..82 => store.flush(self.die.pick(&all)),
            82..86 => store.compact(self.die.pick(&all)),
            86..94 => store.step().map(|_| ()),
            94 => store.sync(Txn::MAX).map(|_| ()),
            95 => store.collect(self.die.one_in(4)).map(|_| ()),
            96..98 if all.len() < TABLES_MAX => self.create(store),
            98 if all.len() > 1 => self.drop_table(store),
            98 | 99 => self.regroup(store, self.die.pick(&all)),
            _ => Ok(()),
        };
        if let Err(error) = outcome {
            assert!(faults != Faults::None, "without any fault: {error}");
        }
        self.note_durable(store);
    }

    /// Whatever is reported durable may have been read, so it must survive.
    fn note_durable(&mut self, store: &Store) {
        let durable = store.progress().0;
        let count = self.applied.partition_point(|applied| applied.txn <= durable);
        assert!(count >= self.durable, "a durable commit was lost");
        if self.stopped {
            assert_eq!(count, self.durable, "something became durable after the log failed");
        }
        self.durable = count;
        self.written = self.written.max(count);
    }

    fn commit(&mut self, store: &Store, durability: Durability) -> Result<()> {
        let all: Vec<TableId> = self.tables.keys().copied().collect();
        if all.is_empty() {
            return Ok(());
        }
        let mut applied = AppliedCommit::random(&self.die, self.sequence, &all);
        let before = store.progress().1;
        let outcome = store.apply(&applied.commit(), Txn::MAX, durability);
        let after = store.progress().1;
        let entered = after > before;
        if entered {
            applied.txn = after;
            self.applied.push(applied);
            self.newest = after;
            self.sequence += 1;
            self.tally.commits += 1;
        }
        self.note_durable(store);
        match &outcome {
            Ok(txn) => {
                assert!(!self.stopped, "a commit was taken after the log had failed");
                assert!(entered && *txn == after);
                if durability == Durability::Durable {
                    self.durable = self.applied.len();
                }
                if durability != Durability::Accepted {
                    self.written = self.applied.len();
                }
            }
            Err(Error::DiskFull { .. }) => {
                assert!(!entered, "a refused commit was taken");
                self.tally.refused_when_full += 1;
            }
            Err(_) => self.stopped |= entered,
        }
        outcome.map(|_| ())
    }

    /// A reader sees exactly the commits up to its snapshot, even after the log has
    /// failed.
    fn read(&mut self, store: &Store, view: View) -> Result<()> {
        let all: Vec<TableId> = self.tables.keys().copied().collect();
        let table = self.die.pick(&all);
        let (found, txn) = read_table(store, table, view)?;
        let count = self.applied.partition_point(|applied| applied.txn <= txn);
        let expected = self.contents_after(count).remove(&table).unwrap_or_default();
        assert_same(&found, &expected, || format!("table {} at {txn}", table.0));
        Ok(())
    }

    fn create(&mut self, store: &Store) -> Result<()> {
        let name = format!("t{}", self.names);
        self.names += 1;
        let mut rows: Vec<Vec<u8>> = (1..self.tablets).map(|_| random_row(&self.die)).collect();
        rows.sort();
        rows.dedup();
        let created = store.create_table_with_splits(&name, schema(&self.die), rows);
        match created {
            Ok(table) => {
                self.tables.insert(table, name);
                self.base.insert(table, Cells::new());
                Ok(())
            }
            Err(error) => {
                self.maybe_created.push(name);
                Err(error)
            }
        }
    }

    fn split_or_join(&mut self, store: &Store, table: TableId) -> Result<()> {
        let tablets = store.tablets(table)?;
        if tablets.len() > 1 && self.die.one_in(2) {
            let upper = 1 + self.die.below(tablets.len() as u64 - 1) as usize;
            store.join(table, &tablets[upper].rows.start)?;
            self.tally.joins += 1;
        } else if store.split(table, &random_row(&self.die))? {
            self.tally.splits += 1;
        }
        Ok(())
    }

    /// Moves families between groups.
    fn regroup(&mut self, store: &Store, table: TableId) -> Result<()> {
        let [cold, hot] = FAMILIES.map(Family::new);
        let groups = match self.die.below(4) {
            0 => vec![Group::new("all", [cold, hot])],
            1 => vec![Group { wildcard: true, ..Group::new("all", []) }],
            2 => vec![
                Group::new("hot", [hot]),
                Group { wildcard: true, in_memory: true, ..Group::new("rest", []) },
            ],
            _ => vec![Group::new("cold", [cold]), Group::new("hot", [hot])],
        };
        store.alter_table(table, Schema::new(groups).expect("a sound schema"))?;
        self.tally.regroups += 1;
        Ok(())
    }

    fn drop_table(&mut self, store: &Store) -> Result<()> {
        let all: Vec<TableId> = self.tables.keys().copied().collect();
        let table = self.die.pick(&all);
        match store.drop_table(table) {
            Ok(()) => {
                self.tables.remove(&table);
                self.base.remove(&table);
                Ok(())
            }
            Err(error) => {
                self.maybe_dropped.push(table);
                Err(error)
            }
        }
    }

    fn contents_after(&self, count: usize) -> Contents {
        let mut contents = self.base.clone();
        self.applied[..count].iter().for_each(|applied| applied.apply(&mut contents));
        contents
    }

    /// Checks that the store contains exactly a prefix of the commits, the same for all
    /// tables, and no fewer than acknowledged.
    fn check(&mut self, store: &Store) {
        self.check_tables(store);
        let mut found = Contents::new();
        for &table in self.tables.keys() {
            let (cells, txn) = read_table(store, table, View::Durable).expect("a table reads");
            assert!(txn > self.newest, "txn {txn} after {}", self.newest);
            found.insert(table, cells);
        }
        let mut contents = self.contents_after(self.written);
        let mut count = self.written;
        while contents != found {
            if count == self.applied.len() {
                self.explain(&found);
            }
            self.applied[count].apply(&mut contents);
            count += 1;
        }
        self.tally.lost_commits += (self.applied.len() - count) as u64;
        self.base = found;
        self.applied.clear();
        (self.durable, self.written, self.stopped) = (0, 0, false);
        self.newest = store.progress().1;
    }

    fn check_tables(&mut self, store: &Store) {
        let there: BTreeMap<TableId, String> = store.tables().into_iter().collect();
        for (id, name) in &there {
            if !self.tables.contains_key(id) {
                assert!(self.maybe_created.contains(name), "table {name} came from nowhere");
                self.tables.insert(*id, name.clone());
                self.base.insert(*id, Cells::new());
            }
        }
        let maybe_dropped = &self.maybe_dropped;
        self.tables.retain(|id, name| {
            let kept = there.contains_key(id);
            assert!(kept || maybe_dropped.contains(id), "table {name} is lost");
            kept
        });
        self.base.retain(|id, _| there.contains_key(id));
        self.maybe_created.clear();
        self.maybe_dropped.clear();
    }

    fn explain(&self, found: &Contents) -> ! {
        let (first, last) = (self.written, self.applied.len());
        for count in first..=last {
            let contents = self.contents_after(count);
            for (table, cells) in found {
                let what = difference(cells, &contents[table]);
                eprintln!("after {count} of {last} commits, table {}: {what}", table.0);
            }
        }
        panic!("the store holds no prefix of its commits with {first} to {last} of them");
    }
}

/// Returns whether a compaction was interrupted.
fn has_interrupted_compaction(store: &Store) -> bool {
    let configs = store.configs().expect("a store has configs");
    configs.files().any(|file| file.unit != 0)
}

fn schema(die: &Die) -> Schema {
    let group = |name: &[u8]| {
        let mut group = Group::new(String::from_utf8_lossy(name), [Family::new(name)]);
        group.compression = die.pick(&[Compression::None, Compression::Lz4, Compression::Zstd]);
        group.block_bytes = die.pick(&[None, Some(1024)]);
        group
    };
    Schema::new(FAMILIES.map(group).into()).expect("a sound schema")
}

fn assert_same(found: &Cells, expected: &Cells, what: impl Fn() -> String) {
    if found != expected {
        panic!("{}: {}", what(), difference(found, expected));
    }
}

fn difference(found: &Cells, expected: &Cells) -> String {
    let show = |(row, family, qualifier): &(Vec<u8>, Vec<u8>, Vec<u8>)| {
        [row, family, qualifier].map(|part| String::from_utf8_lossy(part).into_owned()).join("/")
    };
    let head = |value: Option<&Vec<u8>>| value.map(|value| value[..value.len().min(8)].to_vec());
    let keys = found.keys().chain(expected.keys().filter(|key| !found.contains_key(*key)));
    let differing: Vec<String> = keys
        .filter(|&key| found.get(key) != expected.get(key))
        .take(4)
        .map(|key| {
            let (found, expected) = (head(found.get(key)), head(expected.get(key)));
            format!("{} is {found:?}, not {expected:?}", show(key))
        })
        .collect();
    if differing.is_empty() { "as expected".to_string() } else { differing.join("; ") }
}
