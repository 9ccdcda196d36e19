//! Hand-written crash scenarios that random lives have found and that readers should
//! know.

use std::path::Path;
use std::sync::Arc;

use stele_engine::schema::{Family, Schema};
use stele_engine::verify;
use stele_engine::world::Files;
use stele_engine::world::sim::{Operation, SimFiles, disk_error, disk_full};
use stele_engine::*;

use crate::support::power::Powered;

fn open_in(dir: &str, sim: &SimFiles, options: Options) -> Result<(Store, Powered)> {
    let power = Powered::new(sim.clone());
    Ok((Store::open(Path::new(dir), options, power.world(1))?, power))
}

fn open(sim: &SimFiles) -> Store {
    open_in("/store", sim, Options::default()).unwrap().0
}

fn schema() -> Schema {
    Schema::with_families([Family::new("f")]).unwrap()
}

/// Returns a commit that increments a counter and sets a row in each table.
fn commit(tables: &[TableId], number: u64, value_bytes: usize) -> Commit {
    let mut commit = CommitBuilder::new();
    for &table in tables {
        commit.table(table).row(b"count").merge(FoldId::SUM, b"f", b"", 0, &1i64.to_be_bytes());
        commit.row(format!("row{number:04}").as_bytes()).set(
            b"f",
            b"",
            0,
            &vec![number as u8; value_bytes],
        );
    }
    commit.finish()
}

/// Returns the number of commits a table counted, and how many of their rows it has.
fn counted(store: &Store, table: TableId) -> (i64, i64) {
    let (mut count, mut rows) = (0, 0);
    let read = store.read(table, ScanSpec::default(), |cell| match cell.row {
        b"count" => count = i64::from_be_bytes(cell.value.try_into().unwrap()),
        _ => rows += 1,
    });
    read.unwrap();
    (count, rows)
}

#[test]
fn a_store_in_a_new_directory_is_not_lost_with_the_directory() {
    for seed in 0..20 {
        let sim = SimFiles::new(seed);
        let dir = "/new/deeper/store";
        let (store, _) = open_in(dir, &sim, Options::default()).unwrap();
        store.create_table("t", schema()).unwrap();
        let survived = sim.crash();
        drop(store);
        let (store, _) = open_in(dir, &survived, Options::default()).unwrap();
        assert!(store.table("t").is_some(), "seed {seed}");
    }
}

#[test]
fn what_a_failed_sync_forgot_is_not_served_after_a_restart_and_then_lost() {
    for seed in 0..40 {
        let sim = SimFiles::new(seed);
        let store = open(&sim);
        let table = store.create_table("t", schema()).unwrap();
        for number in 0..4 {
            store.apply(&commit(&[table], number, 700), Txn::MAX, Durability::Written).unwrap();
        }
        sim.fail_next(Operation::Sync, "log", disk_error());
        assert!(matches!(store.sync(Txn::MAX), Err(Error::Stopped(_) | Error::Io { .. })));
        let restarted = sim.crash_keeping_writes();
        drop(store);
        // Reads still see the pages that the kernel failed to write and will never
        // write.
        let store = open(&restarted);
        let seen = counted(&store, table);
        assert_eq!(seen, (4, 4));
        let survived = restarted.crash();
        drop(store);
        assert_eq!(counted(&open(&survived), table), seen, "seed {seed}");
    }
}

#[test]
fn a_flush_during_recovery_does_not_run_ahead_of_the_log() {
    let mut small = Options::default();
    small.flush.fragment_bytes = 8 << 10;
    for changes in 0..60 {
        let sim = SimFiles::new(changes);
        let store = open(&sim);
        let tables = ["a", "b"].map(|name| store.create_table(name, schema()).unwrap());
        for number in 0..30 {
            // Table a fills up faster, so recovery flushes it first.
            let mut wide = commit(&tables[..1], number, 900);
            store.apply(&wide, Txn::MAX, Durability::Written).unwrap();
            wide = commit(&tables[1..], number, 1);
            store.apply(&wide, Txn::MAX, Durability::Written).unwrap();
        }
        let mut sim = sim.crash_keeping_writes();
        drop(store);
        let power = Powered::new(sim.clone());
        power.cut_after(changes);
        drop(Store::open(Path::new("/store"), small.clone(), power.world(1)));
        sim = sim.crash();
        let store = open(&sim);
        let [a, b] = tables.map(|table| counted(&store, table));
        assert_eq!((a.0, b.0), (a.1, b.1), "half a commit is left");
        assert!(a.0 == b.0 || a.0 == b.0 + 1, "{a:?} and {b:?} after {changes} changes");
    }
}

