//! The section of a fragment that lists its range tombstones.

use crate::cell::range_tombstone::{RangeTombstone, RangeTombstones};
use crate::cell::rows::RowRange;
use crate::txn::Txn;
use crate::varint::{ByteReader, push_varint};

pub fn encode_range_tombstones(tombstones: &RangeTombstones) -> Vec<u8> {
    let mut out = Vec::new();
    for tombstone in tombstones.iter() {
        push_bytes(&mut out, &tombstone.range.start);
        out.push(tombstone.range.end.is_some().into());
        if let Some(end) = &tombstone.range.end {
            push_bytes(&mut out, end);
        }
        push_varint(&mut out, tombstone.txns.len() as u64);
        for txn in &tombstone.txns {
            push_varint(&mut out, txn.raw());
        }
    }
    out
}

/// Parses the section; `None` if it is damaged.
pub fn parse_range_tombstones(bytes: &[u8]) -> Option<RangeTombstones> {
    let mut read = ByteReader::new(bytes);
    let mut list = Vec::new();
    while !read.is_empty() {
        list.push(parse_range_tombstone(&mut read)?);
    }
    RangeTombstones::from_sorted(list)
}

fn parse_range_tombstone(read: &mut ByteReader<'_>) -> Option<RangeTombstone> {
    let start = take_bytes(read)?.to_vec();
    let end = match read.byte()? {
        0 => None,
        1 => Some(take_bytes(read)?.to_vec()),
        _ => return None,
    };
    let mut txns = Vec::new();
    for _ in 0..read.varint()? {
        txns.push(Txn::from_raw(read.varint()?)?);
    }
    Some(RangeTombstone { range: RowRange { start, end }, txns })
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(read: &mut ByteReader<'a>) -> Option<&'a [u8]> {
    let len = usize::try_from(read.varint()?).ok()?;
    read.take(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn spans_read_back_as_written(
            deletes in prop::collection::vec((any::<u8>(), any::<u8>(), 1u64..1 << 40), 0..12),
        ) {
            let mut tombstones = RangeTombstones::default();
            for (start, end, txn) in deletes {
                let end = (end < 250).then(|| vec![end]);
                tombstones.insert(&RowRange { start: vec![start], end }, Txn::from_raw(txn).unwrap());
            }
            prop_assert_eq!(parse_range_tombstones(&encode_range_tombstones(&tombstones)), Some(tombstones));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(0u8..6, 0..60)) {
            parse_range_tombstones(&bytes);
        }
    }
}
