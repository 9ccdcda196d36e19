//! A whole store with its own workers under every schedule: writers that wait for
//! memory make progress, closing never waits for a caller that waits for the close, and
//! the pool's flushes, merges and joins preserve every cell.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::thread::{self, JoinHandle};
use stele_engine::schema::{Family, Schema};
use stele_engine::world::{Joiner, Priority, Spawner};
use stele_engine::*;

use super::explore;
use super::machine::{Machine, fragments, named_fragments, small};

/// Spawns threads of the schedule.
struct Scheduled;

struct Worker(JoinHandle<()>);

impl Spawner for Scheduled {
    fn spawn(
        &self,
        name: &str,
        _: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn Joiner>> {
        let worker = thread::Builder::new().name(name.to_string()).spawn(body)?;
        Ok(Box::new(Worker(worker)))
    }
}

impl Joiner for Worker {
    fn join(self: Box<Self>) {
        self.0.join().unwrap();
    }
}

const WRITERS: u8 = 2;
const COMMITS: u8 = 4;
const VALUE_BYTES: usize = 5_000;

/// Memory for little more than two commits.
fn tight() -> Options {
    let mut options = small();
    options.memory.budget_bytes = 16 << 10;
    options.compact.chain_min = 2;
    options
}

fn write(machine: &Machine, writer: u8) {
    for number in 0..COMMITS {
        let mut builder = CommitBuilder::new();
        builder.table(machine.table).row(&[writer, number]).set(
            b"f",
            b"q",
            1,
            &[number; VALUE_BYTES],
        );
        let wait =
            if number.is_multiple_of(2) { Durability::Accepted } else { Durability::Durable };
        machine.store.apply(&builder.finish(), Txn::MAX, wait).unwrap();
    }
}

#[test]
fn writers_who_wait_for_memory_get_on_and_the_store_closes() {
    explore(600, || {
        let machine = Machine::new(tight(), Some(Arc::new(Scheduled)));
        let machine = Arc::new(machine);
        let threads: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let machine = machine.clone();
                thread::spawn(move || write(&machine, writer))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mut found = Vec::new();
        let spec = ScanSpec { view: View::Latest, ..ScanSpec::default() };
        let txn = machine.store.read(machine.table, spec, |cell| {
            assert_eq!(cell.value, [cell.row[1]; VALUE_BYTES]);
            found.push(cell.row.to_vec());
        });
        txn.unwrap();
        let rows =
            (0..WRITERS).flat_map(|writer| (0..COMMITS).map(move |number| vec![writer, number]));
        assert_eq!(found, rows.collect::<Vec<_>>());
        assert!(machine.store.stats().flushes > 0, "memory was tight");
        let machine = Arc::into_inner(machine).expect("all threads have ended");
        Arc::into_inner(machine.store).expect("nobody else has it").close().unwrap();
    });
}

/// What the pool did in all schedules together.
#[derive(Default)]
struct Done {
    flushes: AtomicU64,
    merges: AtomicU64,
    joins: AtomicU64,
}

impl Done {
    fn add(&self, stats: &StoreStats) {
        self.flushes.fetch_add(stats.flushes, Ordering::Relaxed);
        self.merges.fetch_add(stats.compaction_parts, Ordering::Relaxed);
        self.joins.fetch_add(stats.joins, Ordering::Relaxed);
    }

    fn all(&self) -> [u64; 3] {
        [&self.flushes, &self.merges, &self.joins].map(|count| count.load(Ordering::Relaxed))
    }
}

const RUNS: u8 = 4;

/// Writes runs with one row each: distinct rows, which can be joined, or the same row,
/// which must be merged.
fn write_runs(store: &Store, table: TableId, apart: bool) {
    for number in 0..RUNS {
        let mut builder = CommitBuilder::new();
        let row = if apart { number } else { 0 };
        builder.table(table).row(&[row]).set(b"f", b"q", 1, &[number]);
        store.apply(&builder.finish(), Txn::MAX, Durability::Durable).unwrap();
        store.flush(table).unwrap();
    }
}

fn values(store: &Store, table: TableId) -> Vec<(u8, u8)> {
    let mut found = Vec::new();
    let spec = ScanSpec { view: View::Latest, ..ScanSpec::default() };
    store.read(table, spec, |cell| found.push((cell.row[0], cell.value[0]))).unwrap();
    found
}

#[test]
fn the_pool_flushes_merges_and_joins_at_once_and_every_cell_is_found_once() {
    let done = Arc::new(Done::default());
    let total = done.clone();
    explore(400, move || {
        let mut options = small();
        options.compact.chain_min = 2;
        // No file is too small to be kept.
        options.compact.output_bytes = 64;
        let machine = Machine::new(options, Some(Arc::new(Scheduled)));
        let schema = Schema::with_families([Family::new("f")]).unwrap();
        let (joined, store) = (machine.table, machine.store);
        let merged = store.create_table("merged", schema).unwrap();
        let writers = [(joined, true), (merged, false)].map(|(table, apart)| {
            let store = store.clone();
            thread::spawn(move || write_runs(&store, table, apart))
        });
        let reader = {
            let store = store.clone();
            thread::spawn(move || {
                let seen = values(&store, joined);
                let expected = (0..seen.len() as u8).map(|number| (number, number));
                assert_eq!(seen, expected.collect::<Vec<_>>());
                assert!(values(&store, merged).len() <= 1, "one row");
            })
        };
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        reader.join().unwrap();
        let all = (0..RUNS).map(|number| (number, number)).collect::<Vec<_>>();
        assert_eq!(values(&store, joined), all);
        assert_eq!(values(&store, merged), [(0, RUNS - 1)]);
        total.add(&store.stats());
        Arc::into_inner(store).expect("all threads have ended").close().unwrap();

        let on_disk = fragments(&machine.disk);
        let store = Machine::open_again(&machine.disk);
        assert_eq!(on_disk, named_fragments(&store), "replaced files are gone");
        assert_eq!(values(&store, joined), all);
        assert_eq!(values(&store, merged), [(0, RUNS - 1)]);
    });
    assert!(done.all().iter().all(|&count| count > 0), "{:?}", done.all());
}
