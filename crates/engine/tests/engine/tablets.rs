//! Tables of several tablets: what splits, joins and shared files keep and change.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use stele_engine::config::{FileName, Reference, TabletConfig};
use stele_engine::schema::{Family, Schema};
use stele_engine::verify;
use stele_engine::world::Files;
use stele_engine::world::sim::SimFiles;
use stele_engine::*;

use crate::simulated::open;

fn schema() -> Schema {
    Schema::with_families([Family::new("f")]).unwrap()
}

fn row(number: usize) -> Vec<u8> {
    format!("row{number:05}").into_bytes()
}

/// Adds 1 to a counter in each row of a range.
fn add(store: &Store, table: TableId, rows: std::ops::Range<usize>) {
    let mut commit = CommitBuilder::new();
    commit.table(table);
    for number in rows {
        commit.row(&row(number)).merge(FoldId::SUM, b"f", b"", 0, &1i64.to_be_bytes());
    }
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
}

/// Returns the counters, in scan order.
fn counters(store: &Store, table: TableId, reverse: bool) -> Vec<(Vec<u8>, i64)> {
    let mut found = Vec::new();
    let spec = ScanSpec { reverse, ..ScanSpec::default() };
    let read = store.read(table, spec, |cell| {
        found.push((cell.row.to_vec(), i64::from_be_bytes(cell.value.try_into().unwrap())));
    });
    read.unwrap();
    found
}

fn assert_counters(store: &Store, table: TableId, expected: &[(usize, i64)]) {
    let expected: Vec<_> = expected.iter().map(|&(number, count)| (row(number), count)).collect();
    assert_eq!(counters(store, table, false), expected);
    let reversed: Vec<_> = expected.iter().rev().cloned().collect();
    assert_eq!(counters(store, table, true), reversed);
    for (row, count) in &expected {
        let mut found = 0;
        let read = store.read_row(table, row, &ScanSpec::default(), |cell| {
            found = i64::from_be_bytes(cell.value.try_into().unwrap());
        });
        read.unwrap();
        assert_eq!(found, *count);
    }
}

fn tablets(store: &Store, table: TableId) -> Vec<TabletConfig> {
    let configs = store.configs().unwrap();
    configs.tables[&table].tablets.iter().map(|tablet| (**tablet).clone()).collect()
}

fn references(store: &Store, table: TableId) -> Vec<Reference> {
    tablets(store, table).iter().flat_map(|tablet| tablet.files().cloned()).collect()
}

fn names(store: &Store, table: TableId) -> BTreeSet<FileName> {
    references(store, table).iter().map(|file| file.name).collect()
}

fn on_disk(sim: &SimFiles) -> usize {
    sim.list(&Path::new("/store").join(FRAGMENTS_DIR)).unwrap().len()
}

fn check(sim: &SimFiles) {
    let files: Arc<dyn Files> = Arc::new(sim.clone());
    let report = verify::check(&files, Path::new("/store")).unwrap();
    assert!(report.is_sound() && report.garbage.is_empty(), "{report:?}");
}

#[test]
fn scale_2_5_a_flush_writes_one_file_whatever_the_number_of_tablets() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let splits = (1..200).map(|number| row(number * 10)).collect();
    let table = store.create_table_with_splits("t", schema(), splits).unwrap();
    assert_eq!(store.stats().tablets, 200);
    add(&store, table, 300..1200);
    store.flush(table).unwrap();
    assert_eq!((names(&store, table).len(), store.stats().fragments), (1, 1));
    // Only tablets with rows in the file refer to it.
    let with_files = tablets(&store, table).into_iter().filter(|tablet| tablet.files().count() > 0);
    assert_eq!(with_files.count(), 90);
    let mut expected: Vec<_> = (300..1200).map(|number| (number, 1)).collect();
    assert_counters(&store, table, &expected);
    let shares: u64 = references(&store, table).iter().map(|file| file.share).sum();
    let bytes = references(&store, table)[0].bytes;
    assert!(shares > 0 && shares <= bytes * 90, "{shares} of {bytes}");
    // A delete of a range reaches every tablet in it, again in one file.
    let mut delete = CommitBuilder::new();
    delete.table(table).delete_range(&RowRange::new(row(300), row(1100)));
    store.apply(&delete.finish(), Txn::MAX, Durability::Durable).unwrap();
    add(&store, table, 1990..2000);
    store.flush(table).unwrap();
    assert_eq!(names(&store, table).len(), 2);
    expected = (1100..1200).chain(1990..2000).map(|number| (number, 1)).collect();
    assert_counters(&store, table, &expected);
    store.compact(table).unwrap();
    assert_counters(&store, table, &expected);
    store.close().unwrap();
    check(&sim);
    let store = open(&sim, Options::default());
    assert_counters(&store, table, &expected);
    assert_eq!(names(&store, table).len(), on_disk(&sim));
}

