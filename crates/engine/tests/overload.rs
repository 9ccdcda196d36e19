//! Many times more work than the store can take: memory stays within the
//! budget, what was acknowledged is there, and everybody gets on.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use stele_engine::schema::{Family, Schema};
use stele_engine::world::sim::SimFiles;
use stele_engine::world::{SeededRandom, SystemClock, Threads, World};
use stele_engine::*;

const WRITERS: u64 = 32;
const COMMITS: u64 = 90;
/// The largest commit, with its key.
const VALUE_BYTES_MAX: usize = 40_000;
/// Longer than this nobody waits who is not forgotten.
const FORGOTTEN: Duration = Duration::from_secs(120);

fn options() -> Options {
    let mut options = Options::default();
    options.memory.budget_bytes = 4 << 20;
    options.memory.log_queue_bytes_max = 64 << 10;
    options.log.segment_bytes = 1 << 20;
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

fn write(store: &Store, table: TableId, writer: u64) {
    for number in 0..COMMITS {
        let value_bytes = [100, 5_000, VALUE_BYTES_MAX, 20_000][(writer + number) as usize % 4];
        let wait = [Wait::Accepted, Wait::Written, Wait::Durable][number as usize % 3];
        let mut commit = CommitBuilder::new();
        let value = vec![number as u8; value_bytes];
        commit.table(table).row(&row(writer, number)).set(b"f", b"", 0, &value);
        store.apply(&commit.finish(), Txn::MAX, wait).unwrap();
    }
}

fn rows(store: &Store, table: TableId) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    store.read(table, ScanSpec::default(), |cell| found.push(cell.row.to_vec())).unwrap();
    found
}

#[test]
fn under_ten_times_the_load_memory_stays_bounded_nothing_is_lost_and_nobody_is_forgotten() {
    let sim = SimFiles::new(1);
    let store = Arc::new(open(&sim));
    let schema = Schema::with_families([Family::new("f")]).unwrap();
    let table = store.create_table("t", schema).unwrap();
    let (told, done) = mpsc::channel();
    for writer in 0..WRITERS {
        let (store, told) = (store.clone(), told.clone());
        thread::spawn(move || {
            write(&store, table, writer);
            // Its hold on the store ends before the test goes on.
            drop(store);
            told.send(writer).unwrap();
        });
    }
    let mut finished: Vec<u64> =
        (0..WRITERS).map(|_| done.recv_timeout(FORGOTTEN).expect("every writer ends")).collect();
    finished.sort_unstable();
    assert_eq!(finished, (0..WRITERS).collect::<Vec<_>>());

    let stats = store.stats();
    println!("{stats:?}");
    // All that was offered is ten times the budget, and each limit was met.
    let offered = WRITERS * COMMITS * 16_000;
    assert!(offered > 10 * stats.memory_limit_bytes as u64);
    assert!(stats.throttled > WRITERS && stats.throttled_micros > 0, "{stats:?}");
    assert!(stats.throttled_by_chains > 0 && stats.throttled_by_chains_micros > 0, "{stats:?}");
    assert!(stats.throttled_by_log > 0, "{stats:?}");
    // One commit counts twice while it moves from its permit to its place, and
    // a fragment takes memory by the chunk.
    let slack = VALUE_BYTES_MAX + budget::CHUNK_BYTES;
    assert!(stats.memory_peak_bytes <= stats.memory_limit_bytes + slack, "{stats:?}");

    let expected: Vec<Vec<u8>> = (0..WRITERS)
        .flat_map(|writer| (0..COMMITS).map(move |number| row(writer, number)))
        .collect();
    store.sync(Txn::MAX).unwrap();
    assert!(rows(&store, table) == expected, "a commit is missing");
    let left = sim.crash();
    drop(store);
    assert!(rows(&open(&left), table) == expected, "a commit was lost in the crash");
}