fn check(sim: &SimFiles) -> verify::Report {
    let files: Arc<dyn Files> = Arc::new(sim.clone());
    verify::check(&files, Path::new("/store")).unwrap()
}

/// Opens what a crash after some changes has left, which must be sound.
fn reopen_sound(sim: &SimFiles, changes: u64) -> Store {
    let report = check(sim);
    assert!(report.is_sound(), "after {changes} changes: {:?}", report.problems);
    open(sim)
}

/// Closes a store, which must leave no unused files.
fn close_sound(sim: &SimFiles, store: Store) {
    store.close().unwrap();
    let report = check(sim);
    assert!(report.is_sound() && report.garbage.is_empty(), "{report:?}");
}

/// Checks the counts of a table before and after everything in it is compacted.
fn count_compacted(store: &Store, table: TableId, expected: (i64, i64), changes: u64) {
    assert_eq!(counted(store, table), expected, "after {changes} changes");
    store.flush(table).unwrap();
    store.compact(table).unwrap();
    assert_eq!(counted(store, table), expected, "after {changes} changes, compacted");
}

/// Returns a store with two runs over the same rows, with deletes, to be compacted in
/// many parts.
fn two_runs(sim: &SimFiles) -> (Store, Powered, TableId) {
    let mut options = Options::default();
    options.compact.output_bytes = 1;
    let (store, power) = open_in("/store", sim, options).unwrap();
    let table = store.create_table("t", schema()).unwrap();
    for number in 0..12 {
        store.apply(&commit(&[table], number, 100), Txn::MAX, Durability::Written).unwrap();
    }
    store.flush(table).unwrap();
    let mut deletes = CommitBuilder::new();
    deletes.table(table).delete_range(&RowRange::new("row0003", "row0006"));
    deletes.row(b"row0008").delete_row();
    store.apply(&deletes.finish(), Txn::MAX, Durability::Written).unwrap();
    for number in [0, 4, 11] {
        store.apply(&commit(&[table], number, 100), Txn::MAX, Durability::Written).unwrap();
    }
    store.flush(table).unwrap();
    (store, power, table)
}

/// Compacts until the power fails, and finishes after the crash. Returns whether the
/// power lasted, and how many files the crash left in the chain.
fn cut_off(changes: u64, crash: fn(&SimFiles) -> SimFiles) -> (bool, usize) {
    let sim = SimFiles::new(changes);
    let (store, power, table) = two_runs(&sim);
    assert_eq!(counted(&store, table), (15, 9));
    power.cut_after(changes);
    let lasted = store.compact(table).is_ok() && !power.is_out();
    let sim = crash(&sim);
    drop(store);
    let store = reopen_sound(&sim, changes);
    let left = store.configs().unwrap().files().count();
    assert_eq!(counted(&store, table), (15, 9), "after {changes} changes");
    store.step().unwrap();
    assert_eq!(counted(&store, table), (15, 9), "after {changes} changes, finished");
    close_sound(&sim, store);
    (lasted, left)
}

#[test]
fn a_compaction_cut_off_at_any_change_leaves_a_sound_store_that_finishes_it() {
    for crash in [SimFiles::crash, SimFiles::crash_keeping_writes] {
        let mut unfinished = 0;
        for changes in 0.. {
            let (lasted, left) = cut_off(changes, crash);
            if lasted {
                break;
            }
            unfinished += u64::from(left > 2);
        }
        assert!(unfinished > 20, "only {unfinished} times with an output in place");
    }
}

#[test]
fn an_edit_that_failed_does_not_come_true_in_a_crash() {
    for seed in 0..1000 {
        let sim = SimFiles::new(seed);
        let store = open(&sim);
        let table = store.create_table("t", schema()).unwrap();
        for number in 0..3 {
            store.apply(&commit(&[table], number, 10), Txn::MAX, Durability::Durable).unwrap();
        }
        sim.fail_next(Operation::Write, "manifest", disk_full());
        assert!(store.flush(table).is_err());
        let survived = sim.crash();
        drop(store);
        assert_eq!(counted(&open(&survived), table), (3, 3), "seed {seed}");
    }
}

