//! Far more load than the store can handle: memory stays within the budget,
//! acknowledged commits are there, and every writer makes progress.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::{Operation, SimFiles};
use stele_engine::world::{SeededRandom, SystemClock, Threads, World};
use stele_engine::*;

const WRITERS: u64 = 32;
const COMMITS: u64 = 96;
/// Each writer starts with this many commits of this size without waiting for any of
/// them: more than the log queue holds.
const FIRST_COMMITS: u64 = 16;
const FIRST_VALUE_BYTES: usize = 5_000;
/// The value sizes of the other commits.
const VALUE_BYTES: [usize; 4] = [100, 5_000, VALUE_BYTES_MAX, 20_000];
const VALUE_BYTES_MAX: usize = 40_000;
/// Longer than any wait unless a waiter is forgotten.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);
/// The thread in which the test itself compacts.
const COMPACTOR: &str = "compactor";

fn options() -> Options {
    let mut options = Options::default();
    options.memory.budget_bytes = 4 << 20;
    options.memory.log_queue_bytes_max = 64 << 10;
    options.log.segment_bytes = 1 << 20;
    options.admission.wait_max = HANG_TIMEOUT * 4;
    options.flush.fragment_bytes = 512 << 10;
    options.compact = CompactOptions {
        chain_min: 2,
        chain_max: 4,
        chain_slow: 4,
        chain_stop: 8,
        ..CompactOptions::default()
    };
    options
}

fn open(sim: &SimFiles) -> Store {
    let world = World {
        clock: Arc::new(SystemClock::new()),
        files: Arc::new(sim.clone()),
        random: Arc::new(SeededRandom::new(1)),
        spawner: Some(Arc::new(Threads)),
    };
    Store::open(Path::new("/store"), options(), world).unwrap()
}

fn row(writer: u64, number: u64) -> Vec<u8> {
    format!("{writer:03}.{number:05}").into_bytes()
}

fn value_bytes(writer: u64, number: u64) -> usize {
    if number < FIRST_COMMITS {
        return FIRST_VALUE_BYTES;
    }
    VALUE_BYTES[(writer + number) as usize % VALUE_BYTES.len()]
}

fn write(store: &Store, table: TableId, writer: u64) {
    for number in 0..COMMITS {
        let durability = match number {
            0..FIRST_COMMITS => Durability::Accepted,
            _ => [Durability::Accepted, Durability::Written, Durability::Durable]
                [number as usize % 3],
        };
        put(store, table, &row(writer, number), value_bytes(writer, number), durability);
    }
}

fn put(store: &Store, table: TableId, row: &[u8], value_bytes: usize, durability: Durability) {
    let mut commit = CommitBuilder::new();
    commit.table(table).row(row).set(b"f", b"", 0, &vec![7; value_bytes]);
    store.apply(&commit.finish(), Txn::MAX, durability).unwrap();
}

fn until(what: &str, store: &Store, done: impl Fn(&StoreStats) -> bool) {
    let begun = Instant::now();
    while !done(&store.stats()) {
        assert!(begun.elapsed() < HANG_TIMEOUT, "never: {what}: {:?}", store.stats());
        thread::yield_now();
    }
}

fn rows(store: &Store, table: TableId) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    store.read(table, ScanSpec::default(), |cell| found.push(cell.row.to_vec())).unwrap();
    found
}

/// The test blocks the log, then the flushes, then the compaction, until writers wait
/// for each of them, so every limit is reached however fast the machine is.
#[test]
fn under_ten_times_the_load_memory_stays_bounded_nothing_is_lost_and_nobody_is_forgotten() {
    let sim = SimFiles::new(1);
    let store = Arc::new(open(&sim));
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let table = store.create_table("t", schema).unwrap();
    let first_rows = [b"!0".to_vec(), b"!1".to_vec()];
    for row in &first_rows {
        put(&store, table, row, 10, Durability::Durable);
        store.flush(table).unwrap();
    }

    // A running compaction has exclusive use of the chain.
    let held_merge = sim.hold(Operation::Create, "frag", COMPACTOR);
    let compactor = {
        let store = store.clone();
        let compact = move || store.compact(table).unwrap();
        thread::Builder::new().name(COMPACTOR.to_string()).spawn(compact).unwrap()
    };
    until("the compaction begins", &store, |_| held_merge.waiting() == 1);
    let held_flush = sim.hold(Operation::Create, "frag", "stele-urgent");
    let held_log = sim.hold(Operation::Write, "log", "");

    let (sender, done) = mpsc::channel();
    for writer in 0..WRITERS {
        let (store, sender) = (store.clone(), sender.clone());
        thread::spawn(move || {
            write(&store, table, writer);
            // Release the store before the test continues.
            drop(store);
            sender.send(writer).unwrap();
        });
    }
    until("all wait for the log", &store, |stats| stats.throttled_by_log >= WRITERS);
    drop(held_log);
    // A few of them may finish before memory is full.
    until("most wait for memory", &store, |stats| stats.throttled >= WRITERS / 2);
    drop(held_flush);
    let chain_stop = options().compact.chain_stop;
    until("the chain stops them", &store, |stats| {
        stats.chain_longest >= chain_stop && stats.throttled_by_chains > 0
    });
    drop(held_merge);
    let mut finished: Vec<u64> =
        (0..WRITERS).map(|_| done.recv_timeout(HANG_TIMEOUT).expect("every writer ends")).collect();
    finished.sort_unstable();
    assert_eq!(finished, (0..WRITERS).collect::<Vec<_>>());
    compactor.join().unwrap();

    let all = || (0..WRITERS).flat_map(|writer| (0..COMMITS).map(move |number| (writer, number)));
    let offered: usize = all().map(|(writer, number)| value_bytes(writer, number)).sum();
    let stats = store.stats();
    assert!(offered > 10 * stats.memory_limit_bytes, "{offered} bytes, {stats:?}");
    assert!(stats.throttled_micros > 0, "{stats:?}");
    assert!(stats.throttled_by_chains_micros > 0, "{stats:?}");
    assert!(stats.throttled_by_log_micros > 0, "{stats:?}");
    // A commit counts twice while it moves from its permit to its fragment, and a
    // fragment allocates memory in chunks.
    let slack = VALUE_BYTES_MAX + budget::CHUNK_BYTES;
    assert!(stats.memory_peak_bytes <= stats.memory_limit_bytes + slack, "{stats:?}");

    let mut expected = first_rows.to_vec();
    expected.extend(all().map(|(writer, number)| row(writer, number)));
    store.sync(Txn::MAX).unwrap();
    assert!(rows(&store, table) == expected, "a commit is missing");
    let left = sim.crash();
    drop(store);
    assert!(rows(&open(&left), table) == expected, "a commit was lost in the crash");
}
