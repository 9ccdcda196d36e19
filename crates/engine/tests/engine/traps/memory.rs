//! T6, D6 and the rules of throttling and flushing: which requests hold memory and log, for
//! how long, and which wait for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use stele_engine::*;

use super::fixture::*;

#[test]
fn t6_a_scan_between_two_batches_pins_no_memory() {
    let machine = Machine::new(1);
    let store = machine.open();
    let table = store.create_table("t", schema()).unwrap();
    let wide = to_row(table, b"wide", |c| {
        for number in 0..20u8 {
            c.set(b"f", &[number], 1, &[number; 2000]);
        }
        c
    });
    let baseline = store.stats().memory_used_bytes;
    put(&store, &wide);
    for number in 0..50 {
        put(&store, &set(table, &format!("{number:03}"), &"x".repeat(1000)));
    }
    assert!(store.stats().memory_used_bytes > baseline + 50_000);
    let mut rows = Vec::new();
    let mut between_rows = store.scan(table, ScanSpec::default()).unwrap();
    let limits = BatchLimits { cells: 10, ..BatchLimits::default() };
    between_rows.next_batch(limits, &mut |cell| rows.push(cell.row.to_vec())).unwrap();
    let mut inside_a_row = store.scan(table, ScanSpec::row(b"wide")).unwrap();
    let mut qualifiers = Vec::new();
    inside_a_row.next_batch(limits, &mut |cell| qualifiers.push(cell.qualifier[0])).unwrap();
    store.flush(table).unwrap();
    assert_eq!(store.stats().memory_used_bytes, baseline, "an open scan pins memory");
    // The row continues as it was when the read of it began.
    put(&store, &to_row(table, b"wide", |c| c.delete_row()));
    store.flush(table).unwrap();
    store.compact(table).unwrap();
    while !inside_a_row.next_batch(limits, &mut |c| qualifiers.push(c.qualifier[0])).unwrap().done {
    }
    assert_eq!(qualifiers, (0..20).collect::<Vec<u8>>());
    while !between_rows.next_batch(limits, &mut |c| rows.push(c.row.to_vec())).unwrap().done {}
    assert_eq!(rows.len(), 50, "the scan goes on after its last row, without the deleted one");
}

#[test]
fn t6_a_snapshot_over_its_age_is_released_with_a_retryable_error() {
    let machine = Machine::new(1);
    let store = machine.open();
    let table = store.create_table("t", schema()).unwrap();
    put(&store, &set(table, "r", "old"));
    let snapshot = store.snapshot();
    let at = |snapshot| ScanSpec { view: View::At(snapshot), ..ScanSpec::default() };
    put(&store, &set(table, "r", "new"));
    store.flush(table).unwrap();
    assert_eq!(cells_in(&store, table, at(snapshot.clone())), pairs(&[("r", "old")]));
    machine.clock.advance(Duration::from_secs(31));
    let error = store.read(table, at(snapshot), |_| {}).unwrap_err();
    assert!(matches!(error, Error::SnapshotExpired { .. }) && error.is_retryable(), "{error}");
    assert_eq!(cells(&store, table, View::Durable), pairs(&[("r", "new")]));
}

fn small_budget() -> Options {
    let mut options = Options::default();
    options.memory.budget_bytes = 1 << 20;
    options
}

/// Writes large values from several threads until each has written `commits`.
fn write_large(store: &Store, table: TableId, commits: u64, done: &AtomicBool) {
    thread::scope(|scope| {
        for writer in 0..4u64 {
            scope.spawn(move || {
                for number in 0..commits {
                    // Up to 400 KiB: more than a third of the whole budget.
                    let value = "x".repeat(100_000 * (1 + (writer + number) as usize % 4));
                    put(store, &set(table, &format!("{writer}.{number}"), &value));
                }
            });
        }
    });
    done.store(true, Ordering::SeqCst);
}

