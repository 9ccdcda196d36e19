//! The group log under every schedule: a reply means that the record is in the file at
//! the requested durability, every caller gets a reply, and a failure reaches all.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use stele_engine::log::{GroupLog, ItemKind, LogEntry, LogOptions, LogReader, LogWriter};
use stele_engine::world::Clock;
use stele_engine::{Durability, Error, Result};

use super::disk::Disk;
use super::explore;

const DIR: &str = "/log";

/// A clock that advances with every reading, so that a leader lingers and entries
/// without a waiter become due.
#[derive(Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now_micros(&self) -> i64 {
        self.elapsed().as_micros() as i64
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

/// A log shared by several threads.
struct Bench {
    disk: Disk,
    log: GroupLog,
    /// The lock under which indices are assigned.
    last: Mutex<u64>,
    /// The callbacks in order of arrival: index and whether it is durable.
    called: Mutex<Vec<(u64, bool)>>,
    called_one: Condvar,
}

impl Bench {
    fn new() -> Arc<Bench> {
        let disk = Disk::new();
        // Space for a few records, so that segments are rotated during the test.
        let options = LogOptions { segment_bytes: 1 << 10, ..LogOptions::default() };
        let end = LogReader::open(&disk, Path::new(DIR), 0).unwrap().replay(|_| Ok(())).unwrap();
        let files = Arc::new(disk.clone());
        let writer = LogWriter::start(files, Path::new(DIR), 1, 42, end, &options).unwrap();
        let log = GroupLog::new(writer, 0, Arc::<Ticking>::default(), Duration::from_millis(5));
        let (last, called, called_one) = Default::default();
        Arc::new(Bench { disk, log, last, called, called_one })
    }

    /// Enqueues the next entry and calls `then` before any other entry is enqueued.
    fn enqueue_then(&self, then: impl FnOnce(u64)) -> Result<u64> {
        let mut last = self.last.lock().unwrap();
        let index = *last + 1;
        self.log.enqueue(LogEntry { stream: 0, index, payload: payload(index) })?;
        *last = index;
        then(index);
        Ok(index)
    }

    fn enqueue(&self) -> Result<u64> {
        self.enqueue_then(|_| ())
    }

    /// Enqueues the next entry with a callback.
    fn enqueue_called(self: &Arc<Self>) -> Result<u64> {
        self.enqueue_then(|index| self.call_back(index))
    }

    fn call_back(self: &Arc<Self>, index: u64) {
        let bench = self.clone();
        let note = move |outcome: Result<()>| {
            if outcome.is_ok() {
                bench.expect(index, Durability::Durable);
            }
            bench.called.lock().unwrap().push((index, outcome.is_ok()));
            bench.called_one.notify_all();
        };
        self.log.on_durable(index, Box::new(note));
    }

    /// Returns the entries that have reached `durability`.
    fn entries(&self, durability: Durability) -> BTreeMap<u64, Bytes> {
        let left = match durability {
            Durability::Accepted => panic!("the disk has no accepted entries"),
            Durability::Written => self.disk.written(),
            Durability::Durable => self.disk.synced(),
        };
        let mut entries = BTreeMap::new();
        let read = LogReader::open(&left, Path::new(DIR), 0).unwrap().replay(|item| {
            if item.kind == ItemKind::Data {
                entries.insert(item.index, item.payload);
            }
            Ok(())
        });
        read.unwrap();
        entries
    }

    /// Checks that an acknowledged entry and all earlier ones are there.
    fn expect(&self, index: u64, durability: Durability) {
        let entries = self.entries(durability);
        for index in 1..=index {
            assert_eq!(entries.get(&index), Some(&payload(index)), "{index} is not {durability:?}");
        }
    }

    /// Waits for all callbacks; nothing else triggers them. They arrive in order, and
    /// none reports success after a failure.
    fn wait_calls(&self, calls: usize) {
        let called = self.called.lock().unwrap();
        let called = self.called_one.wait_while(called, |called| called.len() < calls).unwrap();
        assert_eq!(called.len(), calls, "every callback is called once");
        assert!(called.is_sorted_by(|a, b| a.0 < b.0 && a.1 >= b.1), "out of order: {called:?}");
    }
}

/// Large enough that a segment holds three.
fn payload(index: u64) -> Bytes {
    vec![index as u8; 200].into()
}

/// Starts the log's background thread.
fn background(bench: &Arc<Bench>) -> thread::JoinHandle<()> {
    let bench = bench.clone();
    thread::spawn(move || bench.log.run())
}

/// Starts a thread that commits at one durability.
fn committer(bench: &Arc<Bench>, durability: Durability, commits: usize) -> thread::JoinHandle<()> {
    let bench = bench.clone();
    thread::spawn(move || {
        for _ in 0..commits {
            let index = bench.enqueue().unwrap();
            bench.log.wait(index, durability).unwrap();
            bench.expect(index, durability);
        }
    })
}

