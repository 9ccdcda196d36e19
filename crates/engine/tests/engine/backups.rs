//! Backups, restored tables and deleted tables: what they have, what they survive, and
//! which files are kept for them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stele_engine::config::MANIFEST_FILE;
use stele_engine::schema::{Family, Group, Purge, Schema};
use stele_engine::verify;
use stele_engine::world::sim::{Fault, Operation, Planned, SimFiles, disk_full};
use stele_engine::world::{Files, ManualClock, SeededRandom, World};
use stele_engine::*;

use crate::simulated::open;

const DIR: &str = "/store";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The time of `crate::simulated`.
const NOW: i64 = 1_000_000;

fn schema() -> Schema {
    let groups = ["f", "g"].map(|name| Group::new(name, [Family::new(name)]));
    Schema::new(groups.into()).unwrap()
}

/// Returns a store with a table of two tablets, which meet at row `m`.
fn two_tablets(sim: &SimFiles) -> (Store, TableId) {
    let store = open(sim, Options::default());
    let table = store.create_table_with_splits("t", schema(), vec![b"m".to_vec()]).unwrap();
    (store, table)
}

fn try_put(store: &Store, table: TableId, row: &str, value: &str) -> Result<Txn> {
    let mut commit = CommitBuilder::new();
    commit.table(table).row(row.as_bytes());
    commit.set(b"f", b"", 0, value.as_bytes()).set(b"g", b"", 0, value.as_bytes());
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable)
}

fn put(store: &Store, table: TableId, row: &str, value: &str) {
    try_put(store, table, row, value).unwrap();
}

/// Returns the rows of a table with their values in both groups.
fn rows(store: &Store, table: TableId) -> Vec<String> {
    let mut found = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let keep = |cell: &CellView<'_>| {
        found.push(format!("{}:{}={}", text(cell.row), text(cell.family), text(cell.value)));
    };
    store.read(table, ScanSpec::default(), keep).unwrap();
    found
}

fn expected(rows: &[(&str, &str)]) -> Vec<String> {
    let both =
        |(row, value): &(&str, &str)| ["f", "g"].map(|family| format!("{row}:{family}={value}"));
    rows.iter().flat_map(both).collect()
}

/// Returns the names of the fragments in the directory.
fn files(sim: &SimFiles) -> BTreeSet<String> {
    let listed = sim.list(&Path::new(DIR).join(FRAGMENTS_DIR)).unwrap();
    listed.into_iter().map(|name| name.display().to_string()).collect()
}

/// Returns the names of the fragments that the config refers to.
fn named(store: &Store) -> BTreeSet<String> {
    store.configs().unwrap().files().map(|file| file.name.to_string()).collect()
}

fn check(sim: &SimFiles, tables: u64, backups: u64, deleted: u64) {
    let files: Arc<dyn Files> = Arc::new(sim.clone());
    let report = verify::check(&files, Path::new(DIR)).unwrap();
    assert!(report.is_sound() && report.garbage.is_empty(), "{report:?}");
    assert_eq!((report.tables, report.backups, report.deleted_tables), (tables, backups, deleted));
}

fn deleted(store: &Store) -> Vec<String> {
    store.deleted_tables().unwrap().into_iter().map(|table| table.name).collect()
}

#[test]
fn scale_6_9_a_backup_has_the_rows_of_its_moment_and_outlives_table_and_restarts() {
    let sim = SimFiles::new(1);
    let (store, table) = two_tablets(&sim);
    put(&store, table, "a", "1");
    put(&store, table, "z", "1");
    let backup = store.create_backup(table, "monday", None).unwrap();
    assert_eq!((backup.source, backup.source_name.as_str(), backup.tablets), (table, "t", 2));
    assert_eq!((backup.created_micros, backup.expires_micros), (NOW, None));
    assert!(backup.id > table && backup.disk_bytes > 0);
    put(&store, table, "a", "2");
    store.compact(table).unwrap();
    store.drop_table(table).unwrap();
    store.close().unwrap();
    check(&sim, 0, 1, 0);

    let store = open(&sim, Options::default());
    assert_eq!(store.tables(), [], "a backup is not a table in use");
    assert_eq!(store.table("monday"), None);
    assert_eq!(store.backups().unwrap(), std::slice::from_ref(&backup));
    assert_eq!(store.backup("monday").unwrap(), backup);
    let restored = store.restore_table("monday", "t").unwrap();
    assert!(restored > backup.id, "copies go to newer ids");
    assert_eq!(rows(&store, restored), expected(&[("a", "1"), ("z", "1")]));
    assert_eq!(store.tablets(restored).unwrap().len(), 2);
    put(&store, restored, "b", "3");
    store.close().unwrap();
    check(&sim, 1, 1, 0);
    let store = open(&sim, Options::default());
    assert_eq!(rows(&store, restored), expected(&[("a", "1"), ("b", "3"), ("z", "1")]));
}

