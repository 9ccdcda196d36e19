//! Two groups under way: they may reach the disk in any order, but they count in
//! log order only.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::*;
use crate::error::{Error, Result};
use crate::log::writer::GroupIo;
use crate::log::{GroupLog, ItemKind, LogEntry, LogOptions, LogReader, LogWriter};
use crate::world::sim::{Operation, SimFiles};
use crate::world::{Files, SystemClock};

const NEVER: Duration = Duration::from_secs(3600);

fn directory() -> &'static Path {
    Path::new("/log")
}

fn start(files: &SimFiles, incarnation: u64) -> LogWriter {
    let options = LogOptions { segment_bytes: 1 << 16, ..LogOptions::default() };
    let end = LogReader::open(files, directory(), 0).unwrap().replay(|_| Ok(())).unwrap();
    let files = Arc::new(files.clone());
    LogWriter::start(files, directory(), incarnation, 42, end, &options).unwrap()
}

/// Returns the indices in the log.
fn indices(files: &SimFiles) -> Vec<u64> {
    let mut found = Vec::new();
    let read = LogReader::open(files, directory(), 0).unwrap().replay(|item| {
        if item.kind == ItemKind::Data {
            assert_eq!(item.payload, payload(item.index, 700));
            found.push(item.index);
        }
        Ok(())
    });
    read.unwrap();
    found
}

fn entries(range: std::ops::RangeInclusive<u64>) -> Vec<LogEntry> {
    range.map(|index| entry(index, payload(index, 700))).collect()
}

fn begin(writer: &mut LogWriter, range: std::ops::RangeInclusive<u64>, number: u64) -> GroupIo {
    let group = writer.begin_group(&entries(range), number, false, &mut Vec::new());
    group.unwrap().expect("the group fits")
}

/// Writes entries 1 to 3, then begins the groups 4 to 8 and 9 to 12.
fn two_groups(files: &SimFiles) -> (LogWriter, [GroupIo; 2]) {
    files.create_dir_all(directory()).unwrap();
    files.sync_dir(Path::new("/")).unwrap();
    let mut writer = start(files, 1);
    writer.append(&entries(1..=3)).unwrap();
    writer.sync().unwrap();
    let groups = [begin(&mut writer, 4..=8, 0), begin(&mut writer, 9..=12, 1)];
    (writer, groups)
}

#[test]
fn scale_5_4_a_torn_first_group_ends_the_log_although_the_second_is_whole() {
    let (mut torn, mut whole) = (0, 0);
    for seed in 0..300 {
        let files = SimFiles::new(seed);
        let (writer, [first, second]) = two_groups(&files);
        match seed % 3 {
            0 => {}
            fails => {
                let fails = if fails == 1 { Operation::Write } else { Operation::Sync };
                files.fail_next(fails, "/log/", io::Error::other("power failure"));
                first.run().unwrap_err();
            }
        }
        second.run().unwrap();
        drop(writer);
        let left = files.crash();
        let found = indices(&left);
        assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>(), "seed {seed}");
        match found.len() {
            3..8 => torn += 1,
            12 => whole += 1,
            other => panic!("seed {seed}: {other} entries"),
        }
        // The rest of the second group stays harmless.
        let next = found.len() as u64 + 1;
        let mut writer = start(&left, 2);
        writer.append(&entries(next..=next + 1)).unwrap();
        writer.sync().unwrap();
        assert_eq!(indices(&left.crash()), (1..=next + 1).collect::<Vec<_>>(), "seed {seed}");
    }
    assert!(torn >= 100 && whole > 0, "{torn} torn, {whole} whole");
}

#[test]
fn scale_5_4_a_group_written_after_another_ended_vouches_for_it() {
    let files = SimFiles::new(1);
    let (mut writer, [first, second]) = two_groups(&files);
    second.run().unwrap();
    first.run().unwrap();
    writer.synced().fetch_max(second.record, crate::sync::atomic::Ordering::SeqCst);
    begin(&mut writer, 13..=13, 2).run().unwrap();
    drop(writer);
    let left = files.crash();
    assert_eq!(indices(&left).len(), 13);
    let segment = left.files().into_keys().find(|path| path.starts_with(directory())).unwrap();
    // A bit of an entry of the first group.
    left.flip_bit(&segment, 8 * 4000).unwrap();
    let read = LogReader::open(&left, directory(), 0).unwrap().replay(|_| Ok(()));
    assert!(is_data_loss(&read), "{read:?}");
}

fn shared(files: &SimFiles) -> GroupLog {
    files.create_dir_all(directory()).unwrap();
    files.sync_dir(Path::new("/")).unwrap();
    let log = GroupLog::new(start(files, 1), 0, Arc::new(SystemClock::new()), NEVER);
    // The first sync after an extension is one of the whole file.
    log.enqueue(entry(1, payload(1, 700))).unwrap();
    log.wait_durable(1).unwrap();
    log
}