/// Splits and joins a table of two runs until the power fails. Returns whether it
/// lasted, and the number of tablets after the crash.
fn cut_off_splits(changes: u64, crash: fn(&SimFiles) -> SimFiles) -> (bool, usize) {
    let sim = SimFiles::new(changes);
    let (store, power, table) = two_runs(&sim);
    // A compaction that is interrupted leaves references to parts of files.
    let mut partial = CommitBuilder::new();
    partial.table(table).row(b"row0001").set(b"f", b"", 0, b"x");
    store.apply(&partial.finish(), Txn::MAX, Durability::Durable).unwrap();
    power.cut_after(changes);
    let steps = || -> Result<()> {
        store.split(table, b"row0005")?;
        store.split(table, b"row0002")?;
        store.flush(table)?;
        store.join(table, b"row0002")?;
        store.compact(table)?;
        store.join(table, b"row0005")
    };
    let lasted = steps().is_ok() && !power.is_out();
    let sim = crash(&sim);
    drop(store);
    let store = reopen_sound(&sim, changes);
    let tablets = store.tablets(table).unwrap().len();
    count_compacted(&store, table, (15, 9), changes);
    close_sound(&sim, store);
    (lasted, tablets)
}

#[test]
fn scale_6_2_a_split_or_join_cut_off_at_any_change_happened_or_did_not() {
    for crash in [SimFiles::crash, SimFiles::crash_keeping_writes] {
        let mut seen = [0; 4];
        for changes in 0.. {
            let (lasted, tablets) = cut_off_splits(changes, crash);
            seen[tablets] += 1;
            if lasted {
                break;
            }
        }
        assert!(seen[1..].iter().all(|&times| times > 1), "{seen:?}");
    }
}

/// Unloads and loads until the power fails, and loads everything after the crash.
/// Returns whether the power lasted, and whether the crash left the tablet unloaded.
fn cut_off_loads(changes: u64, crash: fn(&SimFiles) -> SimFiles) -> (bool, bool) {
    let sim = SimFiles::new(changes);
    let (store, power, table) = two_runs(&sim);
    store.split(table, b"row0004").unwrap();
    store.split(table, b"row0009").unwrap();
    store.apply(&commit(&[table], 5, 100), Txn::MAX, Durability::Durable).unwrap();
    let tablets = [RowRange::row(b"count"), RowRange::row(b"row0005")];
    power.cut_after(changes);
    let mut unloaded = false;
    let mut steps = || -> Result<()> {
        store.unload(table, &tablets)?;
        unloaded = true;
        // Other tablets are written meanwhile.
        let mut other = CommitBuilder::new();
        other.table(table).row(b"row0011").set(b"f", b"", 0, b"x");
        store.apply(&other.finish(), Txn::MAX, Durability::Durable)?;
        store.flush(table)?;
        store.load(table, &tablets)?;
        store.unload(table, &[RowRange::all()])?;
        store.load(table, &tablets).map(drop)
    };
    let lasted = steps().is_ok() && !power.is_out();
    let sim = crash(&sim);
    drop(store);
    let store = reopen_sound(&sim, changes);
    let states: Vec<_> = store.tablets(table).unwrap().iter().map(|tablet| tablet.state).collect();
    // A list changes its state as a whole.
    assert_eq!(states[0], states[1], "after {changes} changes");
    let left = states[0] == TabletState::Unloaded;
    assert!(unloaded || states[2] == TabletState::Active);
    let outcome = store.read(table, ScanSpec::range(RowRange::row(b"row0005")), |_| ());
    assert_eq!(matches!(outcome, Err(Error::TabletNotLoaded(_))), left, "{outcome:?}");
    store.load(table, &[RowRange::all()]).unwrap();
    count_compacted(&store, table, (16, 10), changes);
    close_sound(&sim, store);
    (lasted, left)
}

#[test]
fn scale_7_6_a_load_or_unload_cut_off_at_any_change_happened_or_did_not() {
    for crash in [SimFiles::crash, SimFiles::crash_keeping_writes] {
        let mut seen = [0; 2];
        for changes in 0.. {
            let (lasted, left) = cut_off_loads(changes, crash);
            seen[usize::from(left)] += 1;
            if lasted {
                break;
            }
        }
        assert!(seen.iter().all(|&times| times > 1), "{seen:?}");
    }
}