#[test]
fn scale_6_9_a_restored_table_changes_without_touching_its_backup_or_its_source() {
    let sim = SimFiles::new(1);
    let (store, table) = two_tablets(&sim);
    for round in 0..3 {
        put(&store, table, "a", &round.to_string());
        put(&store, table, "n", &round.to_string());
        store.flush(table).unwrap();
    }
    store.create_backup(table, "b", None).unwrap();
    let copy = store.restore_table("b", "copy").unwrap();
    // Ids of tablets are never shared.
    let ids = |table| store.tablets(table).unwrap().into_iter().map(|tablet| tablet.id);
    assert!(ids(copy).all(|id| ids(table).all(|other| other != id)));
    assert!(store.split(copy, b"c").unwrap());
    store.join(copy, b"m").unwrap();
    put(&store, copy, "a", "changed");
    store.flush(copy).unwrap();
    store.compact(copy).unwrap();
    store.unload(copy, &[RowRange::row(b"n")]).unwrap();
    store.load(copy, &[RowRange::all()]).unwrap();
    let mut delete = CommitBuilder::new();
    delete.table(copy).delete_range(&RowRange::from("n"));
    store.apply(&delete.finish(), Txn::MAX, Durability::Durable).unwrap();
    store.compact(copy).unwrap();
    assert_eq!(rows(&store, copy), expected(&[("a", "changed")]));
    store.compact(table).unwrap();
    assert_eq!(rows(&store, table), expected(&[("a", "2"), ("n", "2")]));
    let again = store.restore_table("b", "again").unwrap();
    assert_eq!(rows(&store, again), expected(&[("a", "2"), ("n", "2")]));
    assert_eq!(files(&sim), named(&store));
    store.close().unwrap();
    check(&sim, 3, 1, 0);
}

#[test]
fn scale_6_9_files_go_with_the_last_of_table_backup_and_deleted_table() {
    let sim = SimFiles::new(1);
    let (store, table) = two_tablets(&sim);
    put(&store, table, "a", "1");
    store.create_backup(table, "first", None).unwrap();
    store.create_backup(table, "second", None).unwrap();
    let shared = files(&sim);
    assert_eq!(shared.len(), 2, "one file per group, whatever the number of backups");
    put(&store, table, "a", "2");
    store.flush(table).unwrap();
    store.compact(table).unwrap();
    assert!(files(&sim).is_superset(&shared), "the backups need them");
    store.delete_table(table).unwrap();
    store.delete_backup("first").unwrap();
    assert!(files(&sim).is_superset(&shared));
    assert!(matches!(store.delete_backup("first"), Err(Error::UnknownBackup(_))));
    store.delete_backup("second").unwrap();
    assert!(files(&sim).is_disjoint(&shared));
    assert_eq!(files(&sim).len(), 2, "those of the deleted table");
    assert_eq!(store.remove_expired(DAY).unwrap(), (0, 0));
    assert_eq!(store.remove_expired(Duration::ZERO).unwrap(), (0, 1));
    assert_eq!(files(&sim).len(), 0);
    store.close().unwrap();
    check(&sim, 0, 0, 0);
}

