//! The life cycle of segments: created, filled, released, reused; and what must
//! outlive them.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::*;
use crate::error::Error;
use crate::log::{ItemKind, LogEntry, LogWriter};
use crate::world::Files;

fn fill(writer: &mut LogWriter, indices: std::ops::RangeInclusive<u64>) {
    for index in indices {
        writer.append(&[entry(index, payload(index, 100))]).unwrap();
    }
}

fn names(test_log: &TestLog) -> Vec<PathBuf> {
    test_log.disk.list(test_log.dir()).unwrap()
}

#[test]
fn a_log_that_was_never_written_has_no_file() {
    let mut test_log = TestLog::new(1024);
    let mut writer = test_log.start();
    writer.sync().unwrap();
    writer.close().unwrap();
    assert!(names(&test_log).is_empty());
    assert!(matches!(writer.append(&[]), Err(Error::Closed)));
}

#[test]
fn a_file_grows_in_large_steps_ahead_of_its_records_and_up_to_its_size() {
    let mut test_log = TestLog::new(5 << 19);
    let mut writer = test_log.start();
    let mut sizes = Vec::new();
    for index in 1..=70 {
        writer.append(&[entry(index, payload(index, 40_000))]).unwrap();
        let size = test_log.disk.content(&writer.segments()[0].path).len();
        if sizes.last() != Some(&size) {
            sizes.push(size);
        }
    }
    assert_eq!(writer.segments().len(), 2);
    assert_eq!(sizes.len(), 3, "{sizes:?}");
    assert_eq!(sizes[2], 5 << 19);
    assert_eq!(test_log.entries().unwrap().len(), 70);
}

#[test]
fn a_recycled_segment_shows_nothing_of_its_earlier_life() {
    let mut test_log = TestLog::new(1024);
    let mut writer = test_log.start();
    fill(&mut writer, 1..=30);
    test_log.head = writer.head_for(&[(0, 29)]);
    writer.release_below(test_log.head).unwrap();
    let files = names(&test_log).len();
    fill(&mut writer, 31..=36);
    assert_eq!(names(&test_log).len(), files, "a free file was there to be used");
    let first = test_log.read().unwrap().0[0].index;
    assert!(first <= 29);
    let expected: Vec<_> = (first..=36).map(|index| (index, payload(index, 100))).collect();
    assert_eq!(test_log.entries().unwrap(), expected);
    drop(writer);
    let mut writer = test_log.start();
    fill(&mut writer, 37..=40);
    assert_eq!(test_log.entries().unwrap().last().unwrap().0, 40);
}

#[test]
fn no_more_files_than_asked_for_are_kept_for_reuse() {
    let mut test_log = TestLog::new(1024);
    test_log.options.recycle_max = 2;
    let mut writer = test_log.start();
    fill(&mut writer, 1..=60);
    test_log.head = writer.head_for(&[]);
    assert_eq!(test_log.head, writer.segments().last().unwrap().sequence);
    writer.release_below(u64::MAX).unwrap();
    assert_eq!(names(&test_log).len(), 3);
    assert_eq!(test_log.read().unwrap().1.free.len(), 2);
}

#[test]
fn what_a_stream_still_needs_decides_the_head_and_the_pinned_bytes() {
    let mut test_log = TestLog::new(1024);
    let mut writer = test_log.start();
    for index in 1..=30 {
        let stream = if index <= 10 { 1 } else { 2 };
        writer.append(&[LogEntry { stream, index, payload: payload(index, 100) }]).unwrap();
    }
    let holding = |writer: &LogWriter, stream, index| {
        let mut found = writer.segments().iter().filter(|segment| segment.holds(stream, index));
        found.next().unwrap().sequence
    };
    assert_eq!(writer.head_for(&[(1, 1), (2, 11)]), 1);
    assert_eq!(writer.head_for(&[(1, 9), (2, 30)]), holding(&writer, 1, 9));
    assert_eq!(writer.head_for(&[(1, 11), (2, 20)]), holding(&writer, 2, 20));
    let all: u64 = writer.segments().iter().map(|segment| segment.bytes).sum();
    assert!(writer.pinned_bytes(2, 11) < all);
    assert_eq!(writer.pinned_bytes(1, 11), 0);
    // A reader finds the same.
    let (_, end) = test_log.read().unwrap();
    assert_eq!(end.segments, writer.segments());
}

