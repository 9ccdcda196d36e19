//! A store with an external log: after any crash it is exactly as of its flushed index,
//! over all chains of all tables, and reapplying the later entries restores everything.
//!
//! `STELE_SEED=n` runs one seed, `STELE_LONG=1` twenty times as many.

mod life;

use std::path::Path;
use std::sync::Arc;

use crate::support::power::Powered;
use crate::support::tally::run_seeds;
use life::{DIR, Machine, Tally};
use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::{Operation, SimFiles, disk_error, disk_full};
use stele_engine::world::{ManualClock, SeededRandom, Threads, World};
use stele_engine::*;

const SEEDS: u64 = 60;
const LIVES: u64 = 8;

fn run(seed: u64) -> Tally {
    let mut machine = Machine::new(seed);
    for _ in 0..LIVES {
        machine.live();
    }
    machine.tally
}

#[test]
fn after_every_death_the_store_is_as_of_its_flushed_index() {
    run_seeds(&[], SEEDS, SEEDS / 4, run);
}

fn sim_store(sim: &SimFiles) -> (Store, TableId) {
    let store = Store::open_external(
        Path::new(DIR),
        Options::default(),
        Powered::new(sim.clone()).world(1),
    )
    .unwrap();
    let table = store.table("t").unwrap_or_else(|| {
        let schema = Schema::with_families([Family::new("f")]).unwrap();
        store.create_table("t", schema).unwrap()
    });
    (store, table)
}

fn set(table: TableId, row: &[u8], value: &[u8]) -> Commit {
    let mut commit = CommitBuilder::new();
    commit.table(table).row(row).set(b"f", b"", 1, value);
    commit.finish()
}

fn values(store: &Store, table: TableId, view: View) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let spec = ScanSpec { view, ..ScanSpec::default() };
    store.read(table, spec, |cell| found.push(cell.value.to_vec())).unwrap();
    found
}

#[test]
fn a_commit_is_seen_by_every_view_at_once() {
    let (store, table) = sim_store(&SimFiles::new(1));
    store.apply_at(&set(table, b"r", b"one"), 5).unwrap();
    assert_eq!(values(&store, table, View::Durable), [b"one"]);
    assert_eq!(values(&store, table, View::Latest), [b"one"]);
    let held = store.snapshot();
    store.apply_at(&set(table, b"r", b"two"), 9).unwrap();
    assert_eq!(values(&store, table, View::At(held)), [b"one"]);
    assert_eq!(values(&store, table, View::Durable), [b"two"]);
    assert_eq!((store.applied_index(), store.flushed_index()), (9, 0));
}

#[test]
fn cells_of_an_emptied_family_do_not_come_back_when_the_log_is_applied_again() {
    let sim = SimFiles::new(1);
    let (store, table) = sim_store(&sim);
    let commits = [set(table, b"r", b"gone"), set(table, b"s", b"kept")];
    store.apply_at(&commits[0], 1).unwrap();
    let schema = Schema::clone(&store.schema(table).unwrap());
    store.alter_table_emptying(table, schema, &[b"f"]).unwrap();
    store.apply_at(&commits[1], 2).unwrap();
    assert_eq!(values(&store, table, View::Latest), [b"kept"]);
    drop(store);

    let (store, table) = sim_store(&sim);
    for (commit, index) in commits.iter().zip(1..).filter(|at| at.1 > store.flushed_index()) {
        store.apply_at(commit, index).unwrap();
    }
    assert_eq!(values(&store, table, View::Latest), [b"kept"]);
}

#[test]
fn an_index_that_was_passed_is_refused() {
    let (store, table) = sim_store(&SimFiles::new(1));
    store.apply_at(&set(table, b"r", b"one"), 5).unwrap();
    for index in [0, 4, 5] {
        let refused = store.apply_at(&set(table, b"r", b"two"), index);
        assert!(matches!(refused, Err(Error::IndexPassed { applied: 5, .. })), "{refused:?}");
    }
    assert_eq!(values(&store, table, View::Latest), [b"one"]);
}

#[test]
fn a_store_is_opened_only_the_way_it_was_made() {
    let sim = SimFiles::new(1);
    drop(sim_store(&sim));
    let world = || Powered::new(sim.clone()).world(1);
    let refused = Store::open(Path::new(DIR), Options::default(), world()).err();
    assert!(matches!(refused, Some(Error::OtherLog { external: true, .. })), "{refused:?}");
    let own = Path::new("/own");
    drop(Store::open(own, Options::default(), world()).unwrap());
    let refused = Store::open_external(own, Options::default(), world()).err();
    assert!(matches!(refused, Some(Error::OtherLog { external: false, .. })), "{refused:?}");
}

#[test]
fn commits_without_an_index_are_refused_here_and_those_with_one_elsewhere() {
    let sim = SimFiles::new(1);
    let (store, table) = sim_store(&sim);
    let refused = store.apply(&set(table, b"r", b"v"), Txn::MAX, Durability::Durable);
    assert!(matches!(refused, Err(Error::HasExternalLog)), "{refused:?}");
    let world = Powered::new(sim.clone()).world(1);
    let own = Store::open(Path::new("/own"), Options::default(), world).unwrap();
    let refused = own.apply_at(&set(table, b"r", b"v"), 1);
    assert!(matches!(refused, Err(Error::HasOwnLog)), "{refused:?}");
}

