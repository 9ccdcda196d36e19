//! Loading and unloading tablets: what is refused meanwhile, what is kept, and what other
//! tablets notice.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use stele_engine::config::MANIFEST_FILE;
use stele_engine::schema::{Family, Group, Schema};
use stele_engine::verify;
use stele_engine::world::Files;
use stele_engine::world::sim::{Operation, SimFiles, disk_full};
use stele_engine::*;

use crate::simulated::{open, world};

const STATES: fn(&Store, TableId) -> Vec<TabletState> =
    |store, table| store.tablets(table).unwrap().iter().map(|tablet| tablet.state).collect();
const ACTIVE: TabletState = TabletState::Active;
const UNLOADED: TabletState = TabletState::Unloaded;

/// Returns a schema with two groups.
fn schema() -> Schema {
    let groups = ["f", "g"].map(|name| Group::new(name, [Family::new(name)]));
    Schema::new(groups.into()).unwrap()
}

/// Returns a store with a table of three tablets, which meet at rows `h` and `p`.
fn three_tablets() -> (SimFiles, Store, TableId) {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let splits = vec![b"h".to_vec(), b"p".to_vec()];
    let table = store.create_table_with_splits("t", schema(), splits).unwrap();
    (sim, store, table)
}

/// Adds 1 to a counter of each row, in both groups.
fn try_add(store: &Store, table: TableId, rows: &[&str], most: Txn) -> Result<Txn> {
    let mut commit = CommitBuilder::new();
    commit.table(table);
    for row in rows {
        let row = commit.row(row.as_bytes());
        row.merge(FoldId::SUM, b"f", b"", 0, &1i64.to_be_bytes());
        row.merge(FoldId::SUM, b"g", b"", 0, &1i64.to_be_bytes());
    }
    store.apply(&commit.finish(), most, Durability::Durable)
}

fn add(store: &Store, table: TableId, rows: &[&str]) -> Txn {
    try_add(store, table, rows, Txn::MAX).unwrap()
}

/// Returns the sum of all counters of each row.
fn counters(store: &Store, table: TableId, spec: ScanSpec) -> Result<Vec<(String, i64)>> {
    let mut found: Vec<(String, i64)> = Vec::new();
    store.read(table, spec, |cell| {
        let row = String::from_utf8(cell.row.to_vec()).unwrap();
        let count = i64::from_be_bytes(cell.value.try_into().unwrap());
        match found.last_mut().filter(|(last, _)| *last == row) {
            Some((_, sum)) => *sum += count,
            None => found.push((row, count)),
        }
    })?;
    Ok(found)
}

fn all(store: &Store, table: TableId) -> Result<Vec<(String, i64)>> {
    counters(store, table, ScanSpec::default())
}

fn pairs(expected: &[(&str, i64)]) -> Vec<(String, i64)> {
    expected.iter().map(|(row, count)| (row.to_string(), *count)).collect()
}

fn not_loaded<T: std::fmt::Debug>(outcome: Result<T>) -> NotLoaded {
    match outcome {
        Err(Error::TabletNotLoaded(tablet)) => *tablet,
        other => panic!("{other:?}"),
    }
}

fn check(sim: &SimFiles) {
    let files: Arc<dyn Files> = Arc::new(sim.clone());
    let report = verify::check(&files, Path::new("/store")).unwrap();
    assert!(report.is_sound() && report.garbage.is_empty(), "{report:?}");
}

fn middle() -> [RowRange; 1] {
    [RowRange::row(b"k")]
}

#[test]
fn scale_2_3_a_commit_with_one_row_that_is_not_loaded_fails_as_a_whole() {
    let (_, store, table) = three_tablets();
    add(&store, table, &["a", "k", "z"]);
    assert_eq!(store.unload(table, &middle()).unwrap(), 1);
    let refused = not_loaded(try_add(&store, table, &["a", "k"], Txn::MAX));
    assert_eq!((refused.row.0, refused.bounds), (b"k".to_vec(), RowRange::new("h", "p")));
    assert_eq!((refused.id, refused.load, refused.state), (table, 1, UNLOADED));
    for range in [RowRange::all(), RowRange::new("a", "i"), RowRange::new("o", "z")] {
        let mut delete = CommitBuilder::new();
        delete.table(table).delete_range(&range);
        not_loaded(store.apply(&delete.finish(), Txn::MAX, Durability::Durable));
    }
    // A commit that was admitted before is checked again.
    let mut late = CommitBuilder::new();
    late.table(table).row(b"z").set(b"f", b"late", 0, b"");
    let late = late.finish();
    let permit = store.try_admit(&late).unwrap().unwrap();
    assert_eq!(store.unload(table, &[RowRange::from("p")]).unwrap(), 1);
    not_loaded(store.apply_admitted(permit, &late, Txn::MAX));
    assert_eq!(store.load(table, &[RowRange::all()]).unwrap(), 2);
    assert_eq!(all(&store, table).unwrap(), pairs(&[("a", 2), ("k", 2), ("z", 2)]));
}

