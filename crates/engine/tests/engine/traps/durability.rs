//! T1, T2, T4, D1 and D3: what is durable, and what the log is kept for.

use std::thread;

use stele_engine::world::sim::{Operation, disk_error};
use stele_engine::*;

use super::fixture::*;
use crate::support::power::Powered;

#[test]
fn t1_a_durable_read_sees_nothing_before_its_sync_and_everything_after_its_ack() {
    let machine = Machine::new(1);
    let store = machine.open_threaded(Options::default());
    let table = store.create_table("t", schema()).unwrap();
    put(&store, &set(table, "old", "1"));
    thread::scope(|scope| {
        let held = machine.hold_syncs("/log/");
        let writer = scope.spawn(|| put(&store, &set(table, "new", "2")));
        held.wait_until_waiting();
        assert_eq!(cells(&store, table, View::Durable), pairs(&[("old", "1")]));
        let latest = pairs(&[("new", "2"), ("old", "1")]);
        assert_eq!(cells(&store, table, View::Latest), latest);
        assert!(!writer.is_finished(), "acknowledged before the sync");
        drop(held);
        let txn = writer.join().unwrap();
        assert!(store.progress().0 >= txn);
        assert_eq!(cells(&store, table, View::Durable), latest);
    });
}

#[test]
fn t1_after_a_failed_sync_durable_data_is_read_and_nothing_is_acknowledged() {
    let machine = Machine::new(1);
    let store = machine.open();
    let table = store.create_table("t", schema()).unwrap();
    let durable = put(&store, &set(table, "old", "1"));
    machine.sim.fail_next(Operation::Sync, "/log/", disk_error());
    assert!(store.apply(&set(table, "new", "2"), Txn::MAX, Durability::Durable).is_err());
    for wait in [Durability::Accepted, Durability::Written, Durability::Durable] {
        let refused = store.apply(&set(table, "newer", "3"), Txn::MAX, wait);
        assert!(matches!(refused, Err(Error::Stopped(_))), "{refused:?}");
        assert!(matches!(store.failure(), Some(Error::Stopped(_))));
    }
    assert!(store.sync(Txn::MAX).is_err());
    assert!(store.flush(table).is_err(), "memory that is not in the log was saved");
    assert_eq!(store.progress().0, durable);
    assert_eq!(cells(&store, table, View::Durable), pairs(&[("old", "1")]));
    let machine = machine.crash(store);
    let store = machine.open();
    assert_eq!(cells(&store, table, View::Durable)[..].last(), pairs(&[("old", "1")]).last());
    put(&store, &set(table, "newest", "4"));
}

#[test]
fn t2_nothing_is_saved_ahead_of_the_log() {
    let machine = Machine::new(1);
    let store = machine.open();
    let [a, b] = ["a", "b"].map(|name| store.create_table(name, schema()).unwrap());
    store.apply(&set(a, "first", "1"), Txn::MAX, Durability::Accepted).unwrap();
    store.apply(&set(b, "second", "2"), Txn::MAX, Durability::Accepted).unwrap();
    let survived = thread::scope(|scope| {
        let held = machine.hold_syncs("/log/");
        let flush = scope.spawn(|| store.flush(b));
        while held.waiting() == 0 && !flush.is_finished() {
            thread::yield_now();
        }
        assert_eq!(store.configs().unwrap().files().count(), 0, "saved ahead of the log");
        let survived = machine.sim.crash();
        drop(held);
        assert!(flush.join().unwrap().is_err(), "the machine is off");
        survived
    });
    drop(store);
    let store = Machine::on(survived).open();
    let (first, second) = (cells(&store, a, View::Durable), cells(&store, b, View::Durable));
    assert!(second.is_empty() || !first.is_empty(), "{second:?} without {first:?}");
}

#[test]
fn t4_operands_flushed_before_a_crash_are_not_applied_again() {
    for changes in 0..60 {
        let machine = Machine::new(changes);
        let power = Powered::new(machine.sim.clone());
        let store = Store::open(DIR.as_ref(), Options::default(), power.world(1)).unwrap();
        let table = store.create_table("t", schema()).unwrap();
        for number in 1..=10 {
            put(&store, &count(table, "r"));
            if number == 5 {
                // The next fragment then contains operands without their base.
                store.flush(table).unwrap();
            }
        }
        power.cut_after(changes);
        let flushed = store.flush(table).is_ok();
        let mut machine = machine.crash(store);
        for _ in 0..3 {
            let store = machine.open();
            assert_eq!(sum(&store, table, View::Durable), 10, "after {changes} changes");
            machine = machine.kill(store);
        }
        if flushed {
            assert!(changes > 3, "a flush in {changes} changes");
            return;
        }
    }
    panic!("the flush never ended");
}

