//! Compactions in several parts: bounded outputs, each installed when it is complete,
//! however the compaction ends.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use stele_engine::config::{ChainConfig, FileName};
use stele_engine::verify;
use stele_engine::world::sim::{Hold, Operation, SimFiles, disk_error, disk_full};
use stele_engine::world::{Files, Joiner, Priority, Spawner, Threads, World};
use stele_engine::*;

use super::fixture::*;

const ROWS: usize = 60;

/// Returns options with small outputs and without automatic compactions.
fn options() -> Options {
    let mut options = Options::default();
    options.compact.output_bytes = 2 << 10;
    options.compact.chain_min = usize::MAX;
    options.compact.chain_max = usize::MAX;
    options
}

fn row(number: usize) -> String {
    format!("row{number:03}")
}

/// Creates three runs over the same rows: all set, a range and some rows deleted, all
/// set again except every third.
fn three_runs(store: &Store) -> TableId {
    let table = store.create_table("t", schema()).unwrap();
    let set_rows = |value: &str, wanted: &dyn Fn(usize) -> bool| {
        for number in (0..ROWS).filter(|&number| wanted(number)) {
            put(store, &set(table, &row(number), &format!("{value}{}", noise(number))));
        }
        store.flush(table).unwrap();
    };
    set_rows("old", &|_| true);
    let mut commit = CommitBuilder::new();
    commit.table(table).delete_range(&RowRange::new(row(10), row(50)));
    commit.row(row(55).as_bytes()).delete_row();
    put(store, &commit.finish());
    set_rows("middle", &|number| number % 10 == 0);
    set_rows("new", &|number| number % 3 != 0);
    table
}

/// Returns text that does not compress well.
fn noise(number: usize) -> String {
    let mut state = number as u32 + 1;
    let mut text = String::new();
    for _ in 0..30 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.push_str(&format!("{:08x}", state));
    }
    text
}

fn chain(store: &Store, table: TableId) -> ChainConfig {
    store.configs().unwrap().tables[&table].tablets.first().chains[0].clone()
}

fn names(files: &[config::Reference]) -> BTreeSet<FileName> {
    files.iter().map(|file| file.name).collect()
}

/// Makes the creation of the file after the next `outputs` fail with a full disk.
fn fill_after(machine: &Machine, store: &Store, table: TableId, outputs: u64) {
    let FileName { incarnation, number } =
        chain(store, table).files.iter().map(|file| file.name).max().unwrap();
    let next = FileName { incarnation, number: number + outputs + 1 };
    machine.sim.fail_next(Operation::Create, &next.to_string(), disk_full());
}

/// Compacts until the disk is full after `outputs` outputs.
fn interrupt(machine: &Machine, store: &Store, table: TableId, outputs: u64) {
    fill_after(machine, store, table, outputs);
    assert!(matches!(store.compact(table), Err(Error::DiskFull { .. })));
    assert_eq!(chain(store, table).runs().count(), 3, "the compaction was interrupted");
}

fn fragments(sim: &SimFiles) -> BTreeSet<FileName> {
    let names = sim.list(&Path::new("/store").join(FRAGMENTS_DIR)).unwrap();
    names.iter().filter_map(|name| FileName::parse(name.to_str()?)).collect()
}

fn verified(sim: &SimFiles) {
    let files: Arc<dyn Files> = Arc::new(sim.clone());
    let report = verify::check(&files, Path::new("/store")).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    assert_eq!(report.garbage, []);
}

#[test]
fn a_compaction_gives_one_run_of_files_of_bounded_size() {
    let machine = Machine::new(1);
    let store = machine.open_with(options());
    let table = three_runs(&store);
    let before = cells(&store, table, View::Durable);
    store.compact(table).unwrap();
    assert_eq!(cells(&store, table, View::Durable), before);
    let chain = chain(&store, table);
    assert_eq!(chain.runs().count(), 1);
    assert!(chain.files.len() > 5, "{chain:?}");
    assert!(chain.files.iter().all(|file| file.bytes < 4 << 10), "{chain:?}");
    assert_eq!(store.stats().chain_longest, 1, "the length of a chain is that of its runs");
    assert_eq!(fragments(&machine.sim), names(&chain.files), "the inputs are gone");
    store.close().unwrap();
    verified(&machine.sim);
}

