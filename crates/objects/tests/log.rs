//! Logs in a store: the log of a live server, and its recovery by another.

mod support;

use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use bytes::Bytes;
use stele_engine::log::LogEntry;
use stele_engine::log::objects::{ObjectLog, ObjectLogOptions, SealWalk, SlotReader};
use stele_engine::world::{Created, LogSlot, LogStore, SeededRandom, SystemClock};
use stele_engine::{Error, Rules};
use stele_objects::{LogObjects, Objects};
use support::{Fixture, outcome, settings};

const EPOCH: u64 = 9;

fn at(slot: u64) -> LogSlot {
    LogSlot { epoch: EPOCH, slot }
}

fn create(store: &LogObjects, slot: u64, bytes: &'static [u8]) -> std::io::Result<Created> {
    outcome(|done| store.create(at(slot), Bytes::from_static(bytes), done))
}

fn read(store: &LogObjects, slot: u64) -> Option<Bytes> {
    outcome(|done| store.read(at(slot), done)).unwrap()
}

fn list(store: &LogObjects) -> Vec<u64> {
    outcome(|done| store.list(EPOCH, done)).unwrap()
}

/// Opens the same kind of store on S3 and in a directory.
fn stores(fixture: &Fixture) -> [Arc<Objects>; 2] {
    let url = format!("file://{}", fixture.dir.path().join("directory").display());
    let mut settings = settings(fixture.dir.path());
    settings.cache_dir = fixture.dir.path().join("cache-of-directory");
    [fixture.open(), stele_objects::open(&url, settings).unwrap()]
}

#[test]
fn scale_5_1_an_object_of_a_log_is_created_once_read_listed_and_deleted() {
    let fixture = Fixture::start();
    for objects in stores(&fixture) {
        let store = objects.logs();
        assert_eq!(read(&store, 0), None);
        assert_eq!(create(&store, 0, b"zero").unwrap(), Created::New);
        assert_eq!(create(&store, 0, b"other").unwrap(), Created::Exists);
        for slot in [10, 9, 1] {
            assert_eq!(create(&store, slot, b"more").unwrap(), Created::New);
        }
        assert_eq!(read(&store, 0).as_deref(), Some(&b"zero"[..]));
        assert_eq!(list(&store), [0, 1, 9, 10]);
        for _ in 0..2 {
            outcome(|done| store.delete(at(1), done)).unwrap();
        }
        assert_eq!(list(&store), [0, 9, 10]);
        assert_eq!(create(&store, 1, b"late").unwrap(), Created::New);
    }
}

#[test]
fn r4_2_a_conflict_with_an_unfinished_write_is_not_taken_for_an_object() {
    let fixture = Fixture::start();
    let objects = fixture.open();
    let (store, faults) = (objects.logs(), &fixture.server.faults);
    faults.conflicts.store(1, SeqCst);
    assert_eq!(create(&store, 0, b"zero").unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(create(&store, 0, b"zero").unwrap(), Created::New);
    faults.conflicts.store(1, SeqCst);
    assert_eq!(create(&store, 0, b"zero").unwrap(), Created::Exists);
    // One attempt: the log decides about another.
    faults.errors.store(1, SeqCst);
    assert!(create(&store, 1, b"one").is_err());
    faults.resets.store(1, SeqCst);
    assert!(create(&store, 1, b"one").is_err());
    assert_eq!(create(&store, 1, b"one").unwrap(), Created::Exists);
}

#[test]
fn r4_what_a_server_acknowledges_is_recovered_by_another_although_requests_fail() {
    let fixture = Fixture::start();
    for objects in stores(&fixture) {
        let log = start(&objects);
        let (acked, outcomes) = mpsc::channel();
        let faults = &fixture.server.faults;
        faults.errors.store(3, SeqCst);
        faults.resets.store(3, SeqCst);
        faults.conflicts.store(3, SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| log.run());
            for index in 1..=100 {
                log.enqueue(entry(index)).unwrap();
                let acked = acked.clone();
                let report = move |outcome: stele_engine::Result<()>| {
                    acked.send(outcome.map(|()| index)).unwrap();
                };
                log.on_durable(index, Box::new(report));
            }
            for index in 1..=100 {
                assert_eq!(outcomes.recv().unwrap().unwrap(), index, "in order");
            }
            log.stop();
        });
        let store = objects.logs();
        let mut walk = SealWalk::new(store.clone(), EPOCH, 0, 1, Rules::CORRECTED);
        let end = block_on(walk.seal()).unwrap();
        assert_eq!(end, log.next_slot());
        let mut reader = SlotReader::new(store, EPOCH, 0..end);
        let mut found = Vec::new();
        while let Some(object) = block_on(reader.next()).unwrap() {
            found.extend(object.entries().unwrap().into_iter().map(|entry| entry.index));
        }
        assert_eq!(found, (1..=100).collect::<Vec<_>>());
        // The server was only thought to be dead.
        log.enqueue(entry(101)).unwrap();
        let fenced = log.wait_durable(101);
        let Err(Error::Stopped(cause)) = fenced else { panic!("{fenced:?}") };
        assert!(matches!(*cause, Error::Fenced { epoch: EPOCH, .. }), "{cause}");
    }
}

fn start(objects: &Objects) -> ObjectLog {
    let (clock, random) = (Arc::new(SystemClock::new()), Arc::new(SeededRandom::new(1)));
    ObjectLog::start(EPOCH, 0, objects.logs(), clock, random, ObjectLogOptions::default())
}

fn entry(index: u64) -> LogEntry {
    LogEntry { stream: 0, index, payload: Bytes::from(vec![index as u8; 100]) }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