#[test]
fn scale_6_2_a_split_and_a_join_rewrite_nothing_and_the_upper_tablet_keeps_its_id() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let table = store.create_table("t", schema()).unwrap();
    add(&store, table, 0..100);
    store.flush(table).unwrap();
    add(&store, table, 50..100);
    store.flush(table).unwrap();
    add(&store, table, 0..10);
    let whole = tablets(&store, table)[0].clone();
    let files = names(&store, table);
    assert!(store.split(table, &row(50)).unwrap());
    assert!(!store.split(table, &row(50)).unwrap(), "it is a boundary already");
    let halves = tablets(&store, table);
    let [lower, upper] = &halves[..] else { panic!("{halves:?}") };
    assert_eq!((upper.id, upper.load), (whole.id, whole.load + 1));
    assert!(lower.id.number > whole.id.number && lower.load == 1);
    assert_eq!(names(&store, table), files);
    // The second file has no row of the lower tablet.
    assert_eq!((lower.files().count(), upper.files().count()), (1, 2));
    assert!(halves.iter().flat_map(TabletConfig::files).all(|file| file.rows.is_none()));
    assert!(lower.files().all(|file| file.share < file.bytes));
    let expected: Vec<_> =
        (0..100).map(|number| (number, if (10..50).contains(&number) { 1 } else { 2 })).collect();
    assert_counters(&store, table, &expected);
    let infos = store.tablets(table).unwrap();
    assert_eq!(infos[0].rows, RowRange { start: Vec::new(), end: Some(row(50)) });
    assert_eq!(infos[1].id, whole.id);
    store.join(table, &row(50)).unwrap();
    let joined = tablets(&store, table)[0].clone();
    assert_eq!((joined.id, joined.load), (whole.id, whole.load + 2));
    let key = |tablet: &TabletConfig| tablet.files().map(Reference::key).collect::<Vec<_>>();
    assert_eq!(key(&joined), key(&whole), "the references are as before");
    assert_counters(&store, table, &expected);
    store.close().unwrap();
    check(&sim);
    assert_counters(&open(&sim, Options::default()), table, &expected);
}

#[test]
fn scale_6_3_rows_deleted_in_one_half_stay_deleted_after_a_join() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let table = store.create_table("t", schema()).unwrap();
    add(&store, table, 0..100);
    store.flush(table).unwrap();
    let shared = references(&store, table)[0].name;
    store.split(table, &row(50)).unwrap();
    let mut delete = CommitBuilder::new();
    delete.table(table).delete_range(&RowRange::new(row(10), row(50)));
    store.apply(&delete.finish(), Txn::MAX, Durability::Durable).unwrap();
    store.flush(table).unwrap();
    store.compact(table).unwrap();
    // Both halves were rewritten, and nothing refers to the shared file.
    assert!(!names(&store, table).contains(&shared));
    assert_eq!(names(&store, table).len(), on_disk(&sim));
    add(&store, table, 40..60);
    store.flush(table).unwrap();
    store.join(table, &row(50)).unwrap();
    let expected: Vec<_> = (0..10)
        .map(|number| (number, 1))
        .chain((40..50).map(|number| (number, 1)))
        .chain((50..100).map(|number| (number, if number < 60 { 2 } else { 1 })))
        .collect();
    assert_counters(&store, table, &expected);
    store.compact(table).unwrap();
    assert_counters(&store, table, &expected);
    assert_eq!(store.stats().chain_longest, 1);
    store.close().unwrap();
    check(&sim);
}

#[test]
fn scale_2_9_a_joined_tablet_is_not_taken_for_an_unfinished_compaction() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let table = store.create_table_with_splits("t", schema(), vec![row(50)]).unwrap();
    for _ in 0..3 {
        add(&store, table, 0..100);
        store.flush(table).unwrap();
    }
    // One half is compacted into a run whose txns span those of all runs of the other.
    store.split(table, &row(70)).unwrap();
    store.split(table, &row(90)).unwrap();
    store.join(table, &row(90)).unwrap();
    store.join(table, &row(70)).unwrap();
    let mut small = CommitBuilder::new();
    small.table(table).row(&row(0)).merge(FoldId::SUM, b"f", b"", 0, &0i64.to_be_bytes());
    store.apply(&small.finish(), Txn::MAX, Durability::Durable).unwrap();
    store.flush(table).unwrap();
    assert!(store.step().unwrap(), "four runs of the lower tablet are due");
    while store.step().unwrap() {}
    let lengths: Vec<usize> =
        tablets(&store, table).iter().map(|tablet| tablet.chains[0].runs().count()).collect();
    assert_eq!(lengths, [1, 3]);
    let before = store.stats().compaction_parts;
    store.join(table, &row(50)).unwrap();
    assert!(references(&store, table).iter().all(|file| file.unit == 0));
    assert_eq!(store.stats().chain_longest, 3, "the runs are paired by age");
    assert!(!store.step().unwrap(), "three runs are not due");
    assert_eq!(store.stats().compaction_parts, before);
    let expected: Vec<_> = (0..100).map(|number| (number, 3)).collect();
    assert_counters(&store, table, &expected);
    store.close().unwrap();
    check(&sim);
}

