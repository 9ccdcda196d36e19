//! Many threads sharing one log: order, group commit, failure.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::*;
use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::log::GroupLog;
use crate::world::SystemClock;

const NEVER: Duration = Duration::from_secs(3600);

fn group(test_log: &mut TestLog, linger: Duration) -> GroupLog {
    GroupLog::new(test_log.start(), 0, Arc::new(SystemClock::new()), linger)
}

fn is_stopped(outcome: &Result<()>) -> bool {
    matches!(outcome, Err(Error::Stopped(cause)) if matches!(**cause, Error::Io { .. }))
}

#[test]
fn a_single_caller_writes_and_syncs_by_itself() {
    let mut test_log = TestLog::new(1 << 16);
    let log = group(&mut test_log, NEVER);
    for index in 1..=5 {
        log.enqueue(entry(index, "x")).unwrap();
        assert_eq!((log.written(), log.durable()), (index - 1, index - 1));
        assert!(log.queued_bytes() > 0);
        log.wait_durable(index).unwrap();
        assert_eq!((log.written(), log.durable(), log.queued_bytes()), (index, index, 0));
    }
    let stats = log.stats();
    assert_eq!((stats.records, stats.writes, stats.syncs), (5, 5, 5));
}

#[test]
fn waiting_for_written_does_not_sync_and_driving_does() {
    let mut test_log = TestLog::new(1 << 16);
    let log = group(&mut test_log, NEVER);
    for index in 1..=5 {
        log.enqueue(entry(index, "x")).unwrap();
    }
    log.wait(3, Durability::Written).unwrap();
    assert_eq!((log.written(), log.durable(), log.stats().syncs), (5, 0, 0));
    log.drive(Durability::Durable).unwrap();
    assert_eq!((log.durable(), log.stats().writes, log.stats().syncs), (5, 1, 1));
}

#[test]
fn commits_that_meet_at_slow_syncs_share_the_next_one() {
    const THREADS: u64 = 16;
    let mut test_log = TestLog::new(1 << 16);
    let log = group(&mut test_log, NEVER);
    let next = Mutex::new(1);
    let (sender, enqueued) = mpsc::channel();
    test_log.disk.faults.block_syncs(true);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (log, next, sender) = (&log, &next, sender.clone());
            scope.spawn(move || {
                let index = {
                    let mut next = next.lock();
                    let index = *next;
                    log.enqueue(entry(index, payload(index, 20))).unwrap();
                    *next += 1;
                    index
                };
                sender.send(()).unwrap();
                log.wait_durable(index).unwrap();
                assert!(log.durable() >= index);
            });
        }
        assert_eq!(enqueued.iter().take(THREADS as usize).count(), THREADS as usize);
        test_log.disk.faults.block_syncs(false);
    });
    assert!(log.stats().syncs <= 3, "{:?}", log.stats());
    assert!(log.stats().writes <= 3, "{:?}", log.stats());
    let expected: Vec<_> = (1..=THREADS).map(|index| (index, payload(index, 20))).collect();
    assert_eq!(test_log.entries().unwrap(), expected);
}

