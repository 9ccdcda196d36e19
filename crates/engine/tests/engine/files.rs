//! Fragment files are opened when they are first used, few at a time, and removed when
//! nothing refers to them. Only a missing or damaged file loses rows.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::{Fault, Operation, SimFiles, disk_error};
use stele_engine::world::{Files, ManualClock, SeededRandom, Spawner, Threads, World};
use stele_engine::*;

const DIR: &str = "/store";
const TIMEOUT: Duration = Duration::from_secs(60);

fn try_open(sim: &SimFiles, options: Options, spawner: Option<Arc<dyn Spawner>>) -> Result<Store> {
    let world = World {
        clock: Arc::new(ManualClock::at(1_000_000)),
        files: Arc::new(sim.clone()),
        random: Arc::new(SeededRandom::new(1)),
        spawner,
    };
    Store::open(Path::new(DIR), options, world)
}

fn open(sim: &SimFiles, options: Options) -> Store {
    try_open(sim, options, None).unwrap()
}

/// Options without compaction.
fn options() -> Options {
    let mut options = Options::default();
    options.memory.conflict_slots = 16;
    options.compact.chain_min = 1_000_000;
    options.compact.chain_max = 1_000_000;
    options.compact.chain_slow = 1_000_000;
    options.compact.chain_stop = 1_000_000;
    options
}

fn row(number: usize) -> String {
    format!("{number:06}")
}

/// Writes a row for each number, each to a file of its own.
fn write_files(store: &Store, table: TableId, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        let mut commit = CommitBuilder::new();
        commit.table(table).row(row(number).as_bytes()).set(b"f", b"q", 0, &[7; 100]);
        store.apply(&commit.finish(), Txn::MAX, Durability::Durable).unwrap();
        store.flush(table).unwrap();
    }
}

fn create_table(store: &Store, name: &str) -> TableId {
    store.create_table(name, Schema::with_families([Family::new("f")]).unwrap()).unwrap()
}

/// Returns a closed store with a table of this many files of one row each.
fn closed_store(files: usize) -> SimFiles {
    let sim = SimFiles::new(1);
    let store = open(&sim, options());
    let table = create_table(&store, "t");
    write_files(&store, table, 0..files);
    store.close().unwrap();
    sim
}

fn read(store: &Store, number: usize) -> Result<usize> {
    let (table, mut found) = (store.table("t").unwrap(), 0);
    let spec = ScanSpec::default();
    store.read_row(table, row(number).as_bytes(), &spec, |_| found += 1).map(|_| found)
}

fn fragments(sim: &SimFiles) -> Vec<PathBuf> {
    sim.files().into_keys().filter(|path| path.extension().is_some_and(|e| e == "frag")).collect()
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < TIMEOUT, "it takes too long");
        thread::yield_now();
    }
}

#[test]
fn a_file_without_range_tombstones_is_not_opened_to_look_for_them() {
    let sim = SimFiles::new(1);
    let mut in_parts = options();
    in_parts.compact.output_bytes = 1;
    let store = open(&sim, in_parts);
    let table = create_table(&store, "t");
    write_files(&store, table, 0..20);
    store.compact(table).unwrap();
    assert_eq!((store.stats().chain_longest, store.stats().fragments), (1, 20));
    store.close().unwrap();
    let store = open(&sim, options());
    let spec = ScanSpec { rows_max: Some(1), ..ScanSpec::default() };
    let mut cells = 0;
    store.read(store.table("t").unwrap(), spec, |_| cells += 1).unwrap();
    let open = sim.open_files(".frag");
    assert!(cells == 1 && open <= 2, "{open} files are open after a read of {cells} cells");
}