/// Has entry 2 held before its sync and entry 3 written in a group of its own. Then
/// calls `meanwhile`, releases entry 2 and returns the outcomes of both.
fn hold_first_group(files: &SimFiles, log: &GroupLog, meanwhile: impl FnOnce()) -> [Result<()>; 2] {
    let hold = files.hold_first(Operation::Sync, "/log/", "first");
    thread::scope(|scope| {
        let wait = |name: &str, index: u64| {
            log.enqueue(entry(index, payload(index, 700))).unwrap();
            let thread = thread::Builder::new().name(name.to_string());
            thread.spawn_scoped(scope, move || log.wait_durable(index)).unwrap()
        };
        let syncs = log.stats().syncs;
        let first = wait("first", 2);
        hold.wait_until_waiting();
        let second = wait("second", 3);
        while log.stats().syncs == syncs {
            thread::yield_now();
        }
        assert_eq!((log.durable(), log.written()), (1, 1));
        assert!(!second.is_finished());
        meanwhile();
        drop(hold);
        [first, second].map(|thread| thread.join().unwrap())
    })
}

#[test]
fn scale_5_3_the_second_group_is_acknowledged_after_the_first() {
    let files = SimFiles::new(1);
    let log = shared(&files);
    let (sender, called) = mpsc::channel();
    let outcomes = hold_first_group(&files, &log, || {
        for index in [3, 2] {
            let sender = sender.clone();
            log.on_durable(index, Box::new(move |outcome| sender.send((index, outcome)).unwrap()));
        }
        assert!(called.try_recv().is_err());
    });
    assert!(outcomes.iter().all(Result::is_ok));
    let called: Vec<u64> = called.try_iter().map(|(index, _)| index).collect();
    assert_eq!(called, [2, 3]);
    assert_eq!((log.durable(), indices(&files.crash())), (3, vec![1, 2, 3]));
}

#[test]
fn scale_5_4_nothing_is_acknowledged_after_a_failed_group_even_if_a_later_one_succeeded() {
    let files = SimFiles::new(1);
    let log = shared(&files);
    let outcomes = hold_first_group(&files, &log, || {
        files.fail_next(Operation::Sync, "/log/", io::Error::other("broken disk"));
    });
    for outcome in outcomes {
        assert!(matches!(outcome, Err(Error::Stopped(_))), "{outcome:?}");
    }
    assert_eq!(log.durable(), 1);
    assert!(matches!(log.enqueue(entry(4, "x")), Err(Error::Stopped(_))));
    assert!(matches!(log.with_writer(|writer| writer.sync()), Err(Error::Stopped(_))));
    assert!(!indices(&files.crash()).is_empty());
}

#[test]
fn scale_5_2_two_groups_are_under_way_and_the_rest_queue_into_the_next() {
    let mut test_log = TestLog::new(1 << 16);
    let log = GroupLog::new(test_log.start(), 0, Arc::new(SystemClock::new()), NEVER);
    log.enqueue(entry(1, "x")).unwrap();
    log.wait_durable(1).unwrap();
    let faults = &test_log.disk.faults;
    let begun = || faults.syncs_begun.load(Ordering::SeqCst);
    let before = begun();
    faults.block_syncs(true);
    thread::scope(|scope| {
        let log = &log;
        for index in 2..=3 {
            log.enqueue(entry(index, "x")).unwrap();
            scope.spawn(move || log.wait_durable(index).unwrap());
            while begun() < before + index - 1 {
                thread::yield_now();
            }
        }
        for index in 4..=9 {
            log.enqueue(entry(index, "x")).unwrap();
            assert!(log.sync_if_free(index).is_none(), "a third group");
            scope.spawn(move || log.wait_durable(index).unwrap());
        }
        assert_eq!((begun(), log.durable()), (before + 2, 1));
        faults.block_syncs(false);
    });
    assert_eq!((log.durable(), log.stats().syncs), (9, 4));
}

#[test]
fn scale_5_2_a_group_is_at_most_four_mebibytes() {
    let mut test_log = TestLog::new(64 << 20);
    let log = GroupLog::new(test_log.start(), 0, Arc::new(SystemClock::new()), NEVER);
    for index in 1..=10 {
        log.enqueue(entry(index, payload(index, 1 << 20))).unwrap();
    }
    log.wait_durable(10).unwrap();
    // Three entries fit into a group, with their headers.
    assert_eq!(log.stats().syncs, 4);
    assert_eq!(test_log.entries().unwrap().len(), 10);
}