#[test]
fn scale_6_9_a_reader_keeps_the_files_of_a_table_whose_backup_is_deleted() {
    let sim = SimFiles::new(1);
    let (store, table) = two_tablets(&sim);
    for row in ["a", "b", "n"] {
        put(&store, table, row, "1");
    }
    store.create_backup(table, "b", None).unwrap();
    let copy = store.restore_table("b", "copy").unwrap();
    let mut scan = store.scan(copy, ScanSpec::default()).unwrap();
    let limits = BatchLimits { cells: 1, ..BatchLimits::default() };
    let mut cells = 0;
    scan.next_batch(limits, &mut |_| cells += 1).unwrap();
    store.drop_table(table).unwrap();
    store.delete_backup("b").unwrap();
    store.compact(copy).unwrap();
    while !scan.next_batch(limits, &mut |_| cells += 1).unwrap().done {}
    assert_eq!(cells, 6);
    drop(scan);
    assert_eq!(files(&sim), named(&store));
}

#[test]
fn scale_6_9_names_of_backups_are_their_own_and_are_checked() {
    let sim = SimFiles::new(1);
    let (store, table) = two_tablets(&sim);
    let other = store.create_table("other", schema()).unwrap();
    store.create_backup(table, "t", None).unwrap();
    let twice = store.create_backup(other, "t", None);
    assert!(matches!(twice, Err(Error::BackupExists(_))), "{twice:?}");
    for name in ["", &"x".repeat(513)] {
        let refused = store.create_backup(table, name, None);
        assert!(matches!(refused, Err(Error::InvalidBackup(_))), "{refused:?}");
    }
    let past = store.create_backup(table, "past", Some(NOW));
    assert!(matches!(past, Err(Error::InvalidBackup(_))), "{past:?}");
    assert!(matches!(store.restore_table("t", "other"), Err(Error::TableExists(_))));
    assert!(matches!(store.restore_table("u", "new"), Err(Error::UnknownBackup(_))));
    assert!(matches!(store.backup("u"), Err(Error::UnknownBackup(_))));
    let unknown = store.create_backup(TableId(99), "b", None);
    assert!(matches!(unknown, Err(Error::UnknownTable(_))));
    // A backup is not a table, whichever way it is named.
    let backup = store.backup("t").unwrap().id;
    assert!(matches!(store.drop_table(backup), Err(Error::UnknownTable(_))));
    assert!(matches!(store.delete_table(backup), Err(Error::UnknownTable(_))));
    assert!(matches!(store.undelete_table(backup), Err(Error::UnknownDeletedTable(_))));
    assert!(matches!(store.create_backup(backup, "b", None), Err(Error::UnknownTable(_))));
    assert!(try_put(&store, backup, "a", "1").is_err());
    let copy = store.restore_table("t", "copy").unwrap();
    assert_eq!(rows(&store, copy), expected(&[]), "of an empty table");
}

#[test]
fn scale_6_8_a_deleted_table_keeps_everything_and_comes_back() {
    let sim = SimFiles::new(1);
    let (store, table) = two_tablets(&sim);
    put(&store, table, "a", "1");
    store.flush(table).unwrap();
    put(&store, table, "z", "in memory");
    store.delete_table(table).unwrap();
    assert_eq!((store.table("t"), deleted(&store)), (None, vec!["t".to_string()]));
    assert!(matches!(try_put(&store, table, "b", "2"), Err(Error::UnknownTable(_))));
    assert!(store.read(table, ScanSpec::default(), |_| ()).is_err());
    // Its name is free, and a table of that name can be deleted as well.
    let second = store.create_table("t", schema()).unwrap();
    assert!(matches!(store.undelete_table(table), Err(Error::TableExists(_))));
    put(&store, second, "s", "1");
    store.delete_table(second).unwrap();
    assert_eq!(deleted(&store), ["t", "t"]);
    store.close().unwrap();
    check(&sim, 0, 0, 2);
    let store = open(&sim, Options::default());
    assert!(store.tables().is_empty(), "it stays deleted over a restart");
    store.undelete_table(table).unwrap();
    assert_eq!(store.table("t"), Some(table), "under its id");
    assert_eq!(rows(&store, table), expected(&[("a", "1"), ("z", "in memory")]));
    put(&store, table, "b", "2");
    assert!(matches!(store.undelete_table(table), Err(Error::UnknownDeletedTable(_))));
    // What was in the log before the deletion is not replayed twice.
    drop(store);
    let store = open(&sim.crash(), Options::default());
    let all = expected(&[("a", "1"), ("b", "2"), ("z", "in memory")]);
    assert_eq!(rows(&store, table), all);
}