#[test]
fn scale_2_13_opening_a_store_opens_none_of_its_files() {
    const TABLES: usize = 40;
    const FILES: usize = 50;
    let sim = SimFiles::new(1);
    let store = open(&sim, options());
    for number in 0..TABLES {
        let table =
            create_table(&store, if number == 0 { "t".into() } else { row(number) }.as_str());
        write_files(&store, table, 0..FILES);
    }
    store.close().unwrap();
    let before = sim.counters().opens;
    let store = try_open(&sim, options(), Some(Arc::new(Threads))).unwrap();
    assert_eq!(store.stats().fragments, TABLES * FILES);
    // Not for statistics and sizes either, nor by the check of sizes.
    store.disk_bytes(store.table("t").unwrap(), &RowRange::all()).unwrap();
    store.close().unwrap();
    let opens = sim.counters().opens - before;
    assert!(opens < 10, "{opens} files were opened");
    assert_eq!(sim.open_files(".frag"), 0);
}

#[test]
fn scale_2_13_a_read_opens_only_the_files_that_it_needs() {
    let sim = closed_store(20);
    let store = open(&sim, options());
    // The row is in the range of one file only.
    assert_eq!(read(&store, 7).unwrap(), 1);
    assert_eq!(sim.open_files(".frag"), 1);
    let opens = sim.counters().opens;
    assert_eq!(read(&store, 7).unwrap(), 1);
    assert_eq!(sim.counters().opens, opens);
}

#[test]
fn scale_2_13_readers_share_few_handles() {
    const FILES: usize = 40;
    const HANDLES: usize = 4;
    const READERS: usize = 4;
    let sim = closed_store(FILES);
    let mut options = options();
    options.memory.open_files_max = HANDLES;
    // Without a cache every read needs the file.
    options.memory.cache_bytes = 0;
    let store = open(&sim, options);
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (store, sim) = (&store, &sim);
            scope.spawn(move || {
                for step in 0..400 {
                    assert_eq!(read(store, (step * 7 + reader * 11) % FILES).unwrap(), 1);
                    assert!(sim.open_files(".frag") <= HANDLES + READERS);
                }
                let (table, mut rows) = (store.table("t").unwrap(), 0);
                store.read(table, ScanSpec::default(), |_| rows += 1).unwrap();
                assert_eq!(rows, FILES);
            });
        }
    });
    read(&store, 0).unwrap();
    assert!(sim.open_files(".frag") <= HANDLES);
}

#[test]
fn scale_2_13_an_evicted_index_is_reloaded() {
    const FILES: usize = 60;
    let sim = closed_store(FILES);
    let mut options = options();
    options.memory.cache_bytes = 8 << 10;
    let store = open(&sim, options);
    for step in 0..1_000 {
        assert_eq!(read(&store, step * 13 % FILES).unwrap(), 1);
        let cache = store.stats().cache;
        assert!(cache.bytes <= 8 << 10 && cache.resident_bytes <= cache.bytes, "{cache:?}");
    }
}

#[test]
fn scale_2_13_a_failure_to_open_a_file_loses_nothing() {
    let sim = closed_store(5);
    for fault in [Fault::OpenFiles, Fault::Disk] {
        let store = open(&sim, options());
        sim.fail_always(Operation::Open, ".frag", fault);
        for _ in 0..5 {
            let error = read(&store, 3).unwrap_err();
            assert!(matches!(error, Error::Io { .. }), "{error}");
            let table = store.table("t").unwrap();
            let error = store.read(table, ScanSpec::default(), |_| ()).unwrap_err();
            assert!(matches!(error, Error::Io { .. }), "{error}");
        }
        assert_eq!(store.stats().fragments_damaged, 0);
        sim.clear_faults();
        assert_eq!(read(&store, 3).unwrap(), 1);
        store.close().unwrap();
    }
    // The same when the file is open but its metadata cannot be read.
    let store = open(&sim, options());
    sim.fail_always(Operation::Read, ".frag", Fault::Disk);
    assert!(matches!(read(&store, 3).unwrap_err(), Error::Io { .. }));
    sim.clear_faults();
    assert_eq!(read(&store, 3).unwrap(), 1);
    // A single failure concerns one call.
    sim.fail_next(Operation::Open, ".frag", disk_error());
    assert!(read(&store, 1).is_err());
    assert_eq!(read(&store, 1).unwrap(), 1);
}