#[test]
fn a_flush_that_failed_leaves_the_index_and_is_made_good_by_the_next() {
    for place in ["fragments", "manifest"] {
        for error in [disk_error(), disk_full()] {
            let sim = SimFiles::new(3);
            let (store, table) = sim_store(&sim);
            store.apply_at(&set(table, b"a", b"1"), 1).unwrap();
            sim.fail_next(Operation::Write, place, error);
            store.flush(table).unwrap_err();
            assert_eq!(store.flushed_index(), 0);
            store.apply_at(&set(table, b"b", b"2"), 2).unwrap();
            assert_eq!(values(&store, table, View::Latest), [b"1", b"2"]);
            store.flush(table).unwrap();
            assert_eq!(store.flushed_index(), 2);
            drop(store);
            let (store, table) = sim_store(&sim.crash());
            assert_eq!((store.flushed_index(), store.applied_index()), (2, 2));
            assert_eq!(values(&store, table, View::Latest), [b"1", b"2"]);
        }
    }
}

#[test]
fn closing_keeps_what_was_flushed_and_leaves_the_rest_to_the_callers_log() {
    let sim = SimFiles::new(3);
    let (store, table) = sim_store(&sim);
    store.apply_at(&set(table, b"a", b"1"), 1).unwrap();
    store.flush(table).unwrap();
    store.apply_at(&set(table, b"b", b"2"), 2).unwrap();
    store.close().unwrap();
    let (store, table) = sim_store(&sim);
    assert_eq!(store.applied_index(), 1);
    assert_eq!(values(&store, table, View::Latest), [b"1"]);
    store.apply_at(&set(table, b"b", b"2"), 2).unwrap();
    assert_eq!(values(&store, table, View::Latest), [b"1", b"2"]);
}

#[test]
fn commits_to_a_table_dropped_since_are_skipped_when_they_are_replayed() {
    let sim = SimFiles::new(3);
    let (store, table) = sim_store(&sim);
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let gone = store.create_table("gone", schema).unwrap();
    store.apply_at(&set(gone, b"a", b"1"), 1).unwrap();
    store.drop_table(gone).unwrap();
    drop(store);
    let (store, table_again) = sim_store(&sim.crash());
    assert_eq!(table_again, table);
    store.apply_at(&set(gone, b"a", b"1"), 1).unwrap();
    store.apply_at(&set(table, b"a", b"2"), 2).unwrap();
    assert_eq!(values(&store, table, View::Latest), [b"2"]);
}

#[test]
fn a_checkpoint_takes_the_pinned_tables_at_one_index() {
    let sim = SimFiles::new(3);
    let (store, table) = sim_store(&sim);
    store.apply_at(&set(table, b"a", b"1"), 4).unwrap();
    let checkpoint = store.checkpoint(&[table]).unwrap();
    assert_eq!(store.flushed_index(), 4);
    store.apply_at(&set(table, b"b", b"2"), 5).unwrap();
    let world = Powered::new(sim.clone()).world(1);
    let (to, from) = (Path::new("/copy"), Path::new(DIR));
    let copy = Store::open_from(to, &checkpoint, from, Options::default(), world).unwrap();
    assert_eq!(values(&copy, copy.table("t").unwrap(), View::Latest), [b"1"]);
}

/// With workers, a shortage of memory is relieved by flushing everything, and the
/// writer continues.
#[test]
fn a_writer_short_of_memory_waits_for_a_flush_of_all_tables_and_goes_on() {
    let sim = SimFiles::new(5);
    let mut options = Options::default();
    options.memory.budget_bytes = 64 << 10;
    let world = World {
        clock: Arc::new(ManualClock::at(1_000_000)),
        files: Arc::new(sim.clone()),
        random: Arc::new(SeededRandom::new(5)),
        spawner: Some(Arc::new(Threads)),
    };
    let store = Store::open_external(Path::new(DIR), options, world).unwrap();
    let schema = || Schema::with_families([Family::new("f")]).unwrap();
    let tables =
        [store.create_table("a", schema()).unwrap(), store.create_table("b", schema()).unwrap()];
    let value = [7; 1000];
    for index in 1..=300u64 {
        let table = tables[usize::from(index % 5 == 0)];
        store.apply_at(&set(table, &index.to_be_bytes(), &value), index).unwrap();
    }
    assert!(store.stats().flushes > 0, "300 kB do not fit in 64");
    let found: usize = tables.iter().map(|&table| values(&store, table, View::Latest).len()).sum();
    assert_eq!(found, 300);
    let flushed = store.flushed_index();
    drop(store);
    let world = Powered::new(sim.crash()).world(1);
    let store = Store::open_external(Path::new(DIR), Options::default(), world).unwrap();
    assert!(store.flushed_index() >= flushed);
    let kept: usize = tables.iter().map(|&table| values(&store, table, View::Latest).len()).sum();
    assert_eq!(kept as u64, store.flushed_index());
}

#[test]
fn a_store_without_a_log_is_sound_to_the_offline_check() {
    let sim = SimFiles::new(3);
    let (store, table) = sim_store(&sim);
    store.apply_at(&set(table, b"a", b"1"), 4).unwrap();
    store.flush(table).unwrap();
    store.close().unwrap();
    let files: Arc<dyn world::Files> = Arc::new(sim);
    let report = verify::check(&files, Path::new(DIR)).unwrap();
    assert!(report.is_sound() && report.garbage.is_empty(), "{report:?}");
}