#[test]
fn scale_7_6_rows_of_an_unloaded_tablet_are_not_read_and_all_others_are() {
    let (_, store, table) = three_tablets();
    add(&store, table, &["a", "h", "k", "p", "z"]);
    let place = store.read_first(table, b"k", &View::Latest, None, |_| ()).unwrap();
    store.unload(table, &middle()).unwrap();
    not_loaded(store.read_row(table, b"k", &ScanSpec::default(), |_| ()));
    not_loaded(store.read_first(table, b"k", &View::Latest, place.place.as_ref(), |_| ()));
    not_loaded(all(&store, table));
    // Rows before the tablet, in the direction of the scan, are returned first.
    for (reverse, expected) in [(false, vec!["a"]), (true, vec!["z", "p"])] {
        let spec = ScanSpec { reverse, ..ScanSpec::default() };
        let mut scan = store.scan(table, spec).unwrap();
        let mut rows: Vec<String> = Vec::new();
        let mut sink = |cell: &CellView<'_>| {
            rows.push(String::from_utf8(cell.row.to_vec()).unwrap());
        };
        let end = scan.next_batch(BatchLimits::default(), &mut sink).unwrap();
        assert!(!end.done);
        not_loaded(scan.next_batch(BatchLimits::default(), &mut sink));
        rows.dedup();
        assert_eq!(rows, expected);
        // The scan goes on when the tablet is loaded.
        store.load(table, &middle()).unwrap();
        let mut rest = 0;
        while !scan.next_batch(BatchLimits::default(), &mut |_| rest += 1).unwrap().done {}
        assert_eq!(rest, 2 * (5 - expected.len()));
        store.unload(table, &middle()).unwrap();
    }
    let others = vec![RowRange::new("", "h"), RowRange::from("p")];
    let spec = ScanSpec { rows: others, ..ScanSpec::default() };
    assert_eq!(counters(&store, table, spec).unwrap(), pairs(&[("a", 2), ("p", 2), ("z", 2)]));
    add(&store, table, &["a", "z"]);
    store.flush(table).unwrap();
    store.compact(table).unwrap();
}

#[test]
fn scale_7_6_an_unload_leaves_nothing_to_replay_and_lasts_until_a_load() {
    for crashes in [false, true] {
        let (sim, store, table) = three_tablets();
        add(&store, table, &["a", "k"]);
        store.flush(table).unwrap();
        let last = add(&store, table, &["k", "z"]);
        store.unload(table, &middle()).unwrap();
        assert!(store.configs().unwrap().tables[&table].flushed.iter().all(|txn| *txn >= last));
        add(&store, table, &["a"]);
        let sim = if crashes {
            let survived = sim.crash();
            drop(store);
            survived
        } else {
            store.close().unwrap();
            sim
        };
        check(&sim);
        let store = open(&sim, Options::default());
        assert_eq!(STATES(&store, table), [ACTIVE, UNLOADED, ACTIVE]);
        not_loaded(try_add(&store, table, &["k"], Txn::MAX));
        // Operands that were replayed after their flush would count twice.
        assert_eq!(store.load(table, &middle()).unwrap(), 1);
        assert_eq!(all(&store, table).unwrap(), pairs(&[("a", 4), ("k", 4), ("z", 2)]));
        add(&store, table, &["k"]);
        let survived = sim.crash();
        drop(store);
        let store = open(&survived, Options::default());
        assert_eq!(STATES(&store, table), [ACTIVE; 3]);
        assert_eq!(all(&store, table).unwrap(), pairs(&[("a", 4), ("k", 6), ("z", 2)]));
        store.close().unwrap();
        check(&survived);
    }
}

