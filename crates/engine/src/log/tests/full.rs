//! The log on a full disk: entries with reserved space can be written, others
//! are rejected, and the log stays usable.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::durability::Durability;
use crate::error::Error;
use crate::log::{GroupLog, ItemKind, LogEnd, LogOptions, LogReader, LogWriter};
use crate::world::SystemClock;
use crate::world::sim::SimFiles;

const DIR: &str = "/log";

fn read(sim: &SimFiles) -> (Vec<(u64, Bytes)>, LogEnd) {
    let mut entries = Vec::new();
    let reader = LogReader::open(sim, Path::new(DIR), 0).unwrap();
    let end = reader.replay(|item| {
        entries.extend((item.kind == ItemKind::Data).then_some((item.index, item.payload)));
        Ok(())
    });
    (entries, end.unwrap())
}

fn group(sim: &SimFiles, options: &LogOptions) -> GroupLog {
    let (_, end) = read(sim);
    let incarnation = end.incarnation + 1;
    let files = Arc::new(sim.clone());
    let writer = LogWriter::start(files, Path::new(DIR), incarnation, 42, end, options).unwrap();
    GroupLog::new(writer, 0, Arc::new(SystemClock::new()), Duration::from_secs(3600))
}

fn used(sim: &SimFiles) -> u64 {
    sim.files().values().map(|bytes| bytes.len() as u64).sum()
}

#[derive(Clone, Debug)]
enum Step {
    Entry(usize),
    State(usize),
    Cut,
    Drive,
    /// Sets the number of free bytes on disk.
    FreeBytes(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..300).prop_map(Step::Entry),
        2 => (200usize..9000).prop_map(Step::Entry),
        1 => (0usize..100).prop_map(Step::State),
        1 => Just(Step::Cut),
        1 => Just(Step::Drive),
        2 => (0u64..3000).prop_map(Step::FreeBytes),
    ]
}

/// Runs every step on a disk that has only the free space set last.
fn live(steps: Vec<Step>, options: &LogOptions) {
    let sim = SimFiles::new(1);
    let log = group(&sim, options);
    let mut accepted = Vec::new();
    let mut free_bytes = 2000;
    for step in steps {
        sim.set_capacity(Some(used(&sim) + free_bytes));
        let outcome = match step {
            Step::Entry(bytes) => {
                let index = accepted.len() as u64 + 1;
                let payload = payload(index, bytes);
                log.enqueue(entry(index, payload.clone())).map(|()| accepted.push((index, payload)))
            }
            Step::State(bytes) => log.write(|writer| writer.put_state(7, &vec![1; bytes])),
            Step::Cut => log.write(|writer| writer.cut(9, 1)),
            Step::Drive => {
                sim.set_capacity(Some(used(&sim)));
                log.drive(Durability::Durable).unwrap();
                Ok(())
            }
            Step::FreeBytes(bytes) => {
                free_bytes = bytes;
                Ok(())
            }
        };
        if let Err(error) = outcome {
            assert!(matches!(error, Error::DiskFull { .. }), "{error}");
        }
    }
    // Everything accepted can be written, and the log can be closed.
    sim.set_capacity(Some(used(&sim)));
    log.drive(Durability::Durable).unwrap();
    log.with_writer(|writer| writer.close()).unwrap();
    let (found, end) = read(&sim.crash());
    assert!(end.closed || end.segments.is_empty());
    assert_eq!(found, accepted);
}

proptest! {
    #[test]
    fn what_was_accepted_can_be_written_when_the_disk_has_no_room_left(
        steps in prop::collection::vec(step(), 1..80),
        segment_bytes in prop::sample::select(vec![1 << 10, 4 << 10, 40 << 10]),
        record_bytes_max in prop::sample::select(vec![100, 700, 1 << 20]),
    ) {
        let options = LogOptions { segment_bytes, record_bytes_max, ..LogOptions::default() };
        live(steps, &options);
    }
}

#[test]
fn a_promise_that_is_not_kept_gives_its_room_back() {
    let sim = SimFiles::new(1);
    let options = LogOptions { segment_bytes: 4 << 10, ..LogOptions::default() };
    let log = group(&sim, &options);
    sim.set_capacity(Some(4 << 10));
    for _ in 0..20 {
        drop(log.reserve(2000).unwrap());
    }
    let held = [log.reserve(2000).unwrap(), log.reserve(1000).unwrap()];
    assert!(matches!(log.reserve(2000), Err(Error::DiskFull { .. })));
    drop(held);
    log.enqueue(entry(1, payload(1, 2000))).unwrap();
    log.drive(Durability::Durable).unwrap();
    assert_eq!(read(&sim).0.len(), 1);
}

#[test]
fn a_released_segment_keeps_its_room() {
    let sim = SimFiles::new(1);
    let options = LogOptions { segment_bytes: 4 << 10, ..LogOptions::default() };
    let log = group(&sim, &options);
    for index in 1..=20 {
        log.enqueue(entry(index, payload(index, 900))).unwrap();
        log.drive(Durability::Durable).unwrap();
    }
    sim.set_capacity(Some(used(&sim)));
    let taken = |log: &GroupLog, from: u64| {
        let mut next = from;
        while log.enqueue(entry(next, payload(next, 900))).is_ok() {
            log.drive(Durability::Durable).unwrap();
            next += 1;
        }
        next - from
    };
    assert!(taken(&log, 21) < 4);
    let head = log.with_writer(|writer| writer.head_for(&[]));
    log.with_writer(|writer| writer.release_below(head)).unwrap();
    assert!(taken(&log, 101) > 10, "four free segments take four entries each");
}
