//! The codec of requests. The ranges of a scan are counted on the wire, before a request
//! is decoded: decoded, each takes many times its encoded size. A packed commit takes no
//! more than it has.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use stele_grpc::{AnyMessage, CheckedCodec, Precheck};
use tonic::Status;

/// The codec of all messages of this crate.
pub type Codec<T, U> = CheckedCodec<T, U, CountRanges>;

/// Fields of scans and commits; no other message has fields of these numbers.
const PREDICATE: u32 = 16;
const COMMIT: u32 = 17;
/// `Predicate.families`, whose messages hold ranges themselves.
const FAMILIES: u32 = 2;
/// The maximum number of ranges and families of a scan.
pub const RANGES_MAX: usize = 10_000;
/// The size of a decoded range, approximately.
const RANGE_BYTES: usize = 160;

#[derive(Clone, Copy, Debug)]
pub struct CountRanges;

impl Precheck for CountRanges {
    fn check(message: &[u8]) -> Result<usize, Status> {
        let (mut ranges, mut known) = (0, 0);
        each_field(message, |tag, body| {
            if tag == PREDICATE || tag == COMMIT {
                known += body.len();
            }
            if tag == PREDICATE {
                each_field(body, |tag, body| {
                    ranges += 1;
                    if tag == FAMILIES {
                        each_field(body, |_, _| ranges += 1);
                    }
                });
            }
        });
        if ranges > RANGES_MAX {
            return Err(Status::invalid_argument(format!(
                "a scan of {ranges} ranges and families is over the limit of {RANGES_MAX}: \
                 use several scans"
            )));
        }
        Ok(ranges * RANGE_BYTES + AnyMessage::check(&message[known..])?)
    }
}

/// Calls `found` with each length-delimited field, up to the first malformed one, at which
/// decoding fails.
fn each_field(mut message: &[u8], mut found: impl FnMut(u32, &[u8])) {
    while !message.is_empty() {
        let Ok((tag, kind)) = decode_key(&mut message) else { return };
        if kind != WireType::LengthDelimited {
            if skip_field(kind, tag, &mut message, DecodeContext::default()).is_err() {
                return;
            }
            continue;
        }
        let Ok(length) = decode_varint(&mut message) else { return };
        let Some((body, rest)) =
            usize::try_from(length).ok().and_then(|length| message.split_at_checked(length))
        else {
            return;
        };
        found(tag, body);
        message = rest;
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::proto::{
        ApplyRequest, FamilyPredicate, GetRequest, Predicate, QualifierRange, RowRange, ScanRequest,
    };

    fn scan(rows: usize, qualifiers: usize) -> Vec<u8> {
        let family = FamilyPredicate {
            family: "f".into(),
            qualifiers: vec![QualifierRange::default(); qualifiers],
        };
        let predicate = Predicate {
            rows: vec![RowRange::default(); rows],
            families: vec![family],
            ..Predicate::default()
        };
        ScanRequest { predicate: Some(predicate), ..ScanRequest::default() }.encode_to_vec()
    }

    #[test]
    fn ranges_are_counted_before_a_scan_is_decoded() {
        // One family with its name, three rows and four ranges of qualifiers.
        assert_eq!(CountRanges::check(&scan(3, 4)).unwrap(), 9 * RANGE_BYTES);
        assert!(CountRanges::check(&scan(RANGES_MAX, 0)).is_err());
        assert!(CountRanges::check(&scan(0, RANGES_MAX)).is_err());
    }

    #[test]
    fn a_packed_commit_takes_no_more_than_it_has() {
        let request = ApplyRequest { commit: vec![1; 1 << 20].into(), ..Default::default() };
        assert_eq!(CountRanges::check(&request.encode_to_vec()).unwrap(), 0);
        let other = GetRequest { table: "t".repeat(1 << 20), ..Default::default() };
        assert!(CountRanges::check(&other.encode_to_vec()).unwrap() > 1 << 20);
    }

    #[test]
    fn malformed_bytes_do_not_panic() {
        let whole = scan(3, 4);
        for end in 0..whole.len() {
            let _ = CountRanges::check(&whole[..end]);
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xFF;
            let _ = CountRanges::check(&changed);
        }
    }
}