#[test]
fn scale_2_13_only_the_rows_of_a_missing_file_are_lost() {
    for missing_at_open in [true, false] {
        let sim = closed_store(5);
        let gone = fragments(&sim)[2].clone();
        let store = if missing_at_open {
            sim.remove(&gone).unwrap();
            open(&sim, options())
        } else {
            let store = open(&sim, options());
            sim.remove(&gone).unwrap();
            store
        };
        // Missing files are reported when the store is opened, others at first use.
        assert_eq!(store.stats().fragments_damaged, usize::from(missing_at_open));
        let lost: Vec<bool> = (0..5).map(|number| read(&store, number).is_err()).collect();
        assert_eq!(lost, [false, false, true, false, false]);
        assert!(matches!(read(&store, 2).unwrap_err(), Error::DataLoss { .. }));
        assert_eq!(store.stats().fragments_damaged, 1);
        // A scan returns the rows before it.
        let (table, mut rows) = (store.table("t").unwrap(), 0);
        let error = store.read(table, ScanSpec::default(), |_| rows += 1).unwrap_err();
        assert!(matches!(error, Error::DataLoss { .. }), "{error}");
        assert_eq!(rows, 2);
    }
}

#[test]
fn scale_2_13_a_scan_that_finds_a_lost_file_returns_the_rows_before_it() {
    let sim = closed_store(5);
    let store = open(&sim, options());
    let damaged = fragments(&sim)[3].clone();
    let bytes = sim.files()[&damaged].len() as u64;
    sim.flip_bit(&damaged, (bytes - 60) * 8).unwrap();
    let (table, mut rows) = (store.table("t").unwrap(), 0);
    let error = store.read(table, ScanSpec::default(), |_| rows += 1).unwrap_err();
    assert!(matches!(error, Error::DataLoss { .. }), "{error}");
    assert_eq!((rows, store.stats().fragments_damaged), (3, 1));
    assert_eq!(read(&store, 4).unwrap(), 1);
}

#[test]
fn scale_2_13_a_truncated_file_is_reported_soon_after_the_store_is_opened() {
    let sim = closed_store(5);
    sim.truncate(&fragments(&sim)[1], 10).unwrap();
    let store = try_open(&sim, options(), Some(Arc::new(Threads))).unwrap();
    wait_until(|| store.stats().fragments_damaged == 1);
    assert!(matches!(read(&store, 1).unwrap_err(), Error::DataLoss { .. }));
    assert_eq!(read(&store, 2).unwrap(), 1);
    assert_eq!(sim.open_files(".frag"), 1, "only the file that was read");
}

#[test]
fn scale_2_14_files_are_removed_by_a_worker_after_their_last_reader() {
    let sim = closed_store(3);
    let store = try_open(&sim, options(), Some(Arc::new(Threads))).unwrap();
    let table = store.table("t").unwrap();
    let old = fragments(&sim);
    let hold = sim.hold(Operation::Remove, ".frag", "stele-files");
    let (reads, reading) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let store = &store;
        let reader = scope.spawn(move || {
            let mut rows = 0;
            store
                .read(table, ScanSpec::default(), |_| {
                    if rows == 0 {
                        reads.send(()).unwrap();
                        wait.recv().unwrap();
                    }
                    rows += 1;
                })
                .unwrap();
            rows
        });
        reading.recv().unwrap();
        store.compact(table).unwrap();
        assert_eq!(hold.waiting(), 0, "the files are being read");
        go_on.send(()).unwrap();
        // The reader ends although the worker cannot remove the files.
        assert_eq!(reader.join().unwrap(), 3);
        hold.wait_until_waiting();
        let now = fragments(&sim);
        assert!(old.iter().all(|path| now.contains(path)), "{now:?}");
        drop(hold);
        wait_until(|| fragments(&sim).len() == 1);
    });
    assert!(old.iter().all(|path| !fragments(&sim).contains(path)));
    store.close().unwrap();
}