#[test]
fn an_answer_means_that_the_record_is_in_the_file_at_the_requested_durability() {
    explore(4_000, || {
        let bench = Bench::new();
        let durabilities =
            [Durability::Durable, Durability::Written, Durability::Durable, Durability::Written];
        let threads = durabilities.map(|durability| committer(&bench, durability, 2));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        bench.log.drive(Durability::Durable).unwrap();
        assert_eq!(bench.log.durable(), 8);
        bench.expect(8, Durability::Durable);
    });
}

#[test]
fn who_finds_the_log_busy_is_called_back_and_who_does_not_has_synced() {
    explore(4_000, || {
        let bench = Bench::new();
        let run = background(&bench);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let bench = bench.clone();
                thread::spawn(move || {
                    let mut calls = 0;
                    for _ in 0..2 {
                        let index = bench.enqueue().unwrap();
                        match bench.log.sync_if_free(index) {
                            Some(outcome) => {
                                outcome.unwrap();
                                bench.expect(index, Durability::Durable);
                            }
                            None => {
                                bench.call_back(index);
                                calls += 1;
                            }
                        }
                    }
                    calls
                })
            })
            .collect();
        let calls = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        let called = bench.called.lock().unwrap();
        drop(bench.called_one.wait_while(called, |called| called.len() < calls).unwrap());
        bench.log.stop();
        run.join().unwrap();
    });
}

#[test]
fn callbacks_come_once_and_in_order_without_anybody_waiting() {
    explore(4_000, || {
        let bench = Bench::new();
        let background = background(&bench);
        let mut threads = vec![committer(&bench, Durability::Durable, 1)];
        for _ in 0..2 {
            let bench = bench.clone();
            threads.push(thread::spawn(move || {
                for _ in 0..2 {
                    bench.enqueue_called().unwrap();
                }
            }));
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // Only the background thread is left to trigger the last of them.
        bench.wait_calls(4);
        bench.log.stop();
        background.join().unwrap();
    });
}

#[test]
fn a_caller_that_waits_for_space_in_the_queue_proceeds() {
    explore(4_000, || {
        let bench = Bench::new();
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let bench = bench.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        bench.log.wait_queue_below(300).unwrap();
                        let index = bench.enqueue().unwrap();
                        if number == 0 {
                            bench.log.wait_durable(index).unwrap();
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        bench.log.drive(Durability::Written).unwrap();
        assert_eq!(bench.log.queued_bytes(), 0);
        bench.expect(6, Durability::Written);
    });
}

/// Runs one caller of a log that fails, and checks that every reply is true.
fn commit_until_failure(bench: &Arc<Bench>, durability: Durability, callbacks: &AtomicU64) {
    for _ in 0..2 {
        let Ok(index) = bench.enqueue_called() else { return };
        callbacks.fetch_add(1, Ordering::SeqCst);
        match bench.log.wait(index, durability) {
            Ok(()) => bench.expect(index, durability),
            Err(Error::Stopped(_)) => assert!(bench.log.failed().is_some()),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_failed_write_or_sync_is_reported_to_every_caller() {
    explore(6_000, || {
        let bench = Bench::new();
        bench.disk.fail_after(thread_rng().gen_range(0..12));
        let background = background(&bench);
        let callbacks = Arc::new(AtomicU64::new(0));
        let threads =
            [Durability::Durable, Durability::Written, Durability::Durable].map(|durability| {
                let (bench, callbacks) = (bench.clone(), callbacks.clone());
                thread::spawn(move || commit_until_failure(&bench, durability, &callbacks))
            });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let expected = callbacks.load(Ordering::SeqCst) as usize;
        let driven = bench.log.drive(Durability::Durable);
        assert_eq!(driven.is_err(), bench.log.failed().is_some());
        bench.wait_calls(expected);
        if driven.is_err() {
            assert!(matches!(bench.enqueue(), Err(Error::Stopped(_))));
        }
        bench.log.stop();
        background.join().unwrap();
    });
}

/// Two groups are under way at once in some of the schedules. In none of them is an
/// entry acknowledged before all earlier ones are durable, also not after a failure.
#[test]
fn scale_5_3_acknowledgements_come_in_order_with_two_groups_under_way() {
    let both = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = both.clone();
    explore(6_000, move || {
        let bench = Bench::new();
        let first = bench.enqueue().unwrap();
        bench.log.wait(first, Durability::Durable).unwrap();
        if thread_rng().gen_range(0..3) == 0 {
            bench.disk.fail_after(thread_rng().gen_range(0..8));
        }
        let background = background(&bench);
        let callbacks = Arc::new(AtomicU64::new(0));
        let threads = [Durability::Durable; 3].map(|durability| {
            let (bench, callbacks) = (bench.clone(), callbacks.clone());
            thread::spawn(move || commit_until_failure(&bench, durability, &callbacks))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        bench.wait_calls(callbacks.load(Ordering::SeqCst) as usize);
        bench.log.stop();
        background.join().unwrap();
        let under_way = bench.disk.durable_writes_max();
        assert!(under_way <= 2, "{under_way} groups under way");
        seen.fetch_max(under_way, std::sync::atomic::Ordering::SeqCst);
    });
    assert_eq!(both.load(std::sync::atomic::Ordering::SeqCst), 2, "never two groups at once");
}
