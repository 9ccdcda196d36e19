//! The background worker pool: failures surface as errors, a damaged or busy chain does
//! not delay another, and runs without a common row are joined without a rewrite.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::{Fault, Operation, SimFiles, disk_error};
use stele_engine::world::{Files, ManualClock, SeededRandom, Spawner, SystemClock, Threads, World};
use stele_engine::*;

/// Longer than anything here takes unless it hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

fn options() -> Options {
    let mut options = Options::default();
    options.memory.budget_bytes = 1 << 20;
    options.flush.fragment_bytes = 64 << 20;
    options.compact.chain_min = 4;
    options.admission.wait_max = HANG_TIMEOUT * 2;
    options
}

fn world(files: Arc<dyn Files>, spawner: Option<Arc<dyn Spawner>>) -> World {
    let random = Arc::new(SeededRandom::new(1));
    match spawner {
        None => World { clock: Arc::new(ManualClock::at(1_000_000)), files, random, spawner },
        Some(_) => World { clock: Arc::new(SystemClock::new()), files, random, spawner },
    }
}

fn open(sim: &SimFiles, options: Options) -> Store {
    let world = world(Arc::new(sim.clone()), Some(Arc::new(Threads)));
    Store::open(Path::new("/store"), options, world).unwrap()
}

fn create_table(store: &Store, name: &str) -> TableId {
    store.create_table(name, Schema::with_families([Family::new("f")]).unwrap()).unwrap()
}

fn commit(table: TableId, row: &str, value_bytes: usize) -> Commit {
    let random = SeededRandom::new(row.len() as u64);
    let value: Vec<u8> =
        (0..value_bytes).map(|_| stele_engine::world::Random::next_u64(&random) as u8).collect();
    let mut commit = CommitBuilder::new();
    commit.table(table).row(row.as_bytes()).set(b"f", b"", 0, &value);
    commit.finish()
}

fn write(store: &Store, table: TableId, row: &str, value_bytes: usize) -> Result<Txn> {
    store.apply(&commit(table, row, value_bytes), Txn::MAX, Durability::Durable)
}

fn rows(store: &Store, table: TableId) -> Vec<String> {
    let mut found = Vec::new();
    let row = |cell: &CellView<'_>| String::from_utf8(cell.row.to_vec()).unwrap();
    store.read(table, ScanSpec::default(), |cell| found.push(row(cell))).unwrap();
    found
}

fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < HANG_TIMEOUT, "{what} never comes");
        thread::yield_now();
    }
}

fn chain(store: &Store, table: TableId) -> usize {
    let configs = store.configs().unwrap();
    configs.tables[&table].tablets[0].chains[0].runs().count()
}

/// Writes more than fits in memory; returns the error that ends it.
fn write_until_refused(store: &Store, table: TableId) -> Error {
    for number in 0..100 {
        if let Err(error) = write(store, table, &format!("{number:03}"), 100_000) {
            return error;
        }
    }
    panic!("ten times the memory was taken");
}

#[test]
fn a_manifest_that_cannot_be_synced_stops_the_store_and_nobody_waits_for_ever() {
    let sim = SimFiles::new(1);
    let store = open(&sim, options());
    let table = create_table(&store, "t");
    write(&store, table, "before", 10).unwrap();
    assert!(store.failure().is_none());
    sim.fail_next(Operation::Sync, "manifest", disk_error());
    let error = write_until_refused(&store, table);
    assert!(matches!(error, Error::Stopped(_)), "{error}");
    assert!(matches!(store.failure(), Some(Error::Stopped(_))));
    assert_eq!(rows(&store, table).last().unwrap(), "before", "reads go on");
}

#[test]
fn a_flush_that_keeps_failing_is_reported_to_writers_and_ends_with_its_cause() {
    let sim = SimFiles::new(1);
    let store = open(&sim, options());
    let table = create_table(&store, "t");
    sim.fail_always(Operation::Create, "frag", Fault::OpenFiles);
    let begun = Instant::now();
    let error = write_until_refused(&store, table);
    assert!(matches!(&error, Error::Io { .. }), "{error}");
    assert!(error.to_string().contains("open files"), "{error}");
    assert!(begun.elapsed() < HANG_TIMEOUT);
    assert!(store.failure().is_some() && !store.work_failures().is_empty());
    sim.clear_faults();
    until("the next flush", || store.failure().is_none());
    write(&store, table, "after", 100_000).unwrap();
}

#[test]
fn a_compaction_that_keeps_failing_ends_the_wait_of_its_writers_and_is_reported() {
    let sim = SimFiles::new(1);
    let mut options = options();
    options.compact.chain_slow = 6;
    options.compact.chain_stop = 6;
    let store = open(&sim, options);
    let (table, other) = (create_table(&store, "t"), create_table(&store, "other"));
    // A worker of either lane; the flushes below run on this thread.
    let held = sim.hold_first(Operation::Create, "", "stele-");
    for number in 0..6 {
        write(&store, table, &format!("r{}", number % 2), 1000).unwrap();
        store.flush(table).unwrap();
    }
    until("the compaction", || held.waiting() > 0);
    assert!(store.stalled_tables().is_empty(), "it has not failed yet");
    sim.fail_always(Operation::Create, "frag", Fault::OpenFiles);
    drop(held);
    let begun = Instant::now();
    let error = write(&store, table, "r", 10).unwrap_err();
    assert!(error.to_string().contains("open files"), "{error}");
    assert!(begun.elapsed() < HANG_TIMEOUT);
    let stalled = store.stalled_tables();
    assert_eq!(stalled.len(), 1, "{stalled:?}");
    assert_eq!(stalled[0].0, "t");
    write(&store, other, "r", 10).unwrap();
    sim.clear_faults();
    until("the next compaction", || store.stalled_tables().is_empty());
    write(&store, table, "after", 10).unwrap();
}

