//! The log of objects on a simulated store that delays, reorders, loses and doubles
//! requests: what is acknowledged is a prefix that recovery reads, and a sealed log
//! accepts nothing.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::*;
use crate::error::{Error, Result};
use crate::log::LogEntry;
use crate::rules::{OnDoubt, OnExists, Rules};
use crate::world::sim::{Agenda, LogFaults, SimLogConnection, SimLogObjects, SimProcess};
use crate::world::{Clock, LogSlot, LogStore, wait_for_reply};

const EPOCH: u64 = 7;
const FAULTS: LogFaults =
    LogFaults { refused: 8, answer_lost: 8, late: 8, timed_out: 4, doubled: 8 };

/// A server that writes to its log, in a simulation.
struct Server {
    agenda: Arc<Agenda>,
    objects: SimLogObjects,
    process: Arc<SimProcess>,
    log: Arc<ObjectLog>,
    /// Indices whose callback has reported success, in order, and how many failed.
    acked: Arc<Mutex<Vec<u64>>>,
    failed: Arc<Mutex<u64>>,
    last: u64,
}

impl Server {
    fn new(seed: u64, faults: LogFaults, rules: Rules) -> Server {
        let agenda = Agenda::new(seed);
        let objects = SimLogObjects::new(&agenda);
        objects.set_faults(faults);
        let process = SimProcess::start(&agenda);
        let connection = objects.connect(&process);
        let options = ObjectLogOptions { rules, group_bytes_max: 300, ..Default::default() };
        let (clock, random) = (agenda.clone(), agenda.clone());
        let log = ObjectLog::start(EPOCH, 0, connection, clock, random, options);
        let (acked, failed) = (Arc::default(), Arc::default());
        Server { agenda, objects, process, log: Arc::new(log), acked, failed, last: 0 }
    }

    /// Writes an entry and asks for it to be durable.
    fn write(&mut self) {
        self.last += 1;
        let index = self.last;
        if self.log.enqueue(entry(index)).is_err() {
            return;
        }
        let (acked, failed) = (self.acked.clone(), self.failed.clone());
        let callback = move |outcome: Result<()>| match outcome {
            Ok(()) => acked.lock().push(index),
            Err(_) => *failed.lock() += 1,
        };
        self.log.on_durable(index, Box::new(callback));
    }

    /// Lets random time pass, and writes at times.
    fn run(&mut self, writes: u64) {
        for _ in 0..writes {
            (0..1 + self.agenda.below(3)).for_each(|_| self.write());
            self.agenda.run_for(Duration::from_millis(self.agenda.below(80)), || false);
            self.log.step();
        }
    }

    /// Lets time pass until all is acknowledged.
    fn settle(&self) -> bool {
        for _ in 0..10_000 {
            if self.log.durable() == self.last || self.log.failed().is_some() {
                return self.log.durable() == self.last;
            }
            self.agenda.run_for(Duration::from_millis(20), || false);
            self.log.step();
        }
        panic!("the log does not make progress");
    }

    fn crash(&self) {
        self.process.crash();
        self.log.halt(Error::Closed);
    }

    /// Connects another server.
    fn connect(&self) -> Arc<SimLogConnection> {
        self.objects.connect(&SimProcess::start(&self.agenda))
    }

    /// Closes the log and reads it, as another server does. Returns the indices found.
    fn recover(&self, floor: u64, rules: Rules) -> Vec<u64> {
        let store = self.connect();
        let mut walk = SealWalk::new(store.clone(), EPOCH, floor, 99, rules);
        let end = loop {
            match self.drive(walk.seal()) {
                Some(Ok(end)) => break end,
                Some(Err(Error::Io { .. })) | None => {}
                Some(Err(error)) => panic!("{error}"),
            }
        };
        let mut reader = SlotReader::new(store, EPOCH, floor..end);
        let mut found = Vec::new();
        loop {
            match self.drive(reader.next()) {
                Some(Ok(Some(object))) => {
                    let entries = object.entries().unwrap();
                    found.extend(entries.into_iter().map(|read| {
                        assert_eq!(read.payload, entry(read.index).payload);
                        read.index
                    }));
                }
                Some(Ok(None)) => return found,
                Some(Err(Error::Io { .. })) | None => {}
                Some(Err(error)) => panic!("{error}"),
            }
        }
    }

