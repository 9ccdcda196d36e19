//! One run: a store and a model driven through the same random steps.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::config::{RowFaults, SimRows};
use stele_engine::world::sim::{SimFiles, SimObjects};
use stele_engine::world::{Clock, ManualClock, SeededRandom, World};
use stele_engine::*;

use super::chance::Chance;
use super::history::{APPEND, Append, Changes, TableHistory};
use super::interrupt::interrupt_compaction;
use super::policy;
use super::scans::ScanCheck;
use super::tally::Tally;
use crate::support::unsure::{UNSURE, open_unsure};

const START_MICROS: i64 = 100_000;
pub(super) const SNAPSHOT_AGE_MAX: Duration = Duration::from_micros(400);
const MANY_SLOTS: usize = 1 << 16;

pub struct Run {
    seed: u64,
    step: usize,
    /// The most recent steps, printed on failure.
    recent_steps: Vec<String>,
    pub(super) chance: Chance,
    pub files: SimFiles,
    pub(super) clock: Arc<ManualClock>,
    options: Options,
    /// Whether tablets are split and joined.
    splits: bool,
    /// Whether changes of tablets get lost.
    unsure: bool,
    store: Option<Store>,
    rows: Option<Arc<SimRows>>,
    /// Number of changes of tablets whose outcome was unknown.
    pub unknown: u64,
    pub(super) tables: Vec<TableHistory>,
    /// The last txn before the store was opened.
    floor: Txn,
    /// Txns that readers may still use.
    seen: Vec<Txn>,
    pub(super) snapshots: Vec<HeldSnapshot>,
    pub(super) scans: Vec<(Scan, ScanCheck)>,
    pub tally: Tally,
}

/// A snapshot and the time it was taken.
#[derive(Clone)]
pub(super) struct HeldSnapshot {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) since: Duration,
}

/// Small limits everywhere, so that all events are frequent.
fn options(chance: &Chance) -> Options {
    let mut options = Options::default();
    options.log.segment_bytes = 4 << 10;
    options.log.record_bytes_max = chance.pick(&[256, 1 << 20]);
    options.log.recycle_max = 2;
    options.flush.fragment_bytes = chance.pick(&[6 << 10, 12 << 10, 1 << 20]);
    options.flush.age_max = Duration::from_micros(200);
    options.flush.replay_bytes_max = 32 << 10;
    options.compact.chain_min = 2 + chance.below(3);
    options.compact.chain_max = 4 + chance.below(3);
    options.compact.output_bytes = chance.pick(&[1, 700, 2 << 10, 256 << 20]);
    options.memory.budget_bytes = chance.pick(&[40 << 10, 1 << 20]);
    options.memory.cache_bytes = chance.pick(&[4 << 10, 1 << 20]);
    options.memory.log_queue_bytes_max = 8 << 10;
    options.memory.conflict_slots = chance.pick(&[4, MANY_SLOTS]);
    options.memory.generation_commits_max = chance.pick(&[7, 100, u32::MAX]);
    options.folds.register(APPEND, Arc::new(Append));
    options.snapshot_age_max = SnapshotAge(SNAPSHOT_AGE_MAX);
    options
}

impl Run {
    /// Starts with tables of `tablets` tablets each; if there are several, they are
    /// split and joined all the time.
    pub fn new(seed: u64, tablets: usize) -> Run {
        Run::start(seed, tablets, false)
    }

    /// Like `new`, but changes of tablets get lost, arrive late or twice, or remain
    /// without an answer.
    pub fn unsure(seed: u64, tablets: usize) -> Run {
        Run::start(seed, tablets, true)
    }

    /// Like `new`, but the fragments are in an object store, and every read misses.
    pub fn with_objects(seed: u64, tablets: usize) -> Run {
        Run::start_with(seed, tablets, false, Some(SimObjects::new(seed)))
    }

    fn start(seed: u64, tablets: usize, unsure: bool) -> Run {
        Run::start_with(seed, tablets, unsure, None)
    }