#[test]
fn threads_at_full_speed_keep_the_order_of_entries_and_of_acks() {
    const COMMITS: u64 = 16 * 200;
    let mut test_log = TestLog::new(1 << 14);
    let log = group(&mut test_log, Duration::from_millis(1));
    let next = Mutex::new(1);
    let acked = Arc::new(Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let background = scope.spawn(|| log.run());
        let workers: Vec<_> = (0..16)
            .map(|worker| {
                let (log, next, acked) = (&log, &next, acked.clone());
                scope.spawn(move || {
                    for round in 0..COMMITS / 16 {
                        let index = {
                            let mut next = next.lock();
                            let index = *next;
                            log.enqueue(entry(index, payload(index, 20))).unwrap();
                            let acked = acked.clone();
                            let ack = move |outcome: Result<()>| {
                                outcome.unwrap();
                                acked.lock().push(index);
                            };
                            log.on_durable(index, Box::new(ack));
                            *next += 1;
                            index
                        };
                        match (worker + round) % 5 {
                            0 => log.wait(index, Durability::Written).unwrap(),
                            1 => log.wait_queue_below(100).unwrap(),
                            2 => {}
                            3 => log.sync_if_free(index).unwrap_or(Ok(())).unwrap(),
                            _ => log.wait_durable(index).unwrap(),
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        log.drive(Durability::Durable).unwrap();
        log.stop();
        background.join().unwrap();
    });
    assert_eq!(log.durable(), COMMITS);
    let expected: Vec<u64> = (1..=COMMITS).collect();
    assert_eq!(*acked.lock(), expected);
    let found: Vec<u64> = test_log.entries().unwrap().iter().map(|(index, _)| *index).collect();
    assert_eq!(found, expected);
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_ever_again() {
    for fail_sync in [true, false] {
        let mut test_log = TestLog::new(1 << 16);
        let log = group(&mut test_log, NEVER);
        log.enqueue(entry(1, "x")).unwrap();
        log.wait_durable(1).unwrap();
        let faults = &test_log.disk.faults;
        let fault = if fail_sync { &faults.fail_syncs } else { &faults.fail_writes };
        fault.store(true, Ordering::SeqCst);
        let (sender, outcomes) = mpsc::channel();
        for index in 2..=9 {
            log.enqueue(entry(index, "x")).unwrap();
            let sender = sender.clone();
            log.on_durable(index, Box::new(move |outcome| sender.send(outcome).unwrap()));
        }
        thread::scope(|scope| {
            for index in 2..=9 {
                let log = &log;
                scope.spawn(move || assert!(is_stopped(&log.wait_durable(index))));
            }
        });
        fault.store(false, Ordering::SeqCst);
        assert_eq!(outcomes.try_iter().filter(is_stopped).count(), 8);
        assert!(is_stopped(&log.enqueue(entry(10, "x"))));
        assert!(is_stopped(&log.drive(Durability::Durable)));
        assert!(is_stopped(&log.sync_if_free(9).unwrap()));
        assert!(log.sync_if_free(1).unwrap().is_ok());
        assert!(is_stopped(&log.with_writer(|writer| writer.sync())));
        assert_eq!(log.durable(), 1);
        assert!(log.wait_durable(1).is_ok());
        log.on_durable(9, Box::new(move |outcome| sender.send(outcome).unwrap()));
        assert!(is_stopped(&outcomes.try_recv().unwrap()));
    }
}

#[test]
fn a_failure_outside_a_batch_stops_the_batches_too() {
    let mut test_log = TestLog::new(1 << 16);
    let log = group(&mut test_log, NEVER);
    log.write(|writer| writer.put_state(1, b"vote")).unwrap();
    test_log.disk.faults.fail_writes.store(true, Ordering::SeqCst);
    assert!(log.write(|writer| writer.put_state(1, b"vote")).is_err());
    test_log.disk.faults.fail_writes.store(false, Ordering::SeqCst);
    log.enqueue(entry(1, "x")).unwrap();
    assert!(is_stopped(&log.wait_durable(1)));
    assert_eq!(log.durable(), 0);
}

#[test]
fn the_background_thread_syncs_what_nobody_waits_for() {
    let mut test_log = TestLog::new(1 << 16);
    let log = group(&mut test_log, Duration::from_millis(1));
    thread::scope(|scope| {
        scope.spawn(|| log.run());
        for index in 1..=3 {
            log.enqueue(entry(index, "x")).unwrap();
            while log.durable() < index {
                thread::yield_now();
            }
        }
        log.stop();
    });
}

#[test]
fn a_busy_log_is_extended_before_a_caller_has_to_ask_for_space() {
    const PIECE: usize = 64 << 10;
    let mut test_log = TestLog::new(64 << 20);
    let log = group(&mut test_log, NEVER);
    log.enqueue(entry(1, "x")).unwrap();
    log.wait_durable(1).unwrap();
    assert!(log.try_reserve(1 << 20).unwrap().is_none(), "the first extension is small");
    thread::scope(|scope| {
        scope.spawn(|| log.run());
        let mut reserved = Vec::new();
        while log.try_reserve(1 << 20).unwrap().is_none() {
            // More than half of the first extension, and not all of it. The last one is
            // reserved again and again, because the background thread may start late.
            if reserved.len() == 12 {
                reserved.pop();
            }
            reserved.push(log.try_reserve(PIECE).unwrap().expect("there is space"));
            thread::yield_now();
        }
        log.stop();
    });
}

#[test]
fn the_background_thread_does_not_linger_when_a_callback_waits() {
    let mut test_log = TestLog::new(1 << 16);
    let log = group(&mut test_log, NEVER);
    let (sender, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| log.run());
        for index in 1..=20 {
            log.enqueue(entry(index, "x")).unwrap();
            let sender = sender.clone();
            log.on_durable(index, Box::new(move |outcome| sender.send(outcome).unwrap()));
            assert!(outcomes.recv().unwrap().is_ok());
        }
        log.stop();
    });
}

#[test]
fn who_finds_the_log_free_syncs_for_all_callbacks() {
    let mut test_log = TestLog::new(1 << 16);
    let log = group(&mut test_log, NEVER);
    let (sender, outcomes) = mpsc::channel();
    for index in 1..=3 {
        log.enqueue(entry(index, "x")).unwrap();
        let sender = sender.clone();
        log.on_durable(index, Box::new(move |outcome| sender.send(outcome).unwrap()));
    }
    log.enqueue(entry(4, "x")).unwrap();
    assert!(log.sync_if_free(4).unwrap().is_ok());
    assert_eq!(log.durable(), 4);
    assert_eq!(outcomes.try_iter().filter(Result::is_ok).count(), 3);
}

#[test]
fn a_callback_may_commit_and_wait_itself() {
    let mut test_log = TestLog::new(1 << 16);
    let log = Arc::new(group(&mut test_log, NEVER));
    let (sender, order) = mpsc::channel();
    log.enqueue(entry(1, "x")).unwrap();
    let (inner, inner_sender) = (log.clone(), sender.clone());
    log.on_durable(
        1,
        Box::new(move |_| {
            inner.enqueue(entry(2, "y")).unwrap();
            let sender = inner_sender.clone();
            inner.on_durable(2, Box::new(move |_| sender.send(2).unwrap()));
            inner.wait_durable(2).unwrap();
            inner_sender.send(1).unwrap();
        }),
    );
    log.wait_durable(1).unwrap();
    assert_eq!(order.try_iter().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn waiting_for_a_shorter_queue_writes_it_out() {
    let mut test_log = TestLog::new(1 << 16);
    let log = group(&mut test_log, NEVER);
    for index in 1..=10 {
        log.enqueue(entry(index, payload(index, 100))).unwrap();
    }
    log.wait_queue_below(log.queued_bytes() + 1).unwrap();
    assert_eq!(log.written(), 0);
    log.wait_queue_below(500).unwrap();
    assert_eq!((log.queued_bytes(), log.written(), log.durable()), (0, 10, 0));
}

#[test]
fn who_waits_idly_leaves_the_sync_to_the_background_thread() {
    let mut test_log = TestLog::new(1 << 16);
    let log = group(&mut test_log, NEVER);
    let synced_by = || *test_log.disk.faults.synced_by.lock();
    log.enqueue(entry(1, "x")).unwrap();
    log.wait_durable_idly(1).unwrap();
    assert_eq!(synced_by(), Some(thread::current().id()), "there is nobody else");
    thread::scope(|scope| {
        let background = scope.spawn(|| log.run());
        // The thread is running once it has synced something on its own.
        let (sender, outcomes) = mpsc::channel();
        log.enqueue(entry(2, "x")).unwrap();
        log.on_durable(2, Box::new(move |outcome| sender.send(outcome).unwrap()));
        outcomes.recv().unwrap().unwrap();
        for index in 3..=20 {
            log.enqueue(entry(index, "x")).unwrap();
            log.wait_durable_idly(index).unwrap();
            assert!(log.durable() >= index);
            assert_eq!(synced_by(), Some(background.thread().id()));
        }
        log.enqueue(entry(21, "x")).unwrap();
        log.stop();
        log.wait_durable_idly(21).unwrap();
    });
    assert_eq!(log.durable(), 21);
}