    /// Runs events until a future is ready, or for so long that a request must have been
    /// lost.
    fn drive<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut ready = None;
        let mut poll = || {
            let context = &mut Context::from_waker(Waker::noop());
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                ready = Some(value);
            }
            ready.is_some()
        };
        self.agenda.run_for(Duration::from_secs(10), &mut poll);
        ready
    }
}

fn entry(index: u64) -> LogEntry {
    let payload = vec![index as u8; (index * 37 % 200) as usize];
    LogEntry { stream: 0, index, payload: payload.into() }
}

fn seeds() -> u64 {
    if std::env::var_os("STELE_LONG").is_some() { 5_000 } else { 100 }
}

/// Whether indices are those from 1 on.
fn is_prefix(indices: &[u64]) -> bool {
    indices.iter().copied().eq(1..=indices.len() as u64)
}

/// What a crash of a server at a random moment, and its recovery, show to be broken.
fn crash_and_recover(seed: u64, rules: Rules) -> Result<(), &'static str> {
    let mut server = Server::new(seed, FAULTS, rules);
    let writes = server.agenda.below(40);
    server.run(writes);
    let zombie = server.agenda.chance(50);
    if !zombie {
        server.crash();
    }
    // A server that was only thought to be dead goes on while its log is closed.
    let sealing = server.recover(0, rules);
    if zombie {
        server.run(10);
        server.agenda.run_for(Duration::from_secs(60), || false);
    }
    let acked = server.acked.lock().clone();
    if !is_prefix(&acked) {
        return Err("acknowledged out of order");
    }
    if !is_prefix(&sealing) {
        return Err("recovered with a gap");
    }
    if acked.len() > sealing.len() {
        return Err("acknowledged and lost");
    }
    // Recovery finds the same at any later time, whatever arrives late.
    if server.recover(0, rules) != sealing {
        return Err("the log changed after it was sealed");
    }
    Ok(())
}

#[test]
fn r4_what_is_acknowledged_is_a_prefix_that_recovery_reads() {
    for seed in 0..seeds() {
        let outcome = crash_and_recover(seed, Rules::CORRECTED);
        assert!(outcome.is_ok(), "seed {seed}: {outcome:?}");
    }
}

/// Returns what the first of 50 seeds shows to be broken without a rule.
fn broken(rules: Rules) -> Option<&'static str> {
    (0..50).find_map(|seed| crash_and_recover(seed, rules).err())
}

#[test]
fn r11_each_rule_of_the_log_is_missed_when_it_is_switched_off() {
    let without = |change: fn(&mut Rules)| {
        let mut rules = Rules::CORRECTED;
        change(&mut rules);
        broken(rules)
    };
    assert_eq!(without(|_| ()), None);
    assert!(without(|rules| rules.acks_in_order = false).is_some());
    assert!(without(|rules| rules.on_exists = OnExists::Success).is_some());
    assert!(without(|rules| rules.on_doubt = OnDoubt::Skip).is_some());
    assert!(without(|rules| rules.seal = false).is_some());
}

#[test]
fn r4_2_a_server_survives_an_outage_of_its_store_and_refuses_writes_meanwhile() {
    for seed in 0..20 {
        let mut server = Server::new(seed, LogFaults::default(), Rules::CORRECTED);
        server.run(5);
        assert!(server.settle() && server.log.check_accepts().is_ok());
        server.objects.set_down(true);
        server.write();
        server.agenda.run_for(Duration::from_secs(30), || false);
        server.log.step();
        let refused = server.log.check_accepts();
        assert!(matches!(refused, Err(Error::Overloaded { .. })), "{refused:?}");
        assert!(server.log.failed().is_none() && *server.failed.lock() == 0);
        server.objects.set_down(false);
        assert!(server.settle() && server.log.check_accepts().is_ok());
        assert!(is_prefix(&server.acked.lock()));
    }
    // With the rule switched off it halts.
    let rules = Rules { on_doubt: OnDoubt::Halt, ..Rules::CORRECTED };
    let mut server = Server::new(1, LogFaults::default(), rules);
    server.objects.set_down(true);
    server.write();
    assert!(!server.settle());
}