#[test]
fn scale_6_8_operands_count_once_after_an_undelete_and_a_restart() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let table = store.create_table("t", schema()).unwrap();
    let add = |store: &Store| {
        let mut commit = CommitBuilder::new();
        commit.table(table).row(b"r").merge(FoldId::SUM, b"f", b"", 0, &1i64.to_be_bytes());
        store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap()
    };
    let before = add(&store);
    let other = store.create_table("other", schema()).unwrap();
    store.delete_table(table).unwrap();
    put(&store, other, "r", "1");
    store.undelete_table(table).unwrap();
    let mut stale = CommitBuilder::new();
    stale.table(table).row(b"r").delete_row();
    let stale = store.apply(&stale.finish(), before, Durability::Durable);
    assert!(matches!(stale, Err(Error::MutationConflict { .. })), "{stale:?}");
    add(&store);
    let sum = |store: &Store| {
        let mut sum = 0;
        let read = |cell: &CellView<'_>| sum += i64::from_be_bytes(cell.value.try_into().unwrap());
        store.read(table, ScanSpec::default(), read).unwrap();
        sum
    };
    assert_eq!(sum(&store), 2);
    drop(store);
    assert_eq!(sum(&open(&sim.crash(), Options::default())), 2);
}

#[test]
fn scale_6_8_a_deletion_that_fails_leaves_the_table_in_use() {
    let faults = [(Operation::Create, FRAGMENTS_DIR), (Operation::Write, MANIFEST_FILE)];
    for (operation, path) in faults {
        let sim = SimFiles::new(1);
        let (store, table) = two_tablets(&sim);
        put(&store, table, "a", "1");
        if operation == Operation::Write {
            store.flush(table).unwrap();
        }
        sim.fail_next(operation, path, disk_full());
        let error = store.delete_table(table).unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
        put(&store, table, "b", "2");
        assert_eq!(rows(&store, table), expected(&[("a", "1"), ("b", "2")]));
        store.delete_table(table).unwrap();
        assert_eq!(deleted(&store), ["t"]);
        // Nothing is counted twice after the failure.
        store.remove_expired(Duration::ZERO).unwrap();
        assert_eq!(files(&sim).len(), 0);
    }
}

#[test]
fn scale_6_9_a_backup_that_fails_leaves_nothing_behind() {
    let sim = SimFiles::new(1);
    let (store, table) = two_tablets(&sim);
    put(&store, table, "a", "1");
    store.flush(table).unwrap();
    sim.fail_next(Operation::Write, MANIFEST_FILE, disk_full());
    assert!(matches!(store.create_backup(table, "b", None), Err(Error::DiskFull { .. })));
    assert_eq!(store.backups().unwrap(), []);
    store.drop_table(table).unwrap();
    assert_eq!(files(&sim).len(), 0);
}

#[test]
fn scale_6_8_the_sweep_removes_what_has_expired_and_nothing_else() {
    let (sim, clock) = (SimFiles::new(1), Arc::new(ManualClock::at(NOW)));
    let world = World {
        clock: clock.clone(),
        files: Arc::new(sim.clone()),
        random: Arc::new(SeededRandom::new(1)),
        spawner: None,
    };
    let store = Store::open(Path::new(DIR), Options::default(), world).unwrap();
    let tables = ["a", "b"].map(|name| store.create_table(name, schema()).unwrap());
    put(&store, tables[0], "r", "1");
    store.create_backup(tables[0], "short", Some(NOW + 10)).unwrap();
    store.create_backup(tables[0], "long", Some(NOW + 1000)).unwrap();
    store.create_backup(tables[0], "forever", None).unwrap();
    store.delete_table(tables[0]).unwrap();
    clock.advance(Duration::from_micros(9));
    store.delete_table(tables[1]).unwrap();
    let keep = Duration::from_micros(20);
    assert_eq!(store.remove_expired(keep).unwrap(), (0, 0));
    clock.advance(Duration::from_micros(1));
    assert_eq!(store.remove_expired(keep).unwrap(), (1, 0));
    clock.advance(Duration::from_micros(10));
    assert_eq!(store.remove_expired(keep).unwrap(), (0, 1));
    assert_eq!(deleted(&store), ["b"]);
    assert!(matches!(store.undelete_table(tables[0]), Err(Error::UnknownDeletedTable(_))));
    clock.advance(DAY);
    assert_eq!(store.remove_expired(keep).unwrap(), (1, 1));
    assert_eq!(store.remove_expired(Duration::MAX).unwrap(), (0, 0));
    let names: Vec<_> = store.backups().unwrap().into_iter().map(|backup| backup.name).collect();
    assert_eq!(names, ["forever"]);
    let copy = store.restore_table("forever", "c").unwrap();
    assert_eq!(rows(&store, copy), expected(&[("r", "1")]));
}

