//! The configuration contract, seen from an open store: readers switch to new files when
//! all tablets have them, the log is kept until then, a row that somebody else has
//! changed stops the store, and commits and reads wait for no change of the config.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use stele_engine::config::{
    Fate, Found, Mutation, OpId, RowEdit, RowFaults, RowKey, SimRows, Splice, Submission,
    TabletRows,
};
use stele_engine::schema::{Family, Schema};
use stele_engine::verify;
use stele_engine::world::Files;
use stele_engine::world::sim::{Operation, SimFiles, disk_full};
use stele_engine::*;

use crate::support::die::Die;
use crate::support::power::Powered;
use crate::support::unsure::{UNSURE, open_unsure};

const DIR: &str = "/store";
const ROWS: usize = 50;
const NO_FAULTS: RowFaults = RowFaults { unknown: 0, late: 0, reads: 0 };

struct Machine {
    power: Powered,
    rows: Arc<SimRows>,
    store: Arc<Store>,
}

impl Machine {
    fn open(sim: &SimFiles) -> Machine {
        let power = Powered::new(sim.clone());
        let mut options = Options::default();
        options.log.segment_bytes = 1 << 10;
        let opened = open_unsure(Path::new(DIR), options, power.world(1), 1, NO_FAULTS);
        let (store, rows) = opened.unwrap();
        Machine { power, rows, store: Arc::new(store) }
    }

    fn create(&self, name: &str, tablets: usize) -> TableId {
        let splits = (1..tablets).map(|tablet| row(tablet * ROWS / tablets)).collect();
        self.store.create_table_with_splits(name, schema(), splits).unwrap()
    }

    /// Calls `probe` whenever an outcome is unknown. Returns the number of calls so far.
    fn probe(&self, probe: impl Fn(&Store) + Send + Sync + 'static) -> Arc<AtomicUsize> {
        let calls: Arc<AtomicUsize> = Arc::default();
        let (counted, store) = (calls.clone(), Arc::downgrade(&self.store));
        self.rows.set_probe(Some(Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            probe(&store.upgrade().expect("the store is open"));
        })));
        calls
    }

    fn close(self) {
        self.rows.set_probe(None);
        Arc::into_inner(self.store).expect("nobody else has the store").close().unwrap();
    }
}

fn schema() -> Schema {
    Schema::with_families([Family::new("f")]).unwrap()
}

fn row(number: usize) -> Vec<u8> {
    format!("row{number:05}").into_bytes()
}

/// Adds 1 to a counter in every row.
fn add(store: &Store, table: TableId) {
    let mut commit = CommitBuilder::new();
    commit.table(table);
    for number in 0..ROWS {
        commit.row(&row(number)).merge(FoldId::SUM, b"f", b"", 0, &1i64.to_be_bytes());
    }
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
}

/// Asserts that every counter has this value.
fn assert_counters(store: &Store, table: TableId, expected: i64) {
    for reverse in [false, true] {
        let mut found = 0;
        let read = store.read(table, ScanSpec { reverse, ..ScanSpec::default() }, |cell| {
            assert_eq!(i64::from_be_bytes(cell.value.try_into().unwrap()), expected);
            found += 1;
        });
        read.unwrap();
        assert_eq!(found, ROWS);
    }
}