#[test]
fn d6_writers_of_commits_large_against_the_budget_do_not_deadlock() {
    let machine = Machine::new(1);
    let store = machine.open_threaded(small_budget());
    let table = store.create_table("t", schema()).unwrap();
    thread::scope(|scope| {
        let held = machine.hold_syncs("/fragments/");
        scope.spawn(|| write_large(&store, table, 12, &AtomicBool::new(false)));
        // Every writer waits for memory before the first flush finishes.
        while store.stats().throttled < 4 {
            thread::yield_now();
        }
        drop(held);
    });
    assert_eq!(cells(&store, table, View::Durable).len(), 48);
    assert!(store.stats().flushes > 0);
}

#[test]
fn r1_1_23_and_1_3_2_reads_go_on_and_memory_stays_bounded_while_writers_are_throttled() {
    let machine = Machine::new(1);
    let store = machine.open_threaded(small_budget());
    let [table, quiet] = ["t", "quiet"].map(|name| store.create_table(name, schema()).unwrap());
    put(&store, &set(quiet, "r", "read me"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let held = machine.hold_syncs("/fragments/");
        scope.spawn(|| write_large(&store, table, 6, &done));
        held.wait_until_waiting();
        while store.stats().throttled < 4 {
            thread::yield_now();
        }
        // The flush is blocked, and every writer waits for it.
        for _ in 0..200 {
            assert_eq!(cells(&store, quiet, View::Durable), pairs(&[("r", "read me")]));
            store.read(table, ScanSpec::default(), |_| {}).unwrap();
            // A commit counts twice while it moves from its permit to memory.
            let stats = store.stats();
            assert!(stats.memory_used_bytes <= stats.memory_limit_bytes + (512 << 10));
        }
        assert!(!done.load(Ordering::SeqCst));
        drop(held);
    });
    assert_eq!(cells(&store, table, View::Durable).len(), 24);
}

/// Returns the number of fragments of a table.
fn files(store: &Store, table: TableId) -> usize {
    let configs = store.configs().unwrap();
    let chains = configs.tables[&table].tablets.iter().flat_map(|tablet| &tablet.chains);
    chains.map(|chain| chain.files.len()).sum()
}

#[test]
fn r1_4_1_a_small_but_old_table_is_flushed_first_when_it_pins_much_log() {
    let victim = |log_weight_percent: u64| {
        let machine = Machine::new(1);
        let mut options = Options::default();
        options.log.segment_bytes = 4 << 10;
        // Any use of memory triggers a flush of whatever frees the most.
        options.flush.budget_percent = 0;
        options.flush.log_weight_percent = log_weight_percent;
        let store = machine.open_with(options);
        let [old, busy] = ["old", "busy"].map(|name| store.create_table(name, schema()).unwrap());
        put(&store, &set(old, "r", "small"));
        for number in 0..40 {
            put(&store, &set(busy, &format!("{number}"), &"x".repeat(2000)));
        }
        store.flush(busy).unwrap();
        for number in 0..10 {
            put(&store, &set(busy, &format!("{number}"), &"x".repeat(2000)));
        }
        assert_eq!((files(&store, old), files(&store, busy)), (0, 1));
        assert!(store.step().unwrap());
        (files(&store, old), files(&store, busy))
    };
    assert_eq!(victim(100), (1, 1), "the log that the old table pins counts");
    assert_eq!(victim(0), (0, 2), "by memory alone the busy table is larger");
}

#[test]
fn r1_4_8_memory_is_flushed_by_age() {
    let machine = Machine::new(1);
    let store = machine.open();
    let table = store.create_table("t", schema()).unwrap();
    put(&store, &set(table, "r", "1"));
    machine.clock.advance(Duration::from_secs(599));
    assert!(!store.step().unwrap());
    machine.clock.advance(Duration::from_secs(2));
    assert!(store.step().unwrap());
    assert_eq!(files(&store, table), 1);
    assert!(!store.step().unwrap(), "there is nothing more to flush");
}