#[test]
fn scale_6_9_a_backup_has_the_schema_of_its_moment() {
    let sim = SimFiles::new(1);
    let (store, table) = two_tablets(&sim);
    put(&store, table, "a", "1");
    store.create_backup(table, "both", None).unwrap();
    let groups = [
        Group::new("f", [Family::with_purge("f", Purge::MaxVersions(1))]),
        Group::new("g", [Family::new("x")]),
    ];
    store.alter_table(table, Schema::new(groups.into()).unwrap()).unwrap();
    put_f(&store, table);
    store.create_backup(table, "one", None).unwrap();
    store.alter_table(table, schema()).unwrap();
    let both = store.restore_table("both", "x").unwrap();
    assert_eq!(rows(&store, both), expected(&[("a", "1")]));
    let one = store.restore_table("one", "y").unwrap();
    assert_eq!(rows(&store, one), ["a:f=1", "b:f=1"]);
    // The cells of the dropped family stay deleted when it is added again.
    store.alter_table(one, schema()).unwrap();
    assert_eq!(rows(&store, one), ["a:f=1", "b:f=1"]);
    assert_eq!(rows(&store, table), ["a:f=1", "b:f=1"]);
}

fn put_f(store: &Store, table: TableId) {
    let mut commit = CommitBuilder::new();
    commit.table(table).row(b"b").set(b"f", b"", 0, b"1");
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
}

#[test]
fn scale_6_9_a_store_with_an_external_log_has_no_backups() {
    let world = crate::simulated::world(&SimFiles::new(1));
    let store = Store::open_external(Path::new(DIR), Options::default(), world).unwrap();
    let table = store.create_table("t", schema()).unwrap();
    let refused = |outcome: Result<()>| assert!(matches!(outcome, Err(Error::HasExternalLog)));
    refused(store.create_backup(table, "b", None).map(drop));
    refused(store.delete_table(table));
    refused(store.undelete_table(table));
    refused(store.restore_table("b", "u").map(drop));
    refused(store.remove_expired(DAY).map(drop));
    store.drop_table(table).unwrap();
}

/// The steps whose writes are interrupted one by one.
const STEPS: usize = 7;

/// Runs the steps until one fails. Returns how many have succeeded.
fn run_steps(store: &Store, table: TableId) -> usize {
    let steps: [&dyn Fn() -> Result<()>; STEPS] = [
        &|| store.create_backup(table, "b", None).map(drop),
        &|| try_put(store, table, "late", "2").map(drop),
        &|| store.delete_table(table),
        &|| store.restore_table("b", "copy").map(drop),
        &|| store.undelete_table(table),
        &|| store.delete_table(table),
        &|| store.remove_expired(Duration::ZERO).map(drop),
    ];
    steps.iter().take_while(|step| step().is_ok()).count()
}

/// Returns what is visible after a number of steps: the rows of the table, if it is in
/// use, whether it can be brought back, and whether backup and copy exist.
fn visible_after(done: usize) -> (Option<usize>, bool, bool, bool) {
    let in_use = !matches!(done, 3 | 4 | 6 | 7);
    let rows = if done < 2 { 2 } else { 3 };
    (in_use.then_some(2 * rows), matches!(done, 3 | 4 | 6), done >= 1, done >= 4)
}

fn visible(store: &Store, table: TableId) -> (Option<usize>, bool, bool, bool) {
    let in_use = store.table("t").map(|found| {
        assert_eq!(found, table);
        rows(store, found).len()
    });
    let backups = store.backups().unwrap();
    let copy = store.table("copy");
    if let Some(copy) = copy {
        assert_eq!(rows(store, copy), expected(&[("a", "1"), ("z", "1")]));
    }
    (in_use, !deleted(store).is_empty(), !backups.is_empty(), copy.is_some())
}