#[test]
fn r4_2_resends_are_idempotent_each_entry_is_in_one_object() {
    for seed in 0..seeds() {
        let mut server = Server::new(seed, FAULTS, Rules::CORRECTED);
        server.run(20);
        assert!(server.settle(), "seed {seed}");
        // Late and doubled puts arrive.
        server.agenda.run_for(Duration::from_secs(60), || false);
        let objects = server.objects.objects();
        let slots: Vec<u64> = objects.keys().map(|at| at.slot).collect();
        assert!(slots.iter().copied().eq(0..slots.len() as u64), "seed {seed}: {slots:?}");
        let entries = objects.iter().flat_map(|(at, bytes)| {
            LogObject::decode(bytes.clone(), *at).unwrap().entries().unwrap()
        });
        let indices: Vec<u64> = entries.map(|entry| entry.index).collect();
        assert!(is_prefix(&indices) && indices.len() as u64 == server.last, "seed {seed}");
        assert!(
            server.objects.creates() > objects.len() as u64,
            "seed {seed}: nothing was sent again"
        );
    }
}

#[test]
fn r4_3_a_sealed_log_accepts_nothing_and_its_server_halts() {
    for seed in 0..seeds() {
        let mut server = Server::new(seed, FAULTS, Rules::CORRECTED);
        let before = server.agenda.below(20);
        server.run(before);
        let found = server.recover(0, Rules::CORRECTED);
        server.run(10);
        assert!(!server.settle(), "seed {seed}: a write after the SEAL was acknowledged");
        let stopped = server.log.failed();
        let Some(Error::Stopped(cause)) = &stopped else { panic!("seed {seed}: {stopped:?}") };
        assert!(matches!(**cause, Error::Fenced { epoch: EPOCH, .. }), "seed {seed}: {cause}");
        assert!(server.acked.lock().len() <= found.len(), "seed {seed}");
        let open = server.last - server.acked.lock().len() as u64;
        assert!(
            *server.failed.lock() <= open && server.log.enqueue(entry(server.last + 1)).is_err()
        );
    }
}

#[test]
fn r8_3_recoverers_that_race_find_the_same_end() {
    for seed in 0..seeds() {
        let mut server = Server::new(seed, FAULTS, Rules::CORRECTED);
        server.run(10);
        let walk = |nonce| {
            let store = server.connect();
            SealWalk::new(store, EPOCH, 0, nonce, Rules::CORRECTED)
        };
        let mut walks = [walk(1), walk(2), walk(3)];
        let mut ends = BTreeSet::new();
        let mut left: Vec<&mut SealWalk> = walks.iter_mut().collect();
        while let Some(first) = left.pop() {
            match server.drive(first.seal()) {
                Some(Ok(end)) => drop(ends.insert(end)),
                // It goes on after the others.
                _ => left.insert(0, first),
            }
        }
        assert_eq!(ends.len(), 1, "seed {seed}: {ends:?}");
    }
}

#[test]
fn r6_the_floor_never_passes_what_is_needed_or_not_durable_and_released_objects_go() {
    for seed in 0..seeds() {
        // No object arrives after it was deleted.
        let faults = LogFaults { late: 0, timed_out: 0, doubled: 0, ..FAULTS };
        let mut server = Server::new(seed, faults, Rules::CORRECTED);
        server.run(20);
        let needed = 1 + server.agenda.below(server.last);
        let floor = server.log.floor_for(needed);
        let durable = server.log.durable();
        server.log.release_below(floor);
        server.run(5);
        assert!(server.settle(), "seed {seed}");
        while server.objects.objects().keys().any(|at| at.slot < floor) {
            server.log.release_below(floor);
            server.agenda.run_for(Duration::from_secs(10), || false);
        }
        let found = server.recover(floor, Rules::CORRECTED);
        assert!(found.first().is_none_or(|first| *first <= needed.min(durable + 1)), "seed {seed}");
        assert_eq!(found.last(), Some(&server.last), "seed {seed}");
        assert!(server.log.pinned_bytes(needed) > 0);
        assert_eq!(server.log.floor_for(server.last + 1), server.log.next_slot());
    }
}