#[test]
fn r1_4_8_no_more_log_is_left_to_be_replayed_than_allowed() {
    let machine = Machine::new(1);
    let mut options = Options::default();
    options.log.segment_bytes = 4 << 10;
    options.log.recycle_max = 0;
    options.flush.replay_bytes_max = 20 << 10;
    let store = machine.open_with(options.clone());
    let [idle, busy] = ["idle", "busy"].map(|name| store.create_table(name, schema()).unwrap());
    put(&store, &set(idle, "r", "1"));
    for number in 0..200 {
        put(&store, &set(busy, &format!("{number}"), &"x".repeat(500)));
        while store.step().unwrap() {}
        let log_bytes: usize = machine
            .sim
            .files()
            .iter()
            .filter(|(path, _)| path.starts_with("/store/log"))
            .map(|(_, bytes)| bytes.len())
            .sum();
        assert!(log_bytes <= (20 << 10) + (8 << 10), "{log_bytes} bytes of log are kept");
    }
    assert!(files(&store, idle) == 1 && files(&store, busy) > 0);
    let machine = machine.crash(store);
    assert_eq!(cells(&machine.open_with(options), busy, View::Durable).len(), 200);
}

#[test]
fn r1_6_8_a_scan_of_one_family_reads_only_its_group() {
    let machine = Machine::new(1);
    let store = machine.open();
    let table = store.create_table("t", two_groups()).unwrap();
    for number in 0..50u8 {
        put(
            &store,
            &to_row(table, &[number], |c| {
                c.set(b"f", b"q", 1, b"small").set(b"g", b"q", 1, &noise(number, 4000))
            }),
        );
    }
    store.flush(table).unwrap();
    let store = machine.open_again(store);
    let read = |family: &str| {
        let before = machine.sim.counters().read_bytes;
        let columns = Columns::Families(vec![FamilyColumns::all(family)]);
        let found = cells_in(&store, table, ScanSpec { columns, ..ScanSpec::default() });
        assert_eq!(found.len(), 50);
        machine.sim.counters().read_bytes - before
    };
    let small = read("f");
    assert!(small < 5_000, "{small} bytes were read for 50 small cells");
    let large = read("g");
    assert!(large > 150_000, "the other group was not read: {large}");
}

#[test]
fn chains_do_not_outgrow_a_compaction_that_writers_wait_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.flush.fragment_bytes = 4 << 10;
    options.compact = CompactOptions {
        chain_min: 2,
        chain_max: 4,
        chain_slow: 3,
        chain_stop: 6,
        output_bytes: 40 << 10,
    };
    let store = Store::open(dir.path(), options, world::World::real()).unwrap();
    let table = store.create_table("t", schema()).unwrap();
    let mut longest = 0;
    for number in 0..400 {
        put(&store, &set(table, &format!("{number:03}"), &"x".repeat(1000)));
        longest = longest.max(store.stats().chain_longest);
    }
    // One flush may be in progress for each admitted writer.
    assert!(longest <= 7, "a chain of {longest}");
    assert_eq!(cells(&store, table, View::Durable).len(), 400);
}

#[test]
fn without_workers_a_writer_shortens_a_chain_that_is_too_long() {
    let machine = Machine::new(1);
    let mut options = Options::default();
    options.compact.chain_min = 2;
    options.compact.chain_slow = 3;
    let store = machine.open_with(options);
    let table = store.create_table("t", schema()).unwrap();
    for number in 0..3 {
        put(&store, &set(table, &format!("{number}"), "x"));
        store.flush(table).unwrap();
    }
    assert_eq!((store.stats().throttled_by_chains, store.stats().chain_longest), (0, 3));
    put(&store, &set(table, "4", "x"));
    assert_eq!((store.stats().throttled_by_chains, store.stats().chain_longest), (1, 1));
}

/// Returns bytes that do not compress.
fn noise(seed: u8, length: usize) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}