#[test]
fn scale_6_9_a_crash_at_any_write_leaves_each_step_done_or_not() {
    let mut cases = [0; STEPS + 1];
    for after in 0.. {
        let sim = SimFiles::new(after);
        let (store, table) = two_tablets(&sim);
        put(&store, table, "a", "1");
        put(&store, table, "z", "1");
        // From here on every operation fails: the process dies before it.
        sim.plan_fault(Planned { fault: Fault::Disk, after, lasts: true });
        let done = run_steps(&store, table);
        let struck = sim.has_fault_struck();
        let left = if after % 2 == 0 { sim.crash() } else { sim.crash_keeping_writes() };
        left.clear_faults();
        drop(store);
        let store = open(&left, Options::default());
        let found = visible(&store, table);
        let possible = [visible_after(done), visible_after((done + 1).min(STEPS))];
        assert!(possible.contains(&found), "{done} steps, operation {after}: {found:?}");
        assert_eq!(files(&left), named(&store), "{done} steps, operation {after}");
        // The rest can be done, and leaves nothing behind.
        if store.backups().unwrap().is_empty() {
            store.create_backup(table, "b", None).unwrap();
        }
        if store.table("copy").is_none() {
            store.restore_table("b", "copy").unwrap();
        }
        store.close().unwrap();
        let files: Arc<dyn Files> = Arc::new(left.clone());
        let report = verify::check(&files, Path::new(DIR)).unwrap();
        assert!(report.is_sound() && report.garbage.is_empty(), "{report:?}");
        cases[done] += 1;
        if !struck {
            assert_eq!(done, STEPS);
            break;
        }
    }
    assert!(cases.iter().all(|&cases| cases > 0), "each step is interrupted: {cases:?}");
}

/// Opens the store at a time of the wall clock.
fn open_at(sim: &SimFiles, micros: i64) -> Store {
    let world = World {
        clock: Arc::new(ManualClock::at(micros)),
        files: Arc::new(sim.clone()),
        random: Arc::new(SeededRandom::new(1)),
        spawner: None,
    };
    Store::open(Path::new(DIR), Options::default(), world).unwrap()
}

#[test]
fn scale_6_9_a_crash_at_any_write_of_the_sweep_removes_expired_backups_whole_or_not_at_all() {
    const EXPIRES: i64 = NOW + 10;
    let (mut kept, mut removed) = (0, 0);
    for after in 0.. {
        let sim = SimFiles::new(after);
        let store = open_at(&sim, NOW);
        let table = store.create_table("t", schema()).unwrap();
        put(&store, table, "a", "1");
        // One backup has files of its own afterwards, the other shares those of the table.
        store.create_backup(table, "own", Some(EXPIRES)).unwrap();
        put(&store, table, "a", "2");
        store.flush(table).unwrap();
        store.compact(table).unwrap();
        store.create_backup(table, "shared", Some(EXPIRES)).unwrap();
        store.close().unwrap();

        let store = open_at(&sim, EXPIRES);
        sim.plan_fault(Planned { fault: Fault::Disk, after, lasts: true });
        let outcome = store.remove_expired(DAY);
        let struck = sim.has_fault_struck();
        let left = if after % 2 == 0 { sim.crash() } else { sim.crash_keeping_writes() };
        left.clear_faults();
        drop(store);

        let store = open_at(&left, EXPIRES);
        let names: Vec<_> = store.backups().unwrap().into_iter().map(|info| info.name).collect();
        match &names[..] {
            [] => removed += 1,
            [own, shared] if own == "own" && shared == "shared" => {
                assert!(outcome.is_err(), "operation {after}: a removal that was reported is lost");
                kept += 1;
                let restored = store.restore_table("own", "restored").unwrap();
                assert_eq!(rows(&store, restored), expected(&[("a", "1")]));
                store.drop_table(restored).unwrap();
            }
            other => panic!("operation {after}: {other:?} are left"),
        }
        assert_eq!(rows(&store, table), expected(&[("a", "2")]), "operation {after}");
        store.remove_expired(DAY).unwrap();
        assert_eq!(store.backups().unwrap(), []);
        assert_eq!(files(&left), named(&store), "operation {after}");
        store.close().unwrap();
        let files: Arc<dyn Files> = Arc::new(left.clone());
        let report = verify::check(&files, Path::new(DIR)).unwrap();
        assert!(report.is_sound() && report.garbage.is_empty(), "{report:?}");
        if !struck {
            assert_eq!(outcome.unwrap(), (2, 0));
            break;
        }
    }
    assert!(kept > 0 && removed > 1, "{kept} kept, {removed} removed");
}