    fn start_with(seed: u64, tablets: usize, unsure: bool, objects: Option<SimObjects>) -> Run {
        let chance = Chance::new(seed);
        let mut options = options(&chance);
        options.objects.store = objects.map(|objects| Arc::new(objects) as _);
        let mut run = Run {
            seed,
            step: 0,
            recent_steps: Vec::new(),
            files: SimFiles::new(seed),
            clock: Arc::new(ManualClock::at(START_MICROS)),
            options,
            chance,
            splits: tablets > 1,
            unsure,
            rows: None,
            unknown: 0,
            store: None,
            tables: Vec::new(),
            floor: Txn::ZERO,
            seen: vec![Txn::ZERO],
            snapshots: Vec::new(),
            scans: Vec::new(),
            tally: Tally::default(),
        };
        run.open();
        for number in 0..3 {
            let schema = run.chance.schema(1 + number % 3, run.now());
            let (name, rows) = (format!("t{number}"), run.chance.split_rows(tablets - 1));
            let id = run.store().create_table_with_splits(&name, schema.clone(), rows).unwrap();
            run.tables.push(TableHistory::new(id, Arc::new(schema)));
        }
        run
    }

    pub(super) fn store(&self) -> &Store {
        self.store.as_ref().expect("the store is open")
    }

    pub(super) fn now(&self) -> i64 {
        self.clock.now_micros()
    }

    pub(super) fn record_step(&mut self, what: impl Into<String>) {
        const RECENT_STEPS_MAX: usize = 30;
        if self.recent_steps.len() == RECENT_STEPS_MAX {
            self.recent_steps.remove(0);
        }
        self.recent_steps.push(format!("step {}: {}", self.step, what.into()));
    }

    fn open(&mut self) {
        let world = World {
            clock: self.clock.clone(),
            files: Arc::new(self.files.clone()),
            random: Arc::new(SeededRandom::new(self.seed ^ self.step as u64)),
            spawner: None,
        };
        let (dir, options) = (Path::new("/store"), self.options.clone());
        let rates = if self.unsure { UNSURE } else { RowFaults::default() };
        let opened = open_unsure(dir, options, world, self.seed ^ self.step as u64, rates);
        let (store, rows) = opened.unwrap();
        (self.store, self.rows) = (Some(store), Some(rows));
        let (durable, latest) = self.store().progress();
        assert_eq!(durable, latest, "all that an open finds is durable");
        assert!(self.tables.iter().all(|table| table.newest < durable), "txns only rise");
        self.floor = durable;
    }

    /// Drives store and model through random steps, and compares everything at the end.
    pub fn steps(&mut self, count: usize) {
        self.repeat(count, Run::any_step);
    }

    /// Like `steps`, with steps of the caller's choice.
    pub(super) fn repeat(&mut self, count: usize, step: impl Fn(&mut Run)) {
        for _ in 0..count {
            self.step += 1;
            step(self);
            if self.step.is_multiple_of(100) {
                self.store().collect(false).unwrap();
            }
        }
        self.reopen();
        self.load_all();
        for table in 0..self.tables.len() {
            self.read_all(table);
        }
    }

    pub(super) fn any_step(&mut self) {
        if self.splits && self.chance.percent(4) {
            return if self.chance.percent(75) {
                self.split_or_join()
            } else {
                self.load_or_unload()
            };
        }
        match self.chance.below(1000) {
            0..370 => self.commit(Txn::MAX),
            370..400 => self.merge_often(),
            400..480 => {
                let most = self.chance.pick(&self.seen);
                self.commit(most);
            }
            480..490 => self.bad_commit(),
            490..600 => self.read(),
            600..650 => self.open_scan(),
            650..850 => self.continue_scan(),
            850..870 => drop(self.store().sync(Txn::MAX).unwrap()),
            870..900 => self.flush(),
            900..915 => self.compact(),
            915..955 => drop(self.store().step().unwrap()),
            955..975 => self.snapshot(),
            975..988 => self.move_clock(),
            988..994 => self.alter(),
            _ => self.reopen(),
        }
    }

    fn commit(&mut self, most: Txn) {
        let mut all: Vec<(usize, Changes)> = Vec::new();
        for table in 0..self.tables.len() {
            if self.chance.percent(50) {
                let schema = &self.tables[table].schema;
                all.push((table, self.chance.changes(schema, self.now())));
            }
        }
        let described: Vec<String> =
            all.iter().map(|(t, changes)| format!("t{t} {changes}")).collect();
        self.record_step(format!("commit at most {most}: {}", described.join("; ")));
        self.apply(all, most);
    }

    /// Applies several consecutive commits that merge into the same cells.
    fn merge_often(&mut self) {
        let table = self.chance.below(self.tables.len());
        let cells = self.chance.merges(&self.tables[table].schema, self.now());
        self.record_step(format!("merge often into t{table} {cells}"));
        for _ in 0..2 + self.chance.below(3) {
            self.apply(vec![(table, cells.clone())], Txn::MAX);
        }
    }