#[test]
fn scale_7_6_a_list_is_loaded_or_unloaded_by_one_change_and_repeating_it_does_nothing() {
    let sim = SimFiles::new(1);
    let store = open(&sim, Options::default());
    let splits = (1..=99u8).map(|number| vec![number]).collect();
    let table = store.create_table_with_splits("t", schema(), splits).unwrap();
    let mut commit = CommitBuilder::new();
    commit.table(table);
    for number in 0..100u8 {
        commit.row(&[number]).set(b"f", b"", 0, b"v");
    }
    store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
    let revision = || store.configs().unwrap().revision;
    let before = revision();
    let list = [RowRange::new([10], [20]), RowRange::row(&[15]), RowRange::from([90])];
    assert_eq!(store.unload(table, &list).unwrap(), 20);
    assert_eq!((store.stats().flushes, revision()), (1, before + 2), "one flush, one change");
    assert_eq!(store.unload(table, &list).unwrap(), 0);
    assert_eq!(store.load(table, &[RowRange::new([20], [90])]).unwrap(), 0);
    assert_eq!(revision(), before + 2);
    assert_eq!(store.load(table, &[RowRange::all()]).unwrap(), 20);
    assert_eq!((revision(), store.load(table, &list).unwrap()), (before + 3, 0));
    let loads: Vec<u64> = store.tablets(table).unwrap().iter().map(|tablet| tablet.load).collect();
    assert_eq!(loads.iter().filter(|&&load| load == 2).count(), 20, "{loads:?}");
    assert_eq!(store.unload(table, &[]).unwrap(), 0);
    assert!(matches!(store.load(TableId(99), &list), Err(Error::UnknownTable(_))));
}

#[test]
fn scale_2_4_what_was_read_before_a_load_conflicts_in_that_tablet_only() {
    let (_, store, table) = three_tablets();
    add(&store, table, &["a", "k"]);
    let read_at = add(&store, table, &["z"]);
    let place = store.read_first(table, b"k", &View::Latest, None, |_| ()).unwrap();
    store.unload(table, &middle()).unwrap();
    add(&store, table, &["p"]);
    store.load(table, &middle()).unwrap();
    let conflicts = |outcome: Result<Txn>| matches!(outcome, Err(Error::MutationConflict { .. }));
    assert!(conflicts(try_add(&store, table, &["k"], read_at)));
    assert!(conflicts(try_add(&store, table, &["i"], read_at)), "an absent row of the tablet");
    assert!(try_add(&store, table, &["a"], read_at).is_ok());
    let mut delete = CommitBuilder::new();
    delete.table(table).delete_range(&RowRange::new("h", "i"));
    assert!(conflicts(store.apply(&delete.finish(), read_at, Durability::Durable)));
    let first = store.read_first(table, b"k", &View::Latest, place.place.as_ref(), |_| ()).unwrap();
    assert!(!first.by_place, "a place from before the load is not trusted");
    let read_at = store.progress().1;
    assert!(try_add(&store, table, &["k"], read_at).is_ok());
}

#[test]
fn scale_7_6_tables_with_unloaded_tablets_are_altered_backed_up_and_dropped() {
    let (sim, store, table) = three_tablets();
    add(&store, table, &["a", "k"]);
    store.unload(table, &middle()).unwrap();
    for outcome in
        [store.split(table, b"k").map(drop), store.join(table, b"h"), { store.join(table, b"p") }]
    {
        not_loaded(outcome);
    }
    let groups = ["f", "g"].map(|name| {
        let families = if name == "f" { vec![Family::new("f")] } else { vec![Family::new("x")] };
        Group::new(name, families)
    });
    store.alter_table(table, Schema::new(groups.into()).unwrap()).unwrap();
    let checkpoint = store.checkpoint(&[table]).unwrap();
    let copy = Path::new("/copy");
    let source = Path::new("/store");
    let restored =
        Store::open_from(copy, &checkpoint, source, Options::default(), world(&sim)).unwrap();
    assert_eq!(all(&restored, table).unwrap(), pairs(&[("a", 1), ("k", 1)]), "all is served");
    store.release_checkpoint(checkpoint.id).unwrap();
    store.load(table, &middle()).unwrap();
    // The family that was dropped is gone in the unloaded tablet, too.
    assert_eq!(all(&store, table).unwrap(), pairs(&[("a", 1), ("k", 1)]));
    store.unload(table, &[RowRange::all()]).unwrap();
    store.drop_table(table).unwrap();
    assert!(sim.list(&source.join(FRAGMENTS_DIR)).unwrap().is_empty());
    assert!(matches!(store.load(table, &middle()), Err(Error::UnknownTable(_))));
}