#[test]
fn r1_5_2_what_an_interrupted_compaction_has_installed_stays_and_it_continues_from_there() {
    let machine = Machine::new(1);
    let store = machine.open_with(options());
    let table = three_runs(&store);
    let before = cells(&store, table, View::Durable);
    interrupt(&machine, &store, table, 3);
    let after = chain(&store, table);
    let outputs = names(&after.runs().next().unwrap()[..3]);
    let reads = |store: &Store| {
        assert_eq!(cells(store, table, View::Durable), before);
        let spec = ScanSpec { reverse: true, ..ScanSpec::default() };
        let mut backwards = cells_in(store, table, spec);
        backwards.reverse();
        assert_eq!(backwards, before);
        for number in 0..ROWS {
            let row = row(number);
            let found = cells_in(store, table, ScanSpec::row(row.as_bytes()));
            let expected = before.iter().filter(|cell| cell.0 == row).cloned();
            assert_eq!(found, expected.collect::<Vec<_>>());
        }
    };
    reads(&store);
    store.close().unwrap();
    verified(&machine.sim);

    // A compaction that was begun is finished, whatever the options say.
    let store = machine.open_with(options());
    reads(&store);
    assert!(store.step().unwrap());
    let finished = chain(&store, table);
    assert_eq!(finished.runs().count(), 1);
    assert!(outputs.is_subset(&names(&finished.files)), "some rows were rewritten twice");
    reads(&store);
    assert!(!store.step().unwrap());
    store.close().unwrap();
    verified(&machine.sim);
}

#[test]
fn a_commit_after_an_interrupted_compaction_is_merged_with_what_it_left() {
    let machine = Machine::new(1);
    let store = machine.open_with(options());
    let table = three_runs(&store);
    interrupt(&machine, &store, table, 3);
    for number in [1, 20, 40] {
        put(&store, &to_row(table, row(number).as_bytes(), |c| c.delete_row()));
    }
    store.flush(table).unwrap();
    let before = cells(&store, table, View::Durable);
    store.compact(table).unwrap();
    assert_eq!(cells(&store, table, View::Durable), before);
    assert_eq!(chain(&store, table).runs().count(), 1);
    store.close().unwrap();
    verified(&machine.sim);
}

#[test]
fn between_two_parts_of_a_large_compaction_newer_runs_are_merged() {
    let machine = Machine::new(1);
    let mut options = options();
    options.compact.chain_min = 4;
    let store = machine.open_with(options);
    let table = three_runs(&store);
    interrupt(&machine, &store, table, 3);
    for number in [1, 20, 40, 59] {
        put(&store, &set(table, &row(number), "newest"));
        store.flush(table).unwrap();
    }
    let before = cells(&store, table, View::Durable);
    assert_eq!(chain(&store, table).runs().count(), 3 + 4);

    fill_after(&machine, &store, table, 2);
    assert!(store.step().unwrap());
    let after = chain(&store, table);
    assert_eq!(after.runs().count(), 3 + 1, "first what waited behind");
    assert_eq!(after.runs().next().unwrap().len(), 4);
    assert!(matches!(store.step(), Err(Error::DiskFull { .. })));
    let after = chain(&store, table);
    assert!(after.runs().next().unwrap().len() > 4, "and then more parts");
    assert_eq!(after.runs().count(), 3 + 1);
    assert_eq!(cells(&store, table, View::Durable), before);

    while store.step().unwrap() {}
    assert_eq!(chain(&store, table).runs().count(), 2);
    assert_eq!(cells(&store, table, View::Durable), before);
    store.close().unwrap();
    verified(&machine.sim);
}

#[test]
fn a_checkpoint_keeps_clipped_files_and_a_store_can_be_opened_from_it() {
    let machine = Machine::new(1);
    let store = machine.open_with(options());
    let table = three_runs(&store);
    let before = cells(&store, table, View::Durable);
    interrupt(&machine, &store, table, 3);
    let checkpoint = store.checkpoint(&[table]).unwrap();
    put(&store, &to_row(table, row(1).as_bytes(), |c| c.delete_row()));
    store.flush(table).unwrap();
    store.compact(table).unwrap();
    let pinned: BTreeSet<FileName> = checkpoint.files().map(|file| file.name).collect();
    assert!(pinned.is_subset(&fragments(&machine.sim)));
    let sent = Checkpoint::decode(&checkpoint.encode()).unwrap();
    let (away, home) = (Path::new("/away"), Path::new("/store"));
    let restored = Store::open_from(away, &sent, home, options(), machine.world()).unwrap();
    assert_eq!(cells(&restored, table, View::Durable), before);
    store.release_checkpoint(checkpoint.id).unwrap();
    assert_eq!(fragments(&machine.sim), names(&chain(&store, table).files));
}