    pub(super) fn apply(&mut self, all: Vec<(usize, Changes)>, most: Txn) {
        let mut builder = CommitBuilder::new();
        for (table, changes) in &all {
            builder.table(self.tables[*table].id);
            for range in &changes.ranges {
                builder.delete_range(range);
            }
            for (row, ops) in &changes.rows {
                builder.row(row);
                ops.iter().for_each(|op| op.push(&mut builder));
            }
        }
        let wait = self.chance.pick(&[
            Durability::Accepted,
            Durability::Accepted,
            Durability::Written,
            Durability::Durable,
        ]);
        match self.store().apply(&builder.finish(), most, wait) {
            Ok(txn) => {
                assert!(!self.is_refused(&all), "a row of it is not loaded");
                self.committed(txn, most, &all);
            }
            Err(Error::TabletNotLoaded(_)) => {
                self.tally.not_loaded += 1;
                assert!(self.is_refused(&all), "all its rows are loaded");
            }
            Err(error @ Error::MutationConflict { .. }) => {
                self.tally.conflicts += 1;
                let exact = self.options.memory.conflict_slots == MANY_SLOTS;
                // A join lets the load of one tablet count for both.
                let loads = all.iter().map(|(table, _)| self.tables[*table].loads.newest()).max();
                let loads = loads.unwrap_or(Txn::ZERO);
                assert!(most < self.newest().max(loads), "nothing is newer than {most}: {error}");
                let newest = self.newest_of(&all).max(loads);
                assert!(!exact || newest > most, "no row of it is newer than {most}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn is_refused(&self, all: &[(usize, Changes)]) -> bool {
        all.iter().any(|(table, changes)| self.tables[*table].loads.refuse(changes))
    }

    fn committed(&mut self, txn: Txn, most: Txn, all: &[(usize, Changes)]) {
        assert!(txn > self.newest(), "{txn} is not above {}", self.newest());
        let newest = self.newest_of(all);
        assert!(newest <= most, "a row was written at {newest}, after {most}");
        let now = self.now();
        for (table, changes) in all {
            self.tables[*table].apply(txn, changes, now);
        }
        assert_eq!(self.store().progress().1, txn);
        self.tally.commits += 1;
        self.saw(txn);
    }

    /// Returns the newest commit of any touched row, as exact conflict detection would
    /// know it.
    fn newest_of(&self, all: &[(usize, Changes)]) -> Txn {
        let mut newest = Txn::ZERO;
        for (table, changes) in all {
            let table = &self.tables[*table];
            for row in changes.rows.keys() {
                newest = newest.max(table.loads.newest_of(row));
                let row = table.rows.get(row).map_or(Txn::ZERO, |history| history.newest);
                newest = newest.max(row).max(table.range_deleted).max(self.floor);
            }
            if !changes.ranges.is_empty() {
                newest = newest.max(table.newest).max(table.loads.newest()).max(self.floor);
            }
        }
        newest
    }

    pub(super) fn newest(&self) -> Txn {
        self.tables.iter().map(|table| table.newest).max().unwrap_or(Txn::ZERO).max(self.floor)
    }

    pub(super) fn saw(&mut self, txn: Txn) {
        const SEEN_MAX: usize = 12;
        if self.seen.len() == SEEN_MAX {
            self.seen.remove(0);
        }
        self.seen.push(txn);
    }

    /// Applies a commit that must be refused as a whole.
    fn bad_commit(&mut self) {
        let table = &self.tables[self.chance.below(self.tables.len())];
        let family = self.chance.family(&table.schema);
        let wildcard = table.schema.groups().iter().any(|group| group.wildcard);
        let mut builder = CommitBuilder::new();
        builder.table(table.id).row(b"m").set(&family, b"q", 1, b"never");
        let kind = self.chance.below(4);
        match kind {
            0 => builder.row(b"a").set(&family, b"q", 1, b"never"),
            1 => builder.row(b"n").set(b"unknown", b"q", 1, b"never"),
            2 => builder.row(b"n").merge(FoldId::SUM, &family, b"q", 1, b"never"),
            _ => builder.table(TableId(99)).row(b"n").set(&family, b"q", 1, b"never"),
        };
        if kind == 1 && wildcard {
            return;
        }
        let error =
            self.store().apply(&builder.finish(), Txn::MAX, Durability::Durable).unwrap_err();
        if let Error::TabletNotLoaded(_) = &error {
            assert!(table.loads.any_unloaded());
            return;
        }
        assert!(match kind {
            0 => matches!(error, Error::CellDisorder(_)),
            1 => matches!(error, Error::UnknownColumnFamily { .. }),
            2 => matches!(error, Error::InvalidMutation(_)),
            _ => matches!(error, Error::UnknownTable(_)),
        });
    }

    fn flush(&mut self) {
        self.record_step("flush");
        let table = self.chance.pick(&self.ids());
        self.store().flush(table).unwrap();
    }

    fn compact(&mut self) {
        let table = self.chance.pick(&self.ids());
        if self.chance.percent(60) {
            self.record_step("interrupt a compaction");
            self.tally.interrupted_compactions +=
                u64::from(interrupt_compaction(self.store(), &self.files, table));
        } else {
            self.record_step("compact");
            self.store().compact(table).unwrap();
        }
    }

    pub(super) fn ids(&self) -> Vec<TableId> {
        self.tables.iter().map(|table| table.id).collect()
    }

    /// Takes or drops a snapshot.
    pub(super) fn snapshot(&mut self) {
        const SNAPSHOTS_MAX: usize = 4;
        self.record_step("take or drop a snapshot");
        if self.snapshots.len() == SNAPSHOTS_MAX || self.chance.percent(40) {
            if !self.snapshots.is_empty() {
                self.snapshots.swap_remove(self.chance.below(self.snapshots.len()));
            }
            return;
        }
        let held = HeldSnapshot { snapshot: self.store().snapshot(), since: self.clock.elapsed() };
        assert_eq!(held.snapshot.txn(), self.store().progress().0);
        self.snapshots.push(held);
    }

    fn move_clock(&mut self) {
        let micros = if self.chance.percent(15) { 500 } else { self.chance.below(30) as u64 };
        self.record_step(format!("the clock moves by {micros}"));
        self.clock.advance(Duration::from_micros(micros));
        let now = self.now();
        for table in &mut self.tables {
            if table.schema_ages() {
                table.note_purges(now);
            }
        }
    }

    fn alter(&mut self) {
        let number = self.chance.below(self.tables.len());
        let now = self.now();
        let table = &self.tables[number];
        let schema = if self.chance.percent(60) {
            self.chance.regrouped(&table.schema)
        } else {
            self.chance.altered(&table.schema, now)
        };
        let families = |schema: &schema::Schema| {
            schema.groups().iter().map(|group| group.families.len()).sum::<usize>()
        };
        let dropped = families(&schema) < families(&table.schema);
        let hidden = |schema: &schema::Schema| schema.groups().len() - schema.visible_groups();
        let adds_group = hidden(&schema) > hidden(&table.schema);
        self.tally.regroups += u64::from(!table.schema.keeps_groups(&schema));
        self.store().alter_table(table.id, schema.clone()).unwrap();
        self.tally.hidden_groups += u64::from(adds_group);
        let configs = self.store().configs().unwrap();
        self.tally.restricted +=
            configs.files().filter(|file| file.families.is_some()).count() as u64;
        self.record_step(format!("alter t{number}: {schema:?}"));
        // The store records when a family was created; names are never reused.
        let stored = self.store().schema(self.tables[number].id).unwrap();
        let table = &mut self.tables[number];
        table.schema = stored;
        table.note_purges(now);
        if dropped {
            // What a partially read row loses with a dropped family is unspecified.
            self.scans.retain(|(_, check)| check.table != number);
        }
    }

    fn reopen(&mut self) {
        self.scans.clear();
        self.snapshots.clear();
        let stats = self.store().stats();
        self.tally.flushes += stats.flushes;
        self.tally.compactions += stats.compactions;
        self.tally.compaction_parts += stats.compaction_parts;
        self.tally.throttled += stats.throttled;
        if let Some(rows) = self.rows.take() {
            self.unknown += rows.counts().lost + rows.counts().answers_lost;
        }
        let store = self.store.take().expect("the store is open");
        if self.chance.percent(50) {
            store.close().unwrap();
        } else {
            drop(store);
        }
        self.record_step("reopen");
        self.open();
        self.tables.iter_mut().for_each(|table| table.loads.reopened());
        self.check_loads();
        for table in &self.tables {
            let stored = self.store().schema(table.id).unwrap();
            assert_eq!(*stored, *table.schema);
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.recent_steps.join("\n"));
            eprintln!(
                "failed at seed {0}, step {1}: STELE_SEED={0} reruns it",
                self.seed, self.step
            );
        }
    }
}

impl TableHistory {
    fn schema_ages(&self) -> bool {
        self.schema.groups().iter().any(|group| {
            let own = group.families.iter().filter_map(|family| family.purge.as_ref());
            own.chain([&group.purge]).any(policy::ages)
        })
    }
}