#[test]
fn scale_2_10_replay_skips_what_was_flushed_before_a_split_or_a_join() {
    for joins in [false, true] {
        let sim = SimFiles::new(1);
        let store = open(&sim, Options::default());
        let table = store.create_table_with_splits("t", schema(), vec![row(50)]).unwrap();
        add(&store, table, 0..100);
        store.flush(table).unwrap();
        add(&store, table, 0..100);
        if joins {
            store.join(table, &row(50)).unwrap();
        } else {
            store.split(table, &row(20)).unwrap();
        }
        add(&store, table, 10..90);
        drop(store);
        let expected: Vec<_> =
            (0..100).map(|n| (n, if (10..90).contains(&n) { 3 } else { 2 })).collect();
        let store = open(&sim.crash(), Options::default());
        assert_eq!(store.tablets(table).unwrap().len(), if joins { 1 } else { 3 });
        assert_counters(&store, table, &expected);
    }
}

#[test]
fn scale_6_2_a_thousand_splits_and_joins_leave_the_references_as_they_were() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let table = store.create_table("t", schema()).unwrap();
    for _ in 0..3 {
        add(&store, table, 0..100);
        store.flush(table).unwrap();
    }
    let keys =
        |store: &Store| -> Vec<_> { references(store, table).iter().map(Reference::key).collect() };
    let before = keys(&store);
    for round in 0..1000usize {
        let at = row(1 + round * 37 % 99);
        assert!(store.split(table, &at).unwrap());
        store.join(table, &at).unwrap();
    }
    assert_eq!(keys(&store), before);
    let expected: Vec<_> = (0..100).map(|number| (number, 3)).collect();
    assert_counters(&store, table, &expected);
    assert!(store.configs().unwrap().last_tablet >= 1001, "no id is used twice");
    store.close().unwrap();
    check(&sim);
}

#[test]
fn scale_6_2_invalid_splits_and_joins_are_refused_and_change_nothing() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let invalid = |outcome: Result<()>| matches!(outcome, Err(Error::InvalidSplit(_)));
    for splits in [vec![row(2), row(1)], vec![row(1), row(1)], vec![Vec::new()]] {
        let outcome = store.create_table_with_splits("t", schema(), splits).map(|_| ());
        assert!(invalid(outcome));
    }
    let table = store.create_table_with_splits("t", schema(), vec![row(5)]).unwrap();
    let revision = store.configs().unwrap().revision;
    assert!(invalid(store.split(table, b"").map(|_| ())));
    assert!(invalid(store.join(table, b"")));
    assert!(invalid(store.join(table, &row(4))));
    let long = vec![b'x'; Options::default().limits.row_bytes_max + 1];
    assert!(matches!(store.split(table, &long), Err(Error::TooLarge { .. })));
    assert!(matches!(store.split(TableId(99), &row(1)), Err(Error::UnknownTable(_))));
    assert_eq!(store.configs().unwrap().revision, revision);
}

#[test]
fn scale_2_8_a_lost_file_fails_reads_of_its_rows_only_and_in_its_tablets_only() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let table = store.create_table_with_splits("t", schema(), vec![row(50)]).unwrap();
    add(&store, table, 0..40);
    store.flush(table).unwrap();
    let lost = references(&store, table)[0].name;
    add(&store, table, 60..100);
    store.flush(table).unwrap();
    store.split(table, &row(20)).unwrap();
    store.close().unwrap();
    sim.remove(&Path::new("/store").join(FRAGMENTS_DIR).join(lost.to_string())).unwrap();
    let store = open(&sim, Options::default());
    let count = |range: RowRange| {
        let mut rows = 0;
        store.read(table, ScanSpec::range(range), |_| rows += 1).map(|_| rows)
    };
    assert_eq!(count(RowRange::from(row(50))).unwrap(), 40);
    assert_eq!(count(RowRange::new(row(40), row(60))).unwrap(), 0);
    for range in [RowRange::new(row(0), row(5)), RowRange::new(row(30), row(31))] {
        assert!(matches!(count(range), Err(Error::DataLoss { .. })));
    }
    // The bounds change without the file.
    store.split(table, &row(10)).unwrap();
    store.join(table, &row(20)).unwrap();
    store.join(table, &row(50)).unwrap();
    assert_eq!(count(RowRange::from(row(50))).unwrap(), 40);
    assert!(matches!(count(RowRange::new(row(30), row(31))), Err(Error::DataLoss { .. })));
}