#[test]
fn scale_6_9_a_backup_under_load_is_one_moment_of_the_whole_table() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.flush.fragment_bytes = 32 << 10;
    options.compact.chain_min = 2;
    let store = Store::open(dir.path(), options, World::real()).unwrap();
    let splits = (1..8u8).map(|row| vec![row * 32]).collect();
    let table = store.create_table_with_splits("t", schema(), splits).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Each commit has one row in each tablet, so all have the same number.
            for number in 0u32..20_000 {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let mut commit = CommitBuilder::new();
                commit.table(table);
                for tablet in 0..8u8 {
                    let mut row = vec![tablet * 32];
                    row.extend(number.to_be_bytes());
                    commit.row(&row).set(b"f", b"", 0, &[7; 50]).set(b"g", b"", 0, &[7; 50]);
                }
                store.apply(&commit.finish(), Txn::MAX, Durability::Accepted).unwrap();
            }
        });
        let mut last = 0;
        for number in 0..6 {
            let name = format!("b{number}");
            let backup = store.create_backup(table, &name, None).unwrap();
            let copy = store.restore_table(&name, &name).unwrap();
            let mut found = [[0u32; 2]; 8];
            let count = |cell: &CellView<'_>| {
                let (tablet, group) = (usize::from(cell.row[0] / 32), cell.family == b"g");
                let found = &mut found[tablet][usize::from(group)];
                assert_eq!(cell.row[1..], found.to_be_bytes(), "a prefix without holes");
                assert!(cell.txn <= backup.txn);
                *found += 1;
            };
            store.read(copy, ScanSpec::default(), count).unwrap();
            assert!(found.iter().flatten().all(|&rows| rows == found[0][0]), "{found:?}");
            assert!(found[0][0] >= last, "a later backup has what an earlier one has");
            last = found[0][0];
            store.split(copy, &[16]).unwrap();
            store.compact(copy).unwrap();
            if number % 2 == 0 {
                store.delete_table(copy).unwrap();
                store.delete_backup(&name).unwrap();
                store.remove_expired(Duration::ZERO).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    store.close().unwrap();
    let files: Arc<dyn Files> = Arc::new(stele_engine::world::Disk);
    let report = verify::check(&files, dir.path()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    let unnamed = report.garbage.iter().find(|file| file.why == "not in the manifest");
    assert_eq!(unnamed, None, "files without references are removed");
}

#[test]
fn scale_6_9_backups_restores_and_deletions_race_without_losing_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default(), World::real()).unwrap();
    let table = store.create_table("t", schema()).unwrap();
    put(&store, table, "a", "1");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..15 {
                    // Two threads share each name, so any call may find it taken or gone.
                    let name = format!("{}", thread % 2);
                    let _ = store.create_backup(table, &name, None);
                    if let Ok(copy) = store.restore_table(&name, &format!("c{thread}")) {
                        assert_eq!(rows(store, copy)[..1], ["a:f=1"], "round {round}");
                        put(store, copy, "b", "2");
                        store.delete_table(copy).unwrap();
                        if round % 2 == 0 && store.undelete_table(copy).is_ok() {
                            assert_eq!(rows(store, copy).len(), 4);
                            store.drop_table(copy).unwrap();
                        }
                    }
                    put(store, table, "a", "1");
                    match round % 3 {
                        0 => drop(store.delete_backup(&name)),
                        1 => drop(store.compact(table)),
                        _ => drop(store.remove_expired(Duration::ZERO)),
                    }
                }
            });
        }
    });
    store.close().unwrap();
    let files: Arc<dyn Files> = Arc::new(stele_engine::world::Disk);
    let report = verify::check(&files, dir.path()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    let unnamed = report.garbage.iter().find(|file| file.why == "not in the manifest");
    assert_eq!(unnamed, None, "files without references are removed");
}