#[test]
fn a_file_that_cannot_be_read_stops_no_writer_and_no_other_chain() {
    let sim = SimFiles::new(1);
    let mut options = options();
    options.memory.cache_bytes = 0;
    options.compact.chain_min = 4;
    options.compact.chain_slow = 6;
    options.compact.chain_stop = 8;
    let store = open(&sim, options);
    let (bad, good) = (create_table(&store, "bad"), create_table(&store, "good"));
    for row in ["a", "b", "c"] {
        write(&store, bad, row, 1000).unwrap();
        store.flush(bad).unwrap();
    }
    let name = store.configs().unwrap().tables[&bad].files().next().unwrap().name;
    sim.fail_always(Operation::Read, &name.to_string(), Fault::Disk);
    for number in 0..30 {
        for table in [bad, good] {
            write(&store, table, &format!("a{number:02}"), 10).unwrap();
            store.flush(table).unwrap();
        }
    }
    until("a short chain beside the bad file", || {
        chain(&store, good) < 4 && chain(&store, bad) < 8
    });
    assert_eq!(store.stats().fragments_damaged, 1);
    assert!(store.failure().is_none(), "one file is damaged, not the store");
    sim.clear_faults();
    assert_eq!(rows(&store, good).len(), 30);
}

#[test]
fn a_file_that_cannot_be_opened_for_want_of_descriptors_is_not_lost_data() {
    let sim = SimFiles::new(1);
    let store = open(&sim, options());
    let table = create_table(&store, "t");
    write(&store, table, "r", 10).unwrap();
    store.flush(table).unwrap();
    store.close().unwrap();
    sim.fail_next(Operation::Open, "frag", Fault::OpenFiles.error());
    let world = || world(Arc::new(sim.clone()), None);
    let refused = Store::open(Path::new("/store"), options(), world()).err().unwrap();
    assert!(matches!(refused, Error::Io { .. }), "{refused}");
    let store = Store::open(Path::new("/store"), options(), world()).unwrap();
    assert_eq!(rows(&store, table), ["r"]);
}

#[test]
fn a_table_is_compacted_and_written_while_another_is_in_a_large_compaction() {
    let sim = SimFiles::new(1);
    let mut options = options();
    options.compact.chain_slow = 6;
    options.compact.chain_stop = 8;
    options.compact.output_bytes = 20_000;
    let store = open(&sim, options);
    let (large, small) = (create_table(&store, "large"), create_table(&store, "small"));
    let held = sim.hold_first(Operation::Create, "", "stele-merge");
    for number in 0..4 {
        // Each run has rows from the whole table.
        for row in 0..3 {
            write(&store, large, &format!("{row}{number}"), 5_000).unwrap();
        }
        store.flush(large).unwrap();
    }
    until("the large compaction", || held.waiting() > 0);
    for number in 0..40 {
        write(&store, small, &format!("r{}", number % 3), 10).unwrap();
        store.flush(small).unwrap();
    }
    until("a short chain of the other table", || chain(&store, small) < 4);
    drop(held);
    until("the end of the large compaction", || chain(&store, large) < 4);
    assert_eq!(rows(&store, large).len(), 12);
    store.close().unwrap();
}

#[test]
fn runs_that_share_no_row_are_joined_without_being_rewritten() {
    let sim = SimFiles::new(1);
    let mut options = options();
    options.compact.output_bytes = 64 << 10;
    let open = |options: Options| {
        let world = world(Arc::new(sim.clone()), None);
        Store::open(Path::new("/store"), options, world).unwrap()
    };
    let store = open(options.clone());
    let table = create_table(&store, "t");
    let mut expected = Vec::new();
    for number in 0..16 {
        let row = format!("{number:03}");
        write(&store, table, &row, 5_000).unwrap();
        store.flush(table).unwrap();
        expected.push(row);
        let before = sim.counters().written_bytes;
        while store.step().unwrap() {}
        assert!(sim.counters().written_bytes - before < 5_000, "only the manifest is written");
    }
    let stats = store.stats();
    assert!(stats.joins >= 4 && stats.compaction_parts == 0, "{stats:?}");
    assert!(chain(&store, table) < 4);
    assert_eq!(rows(&store, table), expected);
    store.close().unwrap();
    let store = open(options);
    assert_eq!(rows(&store, table), expected);
    // Deleted rows justify a rewrite.
    for row in &expected {
        let mut commit = CommitBuilder::new();
        commit.table(table).row(row.as_bytes()).delete_row();
        store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
        store.flush(table).unwrap();
    }
    while store.step().unwrap() {}
    store.compact(table).unwrap();
    assert!(rows(&store, table).is_empty());
}

#[test]
fn writers_go_on_after_a_checkpoint_that_held_up_compaction() {
    let sim = SimFiles::new(1);
    let mut options = options();
    options.compact.chain_slow = 4;
    options.compact.chain_stop = 5;
    let store = open(&sim, options);
    let table = create_table(&store, "t");
    for number in 0..40 {
        write(&store, table, &format!("{}", number % 3), 10).unwrap();
        store.flush(table).unwrap();
        if number % 5 == 0 {
            let checkpoint = store.checkpoint(&[table]).unwrap();
            store.release_checkpoint(checkpoint.id).unwrap();
        }
    }
    until("a short chain", || chain(&store, table) < 4);
}