fn assert_sound(sim: &SimFiles) {
    let files: Arc<dyn Files> = Arc::new(sim.clone());
    let report = verify::check(&files, Path::new(DIR)).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

#[test]
fn scale_3_5_readers_switch_to_a_flush_when_all_tablets_have_it_and_commits_do_not_wait() {
    use Fate::{AnswerLost, Answered, Lost};
    let fates = [
        &[Answered, Lost, AnswerLost, Answered, Lost][..],
        &[Lost; 5],
        &[AnswerLost; 5],
        &[Lost, Lost, Lost, Lost, Lost, AnswerLost, Lost, Answered, Lost, AnswerLost],
    ];
    for fates in fates {
        let sim = SimFiles::new(1);
        let machine = Machine::open(&sim);
        let table = machine.create("t", 5);
        add(&machine.store, table);
        machine.rows.plan(fates);
        let added: Arc<AtomicUsize> = Arc::default();
        let calls = machine.probe({
            let added = added.clone();
            move |store| {
                let before = 1 + added.load(Ordering::SeqCst) as i64;
                assert_eq!(store.stats().fragments, 0, "no reader sees the file");
                assert_counters(store, table, before);
                add(store, table);
                assert_counters(store, table, before + 1);
                added.fetch_add(1, Ordering::SeqCst);
            }
        });
        machine.store.flush(table).unwrap();
        let calls = calls.load(Ordering::SeqCst);
        assert_eq!(calls, if fates.len() > 5 { 2 } else { 1 });
        assert_eq!(machine.store.stats().fragments, 1);
        let configs = machine.store.configs().unwrap();
        let named = configs.tables[&table].tablets.iter().map(|tablet| tablet.files().count());
        assert_eq!(named.collect::<Vec<_>>(), [1; 5], "each tablet has it once");
        assert_counters(&machine.store, table, 1 + calls as i64);
        machine.close();
        assert_counters(&Machine::open(&sim).store, table, 1 + calls as i64);
    }
}

#[test]
fn scale_3_4_the_log_is_kept_until_all_tablets_have_a_flush_so_a_crash_loses_nothing() {
    const SEEDS: u64 = 120;
    let mut heads = 0;
    for seed in 0..SEEDS {
        let die = Die::new(seed);
        let sim = SimFiles::new(seed);
        let machine = Machine::open(&sim);
        let table = machine.create("t", 5);
        (0..4).for_each(|_| add(&machine.store, table));
        let fates: Vec<Fate> =
            (0..5).map(|_| die.pick(&[Fate::Answered, Fate::Lost, Fate::AnswerLost])).collect();
        machine.rows.plan(&fates);
        machine.probe({
            let (power, changes) = (machine.power.clone(), die.below(4));
            move |_| power.cut_after(changes)
        });
        let flushed = machine.store.flush(table);
        let whole = fates.iter().all(|fate| *fate == Fate::Answered);
        assert!(flushed.is_ok() || !whole, "{flushed:?}");
        machine.power.cut_after(0);
        let crashed = if die.one_in(2) { sim.crash() } else { sim.crash_keeping_writes() };
        drop(machine);
        assert_sound(&crashed);
        let machine = Machine::open(&crashed);
        heads += u64::from(machine.store.configs().unwrap().log_head > 0);
        assert_counters(&machine.store, table, 4);
        machine.store.flush(table).unwrap();
        machine.store.compact(table).unwrap();
        assert_counters(&machine.store, table, 4);
        machine.close();
        assert_sound(&crashed);
    }
    assert!(heads > SEEDS / 10 && heads < SEEDS, "{heads} of {SEEDS} flushes moved the head");
}

#[test]
fn scale_3_5_a_flush_that_fails_after_a_lost_mutation_leaves_memory_to_readers_and_the_next() {
    let sim = SimFiles::new(1);
    let machine = Machine::open(&sim);
    let table = machine.create("t", 5);
    add(&machine.store, table);
    machine.rows.plan(&[Fate::Lost; 5]);
    let full = sim.clone();
    machine.probe(move |_| full.fail_next(Operation::Write, "manifest", disk_full()));
    let failed = machine.store.flush(table);
    assert!(matches!(failed, Err(Error::DiskFull { .. })), "{failed:?}");
    assert_eq!(machine.store.stats().fragments, 0);
    assert_counters(&machine.store, table, 1);
    machine.store.flush(table).unwrap();
    assert_counters(&machine.store, table, 1);
    machine.close();
    let files: Arc<dyn Files> = Arc::new(sim.clone());
    let report = verify::check(&files, Path::new(DIR)).unwrap();
    let is_fragment = |path: &Path| path.starts_with(Path::new(DIR).join(FRAGMENTS_DIR));
    let left_over = report.garbage.iter().any(|garbage| is_fragment(&garbage.path));
    assert!(report.is_sound() && !left_over, "{report:?}");
}

/// Returns a mutation of a tablet by somebody else.
fn foreign(rows: &dyn TabletRows, key: &RowKey) -> Mutation {
    let found: Arc<Mutex<Vec<Found>>> = Arc::default();
    let slot = found.clone();
    rows.read(vec![key.clone()], Box::new(move |found| *slot.lock().unwrap() = found));
    let Some(Found::Row(row)) = found.lock().unwrap().pop() else { panic!("no row") };
    let splice = Splice {
        table: key.table,
        tablet: row.config.id,
        load: row.config.load,
        start: row.config.rows.start.clone(),
        group: 0,
        remove: Vec::new(),
        add: Vec::new(),
        flushed: None,
    };
    Mutation {
        key: key.clone(),
        expected: row.expected(),
        lower: None,
        edits: vec![RowEdit::Splice(splice)],
        op: OpId { incarnation: 99, number: 1 },
    }
}

#[test]
fn scale_3_7_a_refused_change_of_a_row_that_the_store_holds_stops_the_store() {
    let sim = SimFiles::new(1);
    let machine = Machine::open(&sim);
    let table = machine.create("t", 5);
    add(&machine.store, table);
    machine.rows.plan(&[Fate::Answered, Fate::Lost]);
    let rows = Arc::downgrade(&machine.rows);
    machine.probe(move |_| {
        let rows = rows.upgrade().unwrap();
        let key = RowKey { table, end: Some(row(2 * ROWS / 5)) };
        let mutations = vec![foreign(&*rows, &key)];
        rows.submit(Submission { mutations, riders: Vec::new() }, Box::new(|_| ()));
    });
    let stopped = |error: &Error| matches!(error, Error::Stopped(_));
    let failed = machine.store.flush(table);
    assert!(failed.as_ref().is_err_and(stopped), "{failed:?}");
    assert!(machine.store.failure().as_ref().is_some_and(stopped), "health is red");
    let mut commit = CommitBuilder::new();
    commit.table(table).row(b"r").set(b"f", b"", 0, b"v");
    let refused = machine.store.apply(&commit.finish(), Txn::MAX, Durability::Durable);
    assert!(refused.as_ref().is_err_and(stopped), "{refused:?}");
    assert_counters(&machine.store, table, 1);
    drop(machine);
    // Some tablets have the file, so it was kept.
    assert_sound(&sim);
    assert_counters(&Machine::open(&sim).store, table, 1);
}

#[test]
fn scale_3_8_other_tables_are_changed_while_an_outcome_is_open() {
    let sim = SimFiles::new(1);
    let machine = Machine::open(&sim);
    let table = machine.create("t", 5);
    let [other, doomed] = ["other", "doomed"].map(|name| machine.create(name, 2));
    add(&machine.store, table);
    machine.rows.plan(&[Fate::AnswerLost; 5]);
    let calls = machine.probe(move |store| {
        add(store, other);
        store.flush(other).unwrap();
        store.compact(other).unwrap();
        assert!(store.split(other, &row(3)).unwrap());
        store.join(other, &row(3)).unwrap();
        store.alter_table(other, schema()).unwrap();
        store.drop_table(doomed).unwrap();
        store.create_table("new", schema()).unwrap();
        store.checkpoint(&[other]).unwrap();
        add(store, table);
    });
    machine.store.flush(table).unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_counters(&machine.store, table, 2);
    assert_counters(&machine.store, other, 1);
    machine.close();
    let machine = Machine::open(&sim);
    assert_counters(&machine.store, table, 2);
    assert_counters(&machine.store, other, 1);
    assert!(machine.store.table("doomed").is_none() && machine.store.table("new").is_some());
}

#[test]
fn scale_3_8_a_drop_refuses_commits_first_and_takes_them_again_if_it_fails() {
    let sim = SimFiles::new(1);
    let machine = Machine::open(&sim);
    let table = machine.create("t", 2);
    add(&machine.store, table);
    sim.fail_next(Operation::Write, "manifest", disk_full());
    let failed = machine.store.drop_table(table);
    assert!(matches!(failed, Err(Error::DiskFull { .. })), "{failed:?}");
    add(&machine.store, table);
    assert_counters(&machine.store, table, 2);
    machine.store.drop_table(table).unwrap();
    assert!(matches!(machine.store.drop_table(table), Err(Error::UnknownTable(_))));
    machine.close();
    assert!(Machine::open(&sim).store.table("t").is_none());
}

#[test]
fn scale_3_8_a_changed_schema_counts_from_a_generation_that_later_commits_have() {
    let sim = SimFiles::new(1);
    let machine = Machine::open(&sim);
    let table = machine.create("t", 2);
    add(&machine.store, table);
    let before = machine.store.progress().1;
    sim.fail_next(Operation::Write, "manifest", disk_full());
    let failed = machine.store.alter_table_emptying(table, schema(), &[b"f"]);
    assert!(matches!(failed, Err(Error::DiskFull { .. })), "{failed:?}");
    assert_counters(&machine.store, table, 1);
    machine.store.alter_table_emptying(table, schema(), &[b"f"]).unwrap();
    let stored = machine.store.schema(table).unwrap();
    let since = stored.since(stored.find(b"f").unwrap());
    assert_eq!(since, Txn::base(machine.store.configs().unwrap().generation));
    assert!(since > before);
    add(&machine.store, table);
    assert!(machine.store.progress().1 > since);
    assert_counters(&machine.store, table, 1);
    drop(machine);
    assert_counters(&Machine::open(&sim.crash()).store, table, 1);
}

#[test]
fn scale_3_8_a_crash_while_a_schema_is_changed_leaves_the_old_or_the_new_one() {
    let mut seen = [0; 2];
    for changes in 0..8 {
        for crash in [SimFiles::crash, SimFiles::crash_keeping_writes] {
            let sim = SimFiles::new(changes);
            let machine = Machine::open(&sim);
            let table = machine.create("t", 2);
            add(&machine.store, table);
            machine.power.cut_after(changes);
            let altered = machine.store.alter_table_emptying(table, schema(), &[b"f"]);
            let survived = crash(&sim);
            drop(machine);
            let machine = Machine::open(&survived);
            let mut cells = 0;
            machine.store.read(table, ScanSpec::default(), |_| cells += 1).unwrap();
            assert!(cells == ROWS || cells == 0, "{cells} cells");
            assert!(altered.is_err() || cells == 0, "the change was reported and is lost");
            seen[usize::from(cells == 0)] += 1;
            machine.store.alter_table_emptying(table, schema(), &[b"f"]).unwrap();
            add(&machine.store, table);
            assert_counters(&machine.store, table, 1);
        }
    }
    assert!(seen.iter().all(|&times| times > 1), "{seen:?}");
}

#[test]
fn scale_3_14_splits_and_joins_survive_any_loss_of_answers() {
    let sim = SimFiles::new(1);
    let machine = Machine::open(&sim);
    let table = machine.create("t", 3);
    let die = Die::new(7);
    machine.rows.set_rates(UNSURE);
    let mut added = 0;
    for _ in 0..120 {
        let tablets = machine.store.tablets(table).unwrap();
        match die.below(5) {
            0 if tablets.len() > 1 => {
                let upper = 1 + die.below(tablets.len() as u64 - 1) as usize;
                machine.store.join(table, &tablets[upper].rows.start).unwrap();
            }
            0 | 1 => {
                machine.store.split(table, &row(1 + die.below(ROWS as u64 - 1) as usize)).unwrap();
            }
            2 => machine.store.flush(table).unwrap(),
            3 => machine.store.compact(table).unwrap(),
            _ => {
                add(&machine.store, table);
                added += 1;
            }
        }
        if added > 0 {
            assert_counters(&machine.store, table, added);
        }
    }
    let counts = machine.rows.counts();
    assert!(counts.lost > 20 && counts.answers_lost > 20 && counts.late > 20, "{counts:?}");
    machine.close();
    assert_sound(&sim);
    assert_counters(&Machine::open(&sim).store, table, added);
}