#[test]
fn scale_5_2_no_more_than_four_slots_are_under_way_and_groups_grow_behind_them() {
    let mut server = Server::new(3, LogFaults::default(), Rules::CORRECTED);
    for _ in 0..100 {
        server.write();
    }
    assert_eq!((server.log.next_slot(), server.objects.creates()), (4, 4));
    assert!(server.settle());
    // 300 bytes hold up to six entries; nothing was sent twice.
    assert_eq!(server.objects.creates(), server.log.next_slot());
    assert!(server.log.next_slot() < 90, "{}", server.log.next_slot());
}

#[test]
fn an_entry_that_nobody_waits_for_is_sent_after_a_moment() {
    let server = Server::new(3, LogFaults::default(), Rules::CORRECTED);
    server.log.enqueue(entry(1)).unwrap();
    assert_eq!(server.objects.creates(), 0);
    let due = server.log.step().expect("it is due later");
    assert_eq!(server.objects.creates(), 0);
    server.agenda.run_for(due, || false);
    server.log.step();
    assert_eq!((server.objects.creates(), server.log.is_under_way(1)), (1, true));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut server = Server::new(seed, FAULTS, Rules::CORRECTED);
        server.run(30);
        (server.agenda.trace(), server.agenda.elapsed(), server.log.durable())
    };
    for seed in 0..5 {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1).0, run(2).0);
}

#[test]
fn a_missing_object_is_data_loss_and_not_the_end() {
    let mut server = Server::new(3, LogFaults::default(), Rules::CORRECTED);
    server.run(10);
    assert!(server.settle());
    let mut walk = SealWalk::new(server.connect(), EPOCH, 0, 9, Rules::CORRECTED);
    let end = server.drive(walk.seal()).unwrap().unwrap();
    let connection = server.connect();
    let last = LogSlot { epoch: EPOCH, slot: end - 1 };
    server.drive(wait_for_reply(|done| connection.delete(last, done))).unwrap().unwrap();
    let mut reader = SlotReader::new(server.connect(), EPOCH, 0..end);
    let lost = loop {
        match server.drive(reader.next()).expect("nothing gets lost") {
            Ok(Some(_)) => {}
            outcome => break outcome,
        }
    };
    assert!(matches!(lost, Err(Error::DataLoss { .. })), "{lost:?}");
}

#[cfg(not(feature = "shuttle"))]
#[test]
fn threads_that_wait_share_objects_and_all_are_notified() {
    use crate::world::{Created, Done, SeededRandom, SystemClock};
    use std::collections::BTreeMap;

    /// Answers each request on a thread of its own.
    #[derive(Default)]
    struct Threaded(Arc<Mutex<BTreeMap<LogSlot, bytes::Bytes>>>);

    impl LogStore for Threaded {
        fn create(&self, at: LogSlot, bytes: bytes::Bytes, done: Done<Created>) {
            let objects = self.0.clone();
            std::thread::spawn(move || {
                assert!(objects.lock().insert(at, bytes).is_none());
                done(Ok(Created::New));
            });
        }

        fn read(&self, _: LogSlot, _: Done<Option<bytes::Bytes>>) {}

        fn delete(&self, _: LogSlot, _: Done<()>) {}

        fn list(&self, _: u64, _: Done<Vec<u64>>) {}

        fn address(&self) -> String {
            "threads".into()
        }
    }

    let store = Arc::new(Threaded::default());
    let (clock, random) = (Arc::new(SystemClock::new()), Arc::new(SeededRandom::new(1)));
    let log = ObjectLog::start(1, 0, store.clone(), clock, random, ObjectLogOptions::default());
    let next = Mutex::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| log.run());
        let writers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let mut next = next.lock();
                        *next += 1;
                        let index = *next;
                        log.enqueue(entry(index)).unwrap();
                        drop(next);
                        log.wait_durable(index).unwrap();
                        assert!(log.durable() >= index);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        log.stop();
    });
    assert_eq!(log.durable(), 400);
    assert!(store.0.lock().len() <= 400 && log.queued_bytes() == 0);
}
