//! Damaged logs: the outcome is an exact prefix or data loss, never wrong data.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::error::Error;
use crate::log::LogWriter;
use crate::log::record::{HEADER_BYTES, RecordHeader, RecordKind, read_u64};
use crate::log::segment;

/// Writes three entries, syncing each before the next.
fn synced_one_by_one(test_log: &mut TestLog) -> LogWriter {
    let mut writer = test_log.start();
    for index in 1..=3 {
        writer.append(&[entry(index, payload(index, 21))]).unwrap();
        writer.sync().unwrap();
    }
    writer
}

fn is_prefix(entries: &[(u64, Bytes)], bytes: usize) -> bool {
    let expected = (1..).map(|index| (index, payload(index, bytes)));
    entries.iter().cloned().zip(expected).all(|(found, expected)| found == expected)
}

#[test]
fn a_log_cut_off_at_any_byte_gives_an_exact_prefix_or_data_loss() {
    let mut test_log = TestLog::new(1024);
    drop(synced_one_by_one(&mut test_log));
    let path = test_log.last_segment();
    let whole = test_log.disk.content(&path);
    for bytes in 0..=whole.len() {
        test_log.disk.overwrite(&path, &whole[..bytes]);
        let outcome = test_log.entries();
        if bytes < segment::HEADER_BYTES {
            assert!(is_data_loss(&outcome), "cut at {bytes}");
            continue;
        }
        let entries = outcome.unwrap();
        let record_bytes = (HEADER_BYTES + 21).next_multiple_of(8);
        // The padding of the last record may be missing.
        let complete = (bytes - segment::HEADER_BYTES + 3) / record_bytes;
        assert_eq!(entries.len(), complete.min(3), "cut at {bytes}");
        assert!(is_prefix(&entries, 21), "cut at {bytes}");
    }
}

#[test]
fn a_flipped_bit_in_a_synced_record_is_data_loss() {
    let mut test_log = TestLog::new(1024);
    drop(synced_one_by_one(&mut test_log));
    let (items, end) = test_log.read().unwrap();
    let path = &end.segments[0].path;
    let mut bytes = test_log.disk.content(path);
    for (number, item) in items.iter().enumerate() {
        for bit in 0..(HEADER_BYTES + 21) * 8 {
            let at = item.offset as usize + bit / 8;
            bytes[at] ^= 1 << (bit % 8);
            test_log.disk.overwrite(path, &bytes);
            bytes[at] ^= 1 << (bit % 8);
            let outcome = test_log.entries();
            if number < 2 {
                // A later record states that this one was synced.
                assert!(is_data_loss(&outcome), "item {number} bit {bit}: {outcome:?}");
            } else {
                let entries = outcome.unwrap();
                assert!(entries.len() == 2 && is_prefix(&entries, 21), "bit {bit}");
            }
        }
    }
}