#[test]
fn a_point_read_opens_one_file_of_a_run_however_many_there_are() {
    let machine = Machine::new(1);
    let store = machine.open_with(options());
    let table = three_runs(&store);
    store.compact(table).unwrap();
    assert!(chain(&store, table).files.len() > 5);
    let before = machine.sim.counters().reads;
    assert_eq!(cells_in(&store, table, ScanSpec::row(row(1).as_bytes())).len(), 1);
    assert_eq!(machine.sim.counters().reads - before, 1, "one block was read");
}

#[test]
fn rows_that_only_the_oldest_run_has_are_not_rewritten() {
    let machine = Machine::new(1);
    let mut options = options();
    (options.compact.chain_min, options.compact.chain_max) = (2, 1);
    let store = machine.open_with(options);
    let table = store.create_table("t", schema()).unwrap();
    let mut kept = BTreeSet::new();
    for round in 0..4 {
        for number in round * ROWS..(round + 1) * ROWS {
            put(&store, &set(table, &row(number), &noise(number)));
        }
        // Without a row in common the runs would be joined without a rewrite.
        let last = row((round * ROWS).saturating_sub(1));
        put(&store, &to_row(table, last.as_bytes(), |c| c.delete_column(b"f", b"none")));
        store.flush(table).unwrap();
        while store.step().unwrap() {}
        let chain = chain(&store, table);
        assert_eq!(chain.runs().count(), 1);
        let names = names(&chain.files);
        assert!(kept.is_subset(&names), "round {round}");
        // All but the last, which may have been small.
        kept = names.into_iter().take(chain.files.len().saturating_sub(3)).collect();
    }
    assert!(kept.len() > 10);
    assert_eq!(cells(&store, table, View::Durable).len(), 4 * ROWS);
}

#[test]
fn compact_waits_for_a_compaction_under_way_and_leaves_one_run() {
    let machine = Machine::new(1);
    let store = machine.open_threaded(options());
    let table = three_runs(&store);
    let before = cells(&store, table, View::Durable);
    thread::scope(|scope| {
        let held = machine.hold_syncs("/fragments/");
        scope.spawn(|| store.compact(table).unwrap());
        held.wait_until_waiting();
        let (calling, called) = mpsc::channel();
        let (store, table) = (&store, table);
        scope.spawn(move || {
            calling.send(()).unwrap();
            store.compact(table).unwrap();
            assert_eq!(chain(store, table).runs().count(), 1);
        });
        called.recv().unwrap();
        drop(held);
    });
    assert_eq!(cells(&store, table, View::Durable), before);
    assert_eq!(store.stats().compactions, 2);
}

/// Releases a hold when the workers are joined: by then they were signalled to stop.
#[derive(Clone)]
struct ReleaseAtJoin(Arc<Mutex<Option<Hold>>>);

struct ReleasingJoiner(ReleaseAtJoin, Box<dyn Joiner>);

