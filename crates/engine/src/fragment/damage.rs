//! Tests of damaged files: readers return either an error that names the location or
//! correct data. They never panic and never return anything else.

use proptest::prelude::*;
use prost::Message;

use crate::cell::key::row_of;
use crate::cell::range_tombstone::RangeTombstones;
use crate::cell::rows::RowRange;
use crate::error::{Error, Result};
use crate::fragment::footer::{FileTail, Footer, TAIL_BYTES};
use crate::fragment::testing::{Entries, OneFile, entries, options};
use crate::fragment::{CursorOptions, FragmentOptions, row_hash};
use crate::merge::Cursor;
use crate::txn::Txn;

fn range_tombstones() -> RangeTombstones {
    let mut range_tombstones = RangeTombstones::default();
    range_tombstones.insert(&RowRange::new("a", "b"), Txn::base(3));
    range_tombstones.insert(&RowRange::from("b\x01"), Txn::base(9));
    range_tombstones
}

/// Reads as far as possible. Every entry returned must be one that was written.
fn read_all(file: &OneFile, entries: &Entries) -> Result<usize> {
    let fragment = file.open()?;
    assert_eq!(**fragment.range_tombstones(), range_tombstones());
    let mut cursor = fragment.cursor(&CursorOptions::default());
    let mut expected = entries.iter();
    cursor.seek(b"")?;
    while cursor.valid() {
        assert_eq!(
            expected.next().map(|e| (&e.0[..], &e.1[..])),
            Some((cursor.key(), cursor.value()))
        );
        cursor.next()?;
    }
    assert_eq!(expected.next(), None);
    for key in entries.keys() {
        let row = row_of(key).unwrap();
        assert!(fragment.may_hold_row(&row, row_hash(&row)));
    }
    Ok(entries.len())
}

fn is_data_loss(error: &Error) -> bool {
    matches!(error, Error::DataLoss { .. })
}

/// Changes bytes of the footer or of an index partition, and recomputes the checksums
/// over them.
fn change_metadata(bytes: &mut Vec<u8>, in_footer: bool, changes: &[(prop::sample::Index, u8)]) {
    let file_len = bytes.len() as u64;
    let tail = bytes.split_off(bytes.len() - TAIL_BYTES);
    let mut tail = FileTail::parse(tail.first_chunk().unwrap(), OneFile::path(), file_len).unwrap();
    let mut footer = bytes.split_off(tail.footer_offset as usize);
    let change = |bytes: &mut [u8]| {
        changes.iter().for_each(|(at, byte)| bytes[at.index(bytes.len())] = *byte);
    };
    if in_footer {
        change(&mut footer);
    } else {
        let mut message = Footer::decode(&footer[..]).unwrap();
        let section = &mut message.index[0].section;
        let start = section.offset as usize;
        let part = &mut bytes[start..start + section.len as usize];
        change(part);
        section.crc = crc32c::crc32c(part);
        footer = message.encode_to_vec();
    }
    tail.footer_len = footer.len() as u32;
    tail.footer_crc = crc32c::crc32c(&footer);
    bytes.extend_from_slice(&footer);
    bytes.extend_from_slice(&tail.encode());
}

fn sample(seed_entries: usize) -> Entries {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let strategy = entries(seed_entries..seed_entries + 1);
    strategy.new_tree(&mut TestRunner::deterministic()).unwrap().current()
}

#[test]
fn a_changed_byte_anywhere_is_noticed() {
    let entries = sample(40);
    for options in [
        FragmentOptions { compression: crate::fragment::Compression::Lz4, block_bytes: 300 },
        FragmentOptions { compression: crate::fragment::Compression::Zstd, block_bytes: 900 },
    ] {
        let sound = OneFile::default();
        sound.write_with(options, &entries, range_tombstones()).unwrap();
        assert_eq!(read_all(&sound, &entries).unwrap(), entries.len());
        sound.open().unwrap().verify().unwrap();
        for at in 0..sound.bytes().len() {
            let file = OneFile::new(sound.bytes());
            file.change(|bytes| bytes[at] ^= 1 << (at % 8));
            // Only damage to row filters may go unnoticed by a reader.
            if let Err(error) = read_all(&file, &entries) {
                assert!(is_data_loss(&error), "{error}");
            }
            let verified = file.open().and_then(|fragment| fragment.verify());
            assert!(is_data_loss(&verified.unwrap_err()), "byte {at}");
        }
    }
}

#[test]
fn a_file_cut_short_is_no_fragment() {
    let (file, entries) = (OneFile::default(), sample(30));
    file.write_with(FragmentOptions::default(), &entries, range_tombstones()).unwrap();
    let whole = file.bytes();
    for len in 0..whole.len() {
        let error = OneFile::new(whole[..len].to_vec()).open().err().unwrap();
        assert!(is_data_loss(&error), "{error}");
    }
    let longer = OneFile::new([&whole[..], b"x"].concat());
    assert!(is_data_loss(&longer.open().err().unwrap()));
}

#[test]
fn a_damaged_block_is_named_and_the_others_still_serve() {
    let (file, entries) = (OneFile::default(), sample(60));
    let options = FragmentOptions { block_bytes: 300, ..FragmentOptions::default() };
    file.write(options, &entries).unwrap();
    let infos: Vec<_> = file.open().unwrap().blocks().map(Result::unwrap).collect();
    let bad = &infos[infos.len() / 2];
    file.change(|bytes| bytes[bad.offset as usize] ^= 0x40);
    let fragment = file.open().unwrap();
    let mut cursor = fragment.cursor(&CursorOptions::default());
    for (number, info) in infos.iter().enumerate() {
        let result = cursor.seek(&info.first_key);
        if number == infos.len() / 2 {
            let error = result.unwrap_err();
            assert!(
                matches!(&error, Error::DataLoss { offset, .. } if *offset == bad.offset),
                "{error}"
            );
            assert!(!cursor.valid());
        } else {
            result.unwrap();
            assert_eq!(cursor.key(), info.first_key);
            assert_eq!(cursor.value(), entries[&info.first_key]);
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_no_fragment(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(OneFile::new(bytes).open().is_err());
    }

    #[test]
    fn arbitrary_metadata_never_panics(
        body in prop::collection::vec(any::<u8>(), 0..200),
        footer_len in 0usize..100,
    ) {
        // A valid tail, so that the reader accepts the rest.
        let footer_len = footer_len.min(body.len());
        let footer_offset = body.len() - footer_len;
        let tail = FileTail {
            footer_offset: footer_offset as u64,
            footer_len: footer_len as u32,
            footer_crc: crc32c::crc32c(&body[footer_offset..]),
            hash: 0,
        };
        let file = OneFile::new([&body[..], &tail.encode()].concat());
        if let Ok(fragment) = file.open() {
            fragment.cursor(&CursorOptions::default()).seek(b"").ok();
            fragment.verify().ok();
        }
    }

    #[test]
    fn changed_metadata_with_right_checksums_never_panics(
        entries in entries(1..60),
        options in options(),
        in_footer in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let file = OneFile::default();
        file.write_with(options, &entries, range_tombstones()).unwrap();
        file.change(|bytes| change_metadata(bytes, in_footer, &changes));
        if let Ok(fragment) = file.open() {
            fragment.verify().ok();
            fragment.estimate_bytes(&RowRange::new("a", "b"));
            let mut cursor = fragment.cursor(&CursorOptions::default());
            for key in entries.keys() {
                fragment.may_hold_row(key, row_hash(key));
                cursor.seek(key).and_then(|()| cursor.next()).ok();
                cursor.seek_before(key).ok();
            }
        }
    }
}