#[test]
fn after_a_clean_close_damage_to_the_last_entry_is_data_loss() {
    let mut test_log = TestLog::new(1024);
    synced_one_by_one(&mut test_log).close().unwrap();
    let (items, end) = test_log.read().unwrap();
    assert!(end.closed && end.torn.is_none());
    let path = &end.segments[0].path;
    let mut bytes = test_log.disk.content(path);
    let last = items.last().unwrap().offset as usize;
    bytes[last..last + HEADER_BYTES].fill(0);
    test_log.disk.overwrite(path, &bytes);
    let outcome = test_log.entries();
    let Err(Error::DataLoss { offset, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(offset, last as u64);
}

#[test]
fn unsynced_records_after_a_hole_are_a_torn_tail() {
    let mut test_log = TestLog::new(1024);
    let mut writer = test_log.start();
    writer.append(&[entry(1, payload(1, 21))]).unwrap();
    writer.sync().unwrap();
    writer.append(&[entry(2, payload(2, 21)), entry(3, payload(3, 21))]).unwrap();
    let (items, end) = test_log.read().unwrap();
    let path = &end.segments[0].path;
    let mut bytes = test_log.disk.content(path);
    bytes[items[1].offset as usize + HEADER_BYTES] ^= 1;
    test_log.disk.overwrite(path, &bytes);
    let (left, end) = test_log.read().unwrap();
    assert_eq!(left, items[..1]);
    assert_eq!(end.torn.unwrap().offset, items[1].offset);
}

/// Damages the second record and asserts that the log has a torn tail there.
fn assert_torn_at_second(test_log: &TestLog) {
    let (items, end) = test_log.read().unwrap();
    let path = &end.segments[0].path;
    let mut bytes = test_log.disk.content(path);
    bytes[items[1].offset as usize] ^= 1;
    test_log.disk.overwrite(path, &bytes);
    let (left, end) = test_log.read().unwrap();
    assert_eq!(left, items[..1]);
    assert_eq!(end.torn.unwrap().offset, items[1].offset);
}

/// A payload, or leftovers in a reused file, can look like anything.
#[test]
fn a_torn_tail_that_looks_like_a_record_longer_than_the_file_stays_a_torn_tail() {
    let mut test_log = TestLog::new(1024);
    let mut writer = test_log.start();
    writer.append(&[entry(1, payload(1, 21))]).unwrap();
    writer.sync().unwrap();
    let tag = read_u64(&test_log.disk.content(&test_log.last_segment()), 48);
    let header =
        RecordHeader { tag, record: 90, synced: 80, index: 0, stream: 0, kind: RecordKind::Full };
    let mut look_alike = Vec::new();
    header.encode(&[], &[0; 4096], &mut look_alike);
    writer.append(&[entry(2, look_alike[..HEADER_BYTES].to_vec())]).unwrap();
    assert_torn_at_second(&test_log);
}

/// Values come from untrusted clients, who may know the format and count
/// records.
#[test]
fn a_payload_made_to_look_like_a_later_record_turns_no_torn_tail_into_damage() {
    let mut test_log = TestLog::new(1024);
    let mut writer = test_log.start();
    writer.append(&[entry(1, payload(1, 21))]).unwrap();
    writer.sync().unwrap();
    let mut forged = Vec::new();
    for tag in [1, 42] {
        RecordHeader { tag, record: 3, synced: 2, index: 0, stream: 0, kind: RecordKind::Full }
            .encode(&[], b"forged", &mut forged);
    }
    writer.append(&[entry(2, forged)]).unwrap();
    assert_torn_at_second(&test_log);
}

#[test]
fn a_torn_tail_stays_harmless_when_later_incarnations_have_written() {
    let mut test_log = TestLog::new(1024);
    drop(synced_one_by_one(&mut test_log));
    let path = test_log.last_segment();
    let offset = test_log.read().unwrap().0[2].offset as usize;
    let mut bytes = test_log.disk.content(&path);
    bytes[offset + 50] ^= 1;
    test_log.disk.overwrite(&path, &bytes);
    for index in 3..6 {
        let mut writer = test_log.start();
        writer.append(&[entry(index, payload(index, 21))]).unwrap();
        writer.sync().unwrap();
        drop(writer);
        let entries = test_log.entries().unwrap();
        assert_eq!(entries.len() as u64, index);
        assert!(is_prefix(&entries, 21));
    }
    // But damage before the tear is detected at the boundary of the segments.
    bytes[segment::HEADER_BYTES + 50] ^= 1;
    test_log.disk.overwrite(&path, &bytes);
    assert!(is_data_loss(&test_log.entries()));
}

#[test]
fn a_sound_record_of_another_segment_is_not_read_even_if_its_number_fits() {
    let mut test_log = TestLog::new(1024);
    drop(synced_one_by_one(&mut test_log));
    let (items, end) = test_log.read().unwrap();
    let mut bytes = test_log.disk.content(&end.segments[0].path);
    let (record, index, kind) = (end.next_record, 4, RecordKind::Full);
    let stale = RecordHeader { tag: 99, record, synced: record - 1, index, stream: 0, kind };
    let mut encoded = Vec::new();
    stale.encode(&[], b"stale", &mut encoded);
    let at = end.segments[0].bytes as usize;
    bytes[at..at + encoded.len()].copy_from_slice(&encoded);
    test_log.disk.overwrite(&end.segments[0].path, &bytes);
    let (found, end) = test_log.read().unwrap();
    assert_eq!(found, items);
    assert_eq!(end.torn, None);
}

#[test]
fn a_missing_or_doubled_segment_is_data_loss() {
    let mut test_log = TestLog::new(1024);
    let mut writer = test_log.start();
    for index in 1..=40 {
        writer.append(&[entry(index, payload(index, 100))]).unwrap();
    }
    let paths: Vec<_> = writer.segments().iter().map(|segment| segment.path.clone()).collect();
    assert!(paths.len() > 3);
    let middle = test_log.disk.content(&paths[1]);
    let double = test_log.dir().join(segment::file_name(2, 99));
    test_log.disk.overwrite(&double, &middle);
    assert!(is_data_loss(&test_log.read()));
    crate::world::Files::remove(&*test_log.disk, &double).unwrap();
    assert!(test_log.read().is_ok());
    for missing in &paths[..2] {
        let bytes = test_log.disk.content(missing);
        crate::world::Files::remove(&*test_log.disk, missing).unwrap();
        assert!(is_data_loss(&test_log.read()), "{}", missing.display());
        test_log.disk.overwrite(missing, &bytes);
    }
    test_log.disk.overwrite(&test_log.dir().join("notes.txt"), b"hello");
    assert_eq!(test_log.entries().unwrap().len(), 40);
}

#[test]
fn a_state_at_the_head_of_a_segment_is_never_taken_for_a_torn_tail() {
    let mut test_log = TestLog::new(1024);
    let mut writer = test_log.start();
    writer.put_state(3, b"vote").unwrap();
    for index in 1..=10 {
        writer.append(&[entry(index, payload(index, 100))]).unwrap();
    }
    drop(writer);
    let path = test_log.last_segment();
    let mut bytes = test_log.disk.content(&path);
    // Everything after the header is lost: only the header knows of the state.
    bytes[segment::HEADER_BYTES..].fill(0);
    test_log.disk.overwrite(&path, &bytes);
    assert!(is_data_loss(&test_log.read()));
}

proptest! {
    #[test]
    fn arbitrary_bytes_as_a_segment_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        with_header in any::<bool>(),
    ) {
        let test_log = TestLog::new(1024);
        let header =
            segment::SegmentHeader { sequence: 1, incarnation: 1, first_record: 1, synced_end: 64, tag: 1 };
        let content = if with_header { [&header.encode()[..], &bytes].concat() } else { bytes };
        test_log.disk.overwrite(&test_log.dir().join(header.file_name()), &content);
        let outcome = test_log.entries();
        prop_assert!(is_data_loss(&outcome) || outcome.unwrap().is_empty());
    }

    /// Spliced, swapped and repeated valid records pass the checksum.
    #[test]
    fn shuffled_sound_records_never_give_entries_out_of_order(
        pieces in prop::collection::vec((0usize..12, 0usize..8), 1..12),
    ) {
        let mut test_log = TestLog::new(4096);
        let mut writer = test_log.start();
        for index in 1..=8 {
            writer.append(&[entry(index, payload(index, 21))]).unwrap();
            if index % 3 == 0 {
                writer.sync().unwrap();
            }
        }
        let (items, end) = test_log.read().unwrap();
        let path = &end.segments[0].path;
        let mut bytes = test_log.disk.content(path);
        let record = |item: usize| items[item].offset as usize..items[item].offset as usize + 72;
        let original = bytes.clone();
        for (to, from) in pieces {
            let to = record(0).start + to * 72;
            bytes[to..to + 72].copy_from_slice(&original[record(from)]);
        }
        test_log.disk.overwrite(path, &bytes);
        match test_log.entries() {
            Ok(entries) => prop_assert!(is_prefix(&entries, 21)),
            outcome => prop_assert!(is_data_loss(&outcome)),
        }
    }
}