impl Spawner for ReleaseAtJoin {
    fn spawn(
        &self,
        name: &str,
        priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> io::Result<Box<dyn Joiner>> {
        Ok(Box::new(ReleasingJoiner(self.clone(), Threads.spawn(name, priority, body)?)))
    }
}

impl Joiner for ReleasingJoiner {
    fn join(self: Box<Self>) {
        drop(self.0.0.lock().unwrap().take());
        self.1.join();
    }
}

#[test]
fn closing_a_store_stops_a_compaction_and_keeps_its_outputs() {
    let machine = Machine::new(1);
    let store = machine.open_with(options());
    let table = three_runs(&store);
    let before = cells(&store, table, View::Durable);
    store.close().unwrap();

    let held = Arc::new(Mutex::new(Some(machine.hold_syncs("/fragments/"))));
    let spawner = Arc::new(ReleaseAtJoin(held.clone()));
    let world = World { spawner: Some(spawner), ..machine.world() };
    let mut eager = options();
    eager.compact.chain_min = 2;
    let store = Store::open(Path::new("/store"), eager, world).unwrap();
    // A flush would wake the worker; here it looks for work on its own at startup.
    held.lock().unwrap().as_ref().unwrap().wait_until_waiting();
    store.close().unwrap();

    let store = machine.open_with(options());
    let left = chain(&store, table);
    assert_eq!(left.runs().count(), 3, "it was interrupted");
    assert_eq!(left.runs().next().unwrap().len(), 2, "with one output in place");
    assert_eq!(cells(&store, table, View::Durable), before);
}

#[test]
fn dropping_a_table_stops_its_compaction_and_leaves_no_file() {
    let machine = Machine::new(1);
    let store = machine.open_threaded(options());
    let table = three_runs(&store);
    thread::scope(|scope| {
        let held = machine.hold_syncs("/fragments/");
        scope.spawn(|| store.compact(table).unwrap());
        held.wait_until_waiting();
        store.drop_table(table).unwrap();
        drop(held);
    });
    assert_eq!(store.stats().compaction_parts, 0);
    // A worker that looks for work may hold the table slightly longer.
    let begun = std::time::Instant::now();
    while !fragments(&machine.sim).is_empty() && begun.elapsed().as_secs() < 60 {
        thread::yield_now();
    }
    assert_eq!(fragments(&machine.sim), BTreeSet::new());
}

#[test]
fn a_compaction_leaves_the_cache_as_warm_as_it_was() {
    let machine = Machine::new(1);
    let store = machine.open_with(options());
    let table = three_runs(&store);
    store.compact(table).unwrap();
    let cache = store.stats().cache;
    assert_eq!(cache.bytes, cache.resident_bytes, "what nobody reads is not cached");
    assert_eq!(store.stats().cache.misses, 0, "a compaction does not count as a reader");
    let read_all = || {
        let before = store.stats().cache.misses;
        for number in 0..ROWS {
            cells_in(&store, table, ScanSpec::row(row(number).as_bytes()));
        }
        store.stats().cache.misses - before
    };
    assert!(read_all() > 5);
    assert_eq!(read_all(), 0);
    store.compact(table).unwrap();
    assert_eq!(read_all(), 0, "blocks in use are in the cache under their new names");
}

#[test]
fn abandoned_outputs_and_removed_files_leave_nothing_in_the_cache() {
    let machine = Machine::new(1);
    let store = machine.open_with(options());
    let table = three_runs(&store);
    let read_all = || {
        for number in 0..ROWS {
            cells_in(&store, table, ScanSpec::row(row(number).as_bytes()));
        }
    };
    read_all();
    let warm = store.stats().cache;
    // Syncing the file fails, syncing its directory fails, and writing the manifest
    // fails.
    for (operation, path_part, error) in [
        (Operation::Sync, ".frag", disk_error()),
        (Operation::SyncDir, "fragments", disk_error()),
        (Operation::Write, "manifest", disk_full()),
    ] {
        machine.sim.fail_next(operation, path_part, error);
        assert!(store.compact(table).is_err(), "{operation:?}");
        assert_eq!(store.stats().cache.bytes, warm.bytes, "{operation:?}");
    }
    read_all();
    assert_eq!(store.stats().cache.misses, warm.misses, "what is in use stays");
    // The new files have not been read: their cached blocks were inserted by the
    // rewrite.
    store.compact(table).unwrap();
    let cache = store.stats().cache;
    assert!(cache.bytes > cache.resident_bytes);
    store.drop_table(table).unwrap();
    assert_eq!(store.stats().cache.bytes, 0);
}

#[test]
fn memory_that_is_flushed_during_a_compaction_is_free_at_once() {
    const VALUE_BYTES: usize = 300_000;
    let machine = Machine::new(1);
    let store = machine.open_threaded(options());
    let table = three_runs(&store);
    put(&store, &set(table, "large", &"x".repeat(VALUE_BYTES)));
    assert!(store.stats().memory_used_bytes > VALUE_BYTES);
    thread::scope(|scope| {
        // The first output; the flush writes the next file.
        let held = machine.hold_syncs("-00000004.frag");
        scope.spawn(|| store.compact(table).unwrap());
        held.wait_until_waiting();
        store.flush(table).unwrap();
        assert!(store.stats().memory_used_bytes < VALUE_BYTES, "the compaction holds on to it");
        drop(held);
    });
}
