//! The check of one table of an open store, file by file, while it is in use.

use std::fs;
use std::path::{Path, PathBuf};

use stele_engine::schema::{Family, Schema};
use stele_engine::verify::{CheckedFile, TableCheck};
use stele_engine::world::World;
use stele_engine::*;

fn open(dir: &Path) -> Store {
    let world = World { spawner: None, ..World::real() };
    Store::open(dir, Options::default(), world).unwrap()
}

fn create(store: &Store, name: &str) -> TableId {
    store.create_table(name, Schema::with_families([Family::new("f")]).unwrap()).unwrap()
}

/// Writes some rows and flushes them to one file.
fn fill(store: &Store, table: TableId, value: &[u8]) {
    let mut commit = CommitBuilder::new();
    commit.table(table);
    for row in ["a", "b", "c", "d"] {
        commit.row(row.as_bytes()).set(b"f", b"q", 1, value);
    }
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
    store.flush(table).unwrap();
}

fn finish(mut check: TableCheck) -> Vec<CheckedFile> {
    std::iter::from_fn(|| check.check_next().unwrap()).collect()
}

fn paths(files: &[CheckedFile]) -> Vec<PathBuf> {
    files.iter().map(|file| file.report.path.clone()).collect()
}

#[test]
fn each_file_of_the_table_is_checked_once_whatever_the_number_of_tablets() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (table, other) = (create(&store, "t"), create(&store, "other"));
    fill(&store, table, b"1");
    fill(&store, other, b"1");
    store.split(table, b"b").unwrap();
    store.split(table, b"d").unwrap();
    fill(&store, table, b"2");
    let check = store.check_table(table).unwrap();
    assert_eq!(check.problems(), []);
    assert_eq!(check.tablets(), 3);
    let (files, bytes) = check.pending();
    let checked = finish(check);
    assert_eq!((files, checked.len()), (2, 2));
    assert_eq!(bytes, checked.iter().map(|file| file.report.bytes).sum::<u64>());
    for file in &checked {
        assert!(file.report.sound && file.problems.is_empty(), "{file:?}");
        assert_eq!((file.report.table.as_str(), file.report.rows), ("t", 4));
    }
    assert!(store.check_table(TableId(99)).is_err());
}

#[test]
fn damage_is_found_in_a_table_that_is_in_use_and_others_are_sound() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (table, other) = (create(&store, "t"), create(&store, "other"));
    fill(&store, table, b"1");
    fill(&store, other, b"1");
    let path = paths(&finish(store.check_table(table).unwrap()))[0].clone();
    let mut bytes = fs::read(&path).unwrap();
    bytes[10] ^= 1;
    fs::write(&path, bytes).unwrap();
    let checked = finish(store.check_table(table).unwrap());
    assert!(!checked[0].report.sound);
    assert_eq!(checked[0].problems[0].path, path);
    assert!(finish(store.check_table(other).unwrap())[0].report.sound);
    fs::remove_file(&path).unwrap();
    let checked = finish(store.check_table(table).unwrap());
    assert!(checked[0].problems[0].what.contains("missing"), "{checked:?}");
}

#[test]
fn files_stay_until_they_are_checked_though_the_table_no_longer_needs_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let table = create(&store, "t");
    fill(&store, table, b"1");
    fill(&store, table, b"2");
    let replaced = paths(&finish(store.check_table(table).unwrap()));
    let mut check = store.check_table(table).unwrap();
    store.compact(table).unwrap();
    assert_eq!(store.stats().fragments, 1);
    assert!(replaced.iter().all(|path| path.exists()));
    let first = check.check_next().unwrap().unwrap();
    assert!(first.report.sound && !first.report.path.exists(), "{first:?}");
    store.drop_table(table).unwrap();
    assert!(finish(check)[0].report.sound);
    assert!(!replaced.iter().any(|path| path.exists()));
}

#[test]
fn the_tablets_of_a_table_are_compacted_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let table = create(&store, "t");
    store.split(table, b"c").unwrap();
    fill(&store, table, b"1");
    fill(&store, table, b"2");
    let runs = || -> Vec<usize> {
        let tablets = store.tablets(table).unwrap();
        tablets.iter().map(|tablet| tablet.chains[0].runs).collect()
    };
    assert_eq!(runs(), [2, 2]);
    let next = store.compact_tablet(table, b"").unwrap();
    assert_eq!((next.as_deref(), runs()), (Some(&b"c"[..]), vec![1, 2]));
    let next = store.compact_tablet(table, b"c").unwrap();
    assert_eq!((next, runs()), (None, vec![1, 1]));
    assert_eq!(store.tablet_count(table).unwrap(), 2);
    let summaries = store.tablet_summaries();
    let sizes: Vec<u64> =
        store.tablets(table).unwrap().iter().map(|tablet| tablet.disk_bytes).collect();
    assert_eq!((summaries[0].table.as_str(), summaries[0].tablets), ("t", 2));
    assert_eq!(summaries[0].disk_bytes, sizes.iter().sum::<u64>());
    assert_eq!(Some(&summaries[0].largest_bytes), sizes.iter().max());
    store.join(table, b"c").unwrap();
    let stats = store.stats();
    assert_eq!((stats.tablet_splits, stats.tablet_joins, stats.tablets), (1, 1, 1));
}