#[test]
fn t4_operands_are_not_folded_across_a_live_snapshot() {
    let machine = Machine::new(1);
    let store = machine.open();
    let table = store.create_table("t", schema()).unwrap();
    let mut held = Vec::new();
    for number in 1..=6 {
        put(&store, &count(table, "r"));
        held.push((number, store.snapshot()));
        if number % 2 == 0 {
            store.flush(table).unwrap();
        }
        if number % 4 == 0 {
            store.compact(table).unwrap();
        }
    }
    let check = |held: &[(i64, std::sync::Arc<Snapshot>)]| {
        for (number, snapshot) in held {
            assert_eq!(sum(&store, table, View::At(snapshot.clone())), *number);
        }
        assert_eq!(sum(&store, table, View::Durable), 6);
    };
    check(&held);
    store.compact(table).unwrap();
    check(&held);
    held.retain(|(number, _)| number % 3 == 0);
    store.compact(table).unwrap();
    check(&held);
}

fn small_segments() -> Options {
    let mut options = Options::default();
    options.log.segment_bytes = 1 << 10;
    options.log.recycle_max = 1;
    options
}

#[test]
fn d1_memory_of_an_idle_table_keeps_its_log_and_an_idle_table_without_memory_does_not() {
    let machine = Machine::new(1);
    let store = machine.open_with(small_segments());
    let [idle, empty, busy] =
        ["idle", "empty", "busy"].map(|name| store.create_table(name, schema()).unwrap());
    put(&store, &set(empty, "e", "flushed"));
    store.flush(empty).unwrap();
    put(&store, &set(idle, "i", "kept"));
    let write_much = |store: &Store| {
        for number in 0..40 {
            put(store, &set(busy, &format!("{number}"), &"x".repeat(100)));
            if number % 10 == 9 {
                store.flush(busy).unwrap();
            }
        }
    };
    write_much(&store);
    let pinned = segments(&machine.sim);
    assert!(pinned > 5, "the idle table's log was let go: {pinned} segments");
    let machine = machine.crash(store);
    let store = machine.open_with(small_segments());
    assert_eq!(cells(&store, idle, View::Durable), pairs(&[("i", "kept")]));
    assert_eq!(cells(&store, busy, View::Durable).len(), 40);
    store.flush(idle).unwrap();
    write_much(&store);
    let left = segments(&machine.sim);
    assert!(left < 5, "{left} segments are kept for tables without memory");
    assert_eq!(cells(&store, empty, View::Durable), pairs(&[("e", "flushed")]));
}

#[test]
fn d3_a_damaged_payload_in_the_log_is_noticed_wherever_it_is() {
    let machine = Machine::new(1);
    let store = machine.open();
    let table = store.create_table("t", schema()).unwrap();
    for value in ["first payload", "second payload", "third payload"] {
        put(&store, &set(table, value, value));
    }
    store.close().unwrap();
    for value in ["first payload", "second payload", "third payload"] {
        let files = machine.sim.files();
        let found = files.iter().find_map(|(path, bytes)| {
            let inside = bytes.windows(value.len()).position(|w| w == value.as_bytes())?;
            path.starts_with("/store/log").then_some((path, inside))
        });
        let (path, at) = found.unwrap();
        machine.sim.flip_bit(path, at as u64 * 8).unwrap();
        let opened = Store::open(DIR.as_ref(), Options::default(), machine.world());
        match opened.err().expect("the log is damaged") {
            Error::DataLoss { path: blamed, offset, .. } => {
                assert_eq!(blamed, *path);
                assert!(offset > 0 && offset < at as u64);
            }
            other => panic!("{other}"),
        }
        machine.sim.flip_bit(path, at as u64 * 8).unwrap();
    }
    assert_eq!(cells(&machine.open(), table, View::Durable).len(), 3);
}
