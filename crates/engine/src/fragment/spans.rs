//! The section of a fragment that lists its range tombstones.

use crate::cell::rows::RowRange;
use crate::cell::span::{Span, Spans};
use crate::fragment::varint::{Bytes, push_varint};
use crate::txn::Txn;

pub fn encode_spans(spans: &Spans) -> Vec<u8> {
    let mut out = Vec::new();
    for span in spans.iter() {
        push_bytes(&mut out, &span.range.start);
        out.push(span.range.end.is_some().into());
        if let Some(end) = &span.range.end {
            push_bytes(&mut out, end);
        }
        push_varint(&mut out, span.txns.len() as u64);
        for txn in &span.txns {
            push_varint(&mut out, txn.raw());
        }
    }
    out
}

/// Parses the section; `None` if it is damaged.
pub fn parse_spans(bytes: &[u8]) -> Option<Spans> {
    let mut read = Bytes::new(bytes);
    let mut list = Vec::new();
    while !read.is_empty() {
        list.push(parse_span(&mut read)?);
    }
    Spans::from_sorted(list)
}

fn parse_span(read: &mut Bytes<'_>) -> Option<Span> {
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
    Some(Span { range: RowRange { start, end }, txns })
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(read: &mut Bytes<'a>) -> Option<&'a [u8]> {
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
            let mut spans = Spans::default();
            for (start, end, txn) in deletes {
                let end = (end < 250).then(|| vec![end]);
                spans.insert(&RowRange { start: vec![start], end }, Txn::from_raw(txn).unwrap());
            }
            prop_assert_eq!(parse_spans(&encode_spans(&spans)), Some(spans));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(0u8..6, 0..60)) {
            parse_spans(&bytes);
        }
    }
}