#[test]
fn a_payload_larger_than_a_segment_comes_back_whole() {
    let mut test_log = TestLog::new(4096);
    let mut writer = test_log.start();
    let large = payload(2, 50_000);
    let batch = [entry(1, payload(1, 900)), entry(2, large.clone()), entry(3, payload(3, 900))];
    writer.put_state(7, b"kept").unwrap();
    writer.append(&batch).unwrap();
    writer.sync().unwrap();
    assert!(writer.segments().len() > 12);
    // One write per segment, and one for the states at the start of each.
    assert_eq!(writer.stats().writes, 2 * writer.segments().len() as u64);
    let entries = test_log.entries().unwrap();
    assert_eq!(entries, [(1, payload(1, 900)), (2, large), (3, payload(3, 900))]);
    let head = writer.head_for(&[(0, 2)]);
    assert_eq!(head, 1, "the entry's first part is there");
    assert!(writer.head_for(&[(0, 3)]) > 10);
}

#[test]
fn an_entry_without_its_last_part_never_was() {
    let mut test_log = TestLog::new(1024);
    let mut writer = test_log.start();
    writer.append(&[entry(1, payload(1, 10)), entry(2, payload(2, 3000))]).unwrap();
    drop(writer);
    let path = test_log.last_segment();
    let bytes = vec![0; 1024 - 64];
    let head = test_log.disk.content(&path)[..64].to_vec();
    test_log.disk.overwrite(&path, &[head, bytes].concat());
    assert_eq!(test_log.entries().unwrap(), [(1, payload(1, 10))]);
    let mut writer = test_log.start();
    writer.append(&[entry(2, payload(5, 3000))]).unwrap();
    assert_eq!(test_log.entries().unwrap(), [(1, payload(1, 10)), (2, payload(5, 3000))]);
    // The log can also be read from the middle of the dropped entry.
    test_log.head = 2;
    assert_eq!(test_log.entries().unwrap(), [(2, payload(5, 3000))]);
}

#[test]
fn a_cut_is_read_between_the_entries_it_parts() {
    let mut test_log = TestLog::new(1024);
    let mut writer = test_log.start();
    writer.append(&[entry(1, "a"), entry(2, "b")]).unwrap();
    writer.cut(0, 2).unwrap();
    writer.append(&[entry(2, "c")]).unwrap();
    let (items, _) = test_log.read().unwrap();
    let seen: Vec<_> = items.iter().map(|item| (item.kind, item.index)).collect();
    use ItemKind::{Cut, Data};
    assert_eq!(seen, [(Data, 1), (Data, 2), (Cut, 2), (Data, 2)]);
}

#[test]
fn a_state_outlives_the_segment_it_was_written_in() {
    let mut test_log = TestLog::new(1024);
    let mut writer = test_log.start();
    writer.put_state(1, b"old").unwrap();
    writer.put_state(1, b"vote for 2").unwrap();
    writer.put_state(2, b"other").unwrap();
    for round in 0..3 {
        fill(&mut writer, round * 30 + 1..=round * 30 + 30);
        test_log.head = writer.head_for(&[]);
        writer.release_below(test_log.head).unwrap();
        drop(writer);
        let states = test_log.read().unwrap().1.states;
        assert_eq!(states[&1], "vote for 2");
        assert_eq!(states[&2], "other");
        writer = test_log.start();
        // This writer has written nothing yet, so the last segment must be
        // kept.
        let head = writer.head_for(&[]);
        writer.release_below(head).unwrap();
    }
    let outcome = writer.put_state(3, &[0; 300]);
    assert!(matches!(outcome, Err(Error::TooLarge { .. })));
    assert!(writer.append(&[entry(91, "a refusal stops nothing")]).is_ok());
}

#[test]
fn after_a_failure_the_writer_does_nothing_more() {
    for fail_sync in [false, true] {
        let mut test_log = TestLog::new(1024);
        let mut writer = test_log.start();
        writer.append(&[entry(1, "a")]).unwrap();
        let faults = &test_log.disk.faults;
        let fault = if fail_sync { &faults.fail_syncs } else { &faults.fail_writes };
        fault.store(true, Ordering::SeqCst);
        let outcome = writer.append(&[entry(2, "b")]).and_then(|()| writer.sync());
        assert!(matches!(outcome, Err(Error::Io { .. })));
        fault.store(false, Ordering::SeqCst);
        for outcome in [writer.append(&[entry(3, "c")]), writer.sync(), writer.close()] {
            assert!(matches!(outcome, Err(Error::Stopped(_))));
        }
    }
}

#[test]
fn a_log_that_does_not_sync_reads_back_after_the_process_ends() {
    let mut test_log = TestLog::new(1024);
    test_log.options.sync = false;
    for round in 0..3 {
        let mut writer = test_log.start();
        fill(&mut writer, round * 30 + 1..=round * 30 + 30);
        writer.sync().unwrap();
        assert_eq!(writer.stats().syncs, 0);
    }
    assert_eq!(test_log.entries().unwrap().len(), 90);
    assert_eq!(test_log.disk.faults.syncs_begun.load(Ordering::SeqCst), 0);
}