#[test]
fn scale_7_6_an_unload_or_load_that_fails_leaves_the_tablets_as_they_were() {
    let faults = [(Operation::Create, FRAGMENTS_DIR), (Operation::Write, MANIFEST_FILE)];
    for (operation, path) in faults {
        let (sim, store, table) = three_tablets();
        add(&store, table, &["a", "k"]);
        sim.fail_next(operation, path, disk_full());
        let error = store.unload(table, &middle()).unwrap_err();
        assert!(matches!(error, Error::DiskFull { .. }), "{error}");
        assert_eq!(STATES(&store, table), [ACTIVE; 3]);
        add(&store, table, &["k"]);
        assert_eq!(all(&store, table).unwrap(), pairs(&[("a", 2), ("k", 4)]));
        assert_eq!(store.unload(table, &middle()).unwrap(), 1);
        if operation == Operation::Write {
            sim.fail_next(operation, path, disk_full());
            assert!(matches!(store.load(table, &middle()), Err(Error::DiskFull { .. })));
            assert!(!store.any_loading());
            assert_eq!(STATES(&store, table)[1], UNLOADED);
        }
        store.load(table, &middle()).unwrap();
        assert_eq!(all(&store, table).unwrap(), pairs(&[("a", 2), ("k", 4)]));
        store.close().unwrap();
        check(&sim);
    }
}

/// Polls a wait once.
fn poll(wait: &mut (impl Future<Output = Result<()>> + Unpin)) -> Poll<Result<()>> {
    pin!(wait).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn scale_7_6_requests_to_a_loading_tablet_wait_with_a_limit_and_others_do_not() {
    for fails in [false, true] {
        let sim = SimFiles::new(1);
        let mut options = Options::default();
        options.loads.waiters_max = 2;
        let store = open(&sim, options);
        let splits = vec![b"h".to_vec(), b"p".to_vec()];
        let table = store.create_table_with_splits("t", schema(), splits).unwrap();
        add(&store, table, &["a", "k"]);
        store.unload(table, &middle()).unwrap();
        assert!(
            poll(&mut store.loaded(table, b"k")).is_ready(),
            "an unloaded tablet is not waited for"
        );
        let held = sim.hold(Operation::Write, MANIFEST_FILE, "loader");
        if fails {
            sim.fail_next(Operation::Write, MANIFEST_FILE, disk_full());
        }
        std::thread::scope(|scope| {
            let loader = std::thread::Builder::new().name("loader".into());
            let load = loader.spawn_scoped(scope, || store.load(table, &middle())).unwrap();
            held.wait_until_waiting();
            let mut waits = [store.loaded(table, b"k"), store.loaded(table, b"i")];
            assert!(waits.iter_mut().all(|wait| poll(wait).is_pending()));
            let Poll::Ready(refused) = poll(&mut store.loaded(table, b"k")) else {
                panic!("two wait already")
            };
            let refused = not_loaded(refused);
            assert!(refused.state.is_loading() && refused.retry_after().is_some());
            let error = Error::TabletNotLoaded(Box::new(refused));
            assert!(error.is_retryable() && error.kind() == ErrorKind::Unavailable);
            // An abandoned request no longer counts, and other tablets are served.
            let [first, second] = waits;
            drop(second);
            let mut third = store.loaded(table, b"k");
            assert!(poll(&mut third).is_pending());
            assert!(poll(&mut store.loaded(table, b"a")).is_ready());
            add(&store, table, &["a", "z"]);
            not_loaded(store.read_row(table, b"k", &ScanSpec::default(), |_| ()));
            drop(held);
            assert_eq!(load.join().unwrap().is_err(), fails);
            for mut wait in [first, third] {
                assert!(matches!(poll(&mut wait), Poll::Ready(Ok(()))), "every waiter is woken");
            }
        });
        let read = store.read_row(table, b"k", &ScanSpec::default(), |_| ());
        assert_eq!(read.is_err(), fails);
    }
}

#[test]
fn scale_7_6_a_request_waits_for_a_loading_tablet_for_a_limited_time() {
    let sim = SimFiles::new(1);
    let mut options = Options::default();
    options.loads.wait_max = Duration::from_millis(5);
    let store = open(&sim, options);
    let table = store.create_table("t", schema()).unwrap();
    store.unload(table, &middle()).unwrap();
    let held = sim.hold(Operation::Write, MANIFEST_FILE, "loader");
    std::thread::scope(|scope| {
        let loader = std::thread::Builder::new().name("loader".into());
        let load = loader.spawn_scoped(scope, || store.load(table, &middle())).unwrap();
        held.wait_until_waiting();
        let mut wait = store.loaded(table, b"k");
        let begun = Instant::now();
        let refused = loop {
            match poll(&mut wait) {
                Poll::Ready(outcome) => break not_loaded(outcome),
                Poll::Pending => std::thread::yield_now(),
            }
        };
        assert!(begun.elapsed() >= Duration::from_millis(5) && refused.state.is_loading());
        drop(held);
        assert_eq!(load.join().unwrap().unwrap(), 1);
    });
}
