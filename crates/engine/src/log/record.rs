//! A record: a fixed header, a payload, and padding to 8 bytes. The checksum
//! covers the header and the payload, and the header carries its segment's tag,
//! so that leftovers from an earlier use of the file are never mistaken for
//! records.

/// Size of a record header.
pub(super) const HEADER_BYTES: usize = 48;
/// Every record starts at a multiple of this.
pub(super) const ALIGN: usize = 8;
/// Maximum payload of a record; a reader rejects more without reading it.
pub(super) const RECORD_BYTES_MAX: usize = 64 << 20;
/// Maximum payload of one entry, over all its parts.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 30;
/// Size of the total length at the start of a `First` record's payload.
pub(super) const TOTAL_BYTES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RecordKind {
    /// A complete payload.
    Full = 1,
    /// The parts of one payload, which counts only if its `Last` is present.
    First = 2,
    Middle = 3,
    Last = 4,
    /// Invalidates the stream's entries from `index` on.
    Cut = 5,
    /// The stream's state; the latest wins.
    State = 6,
    /// The writer closed the log; everything before this record was synced.
    Close = 7,
}

impl RecordKind {
    fn from_byte(byte: u8) -> Option<RecordKind> {
        Some(match byte {
            1 => RecordKind::Full,
            2 => RecordKind::First,
            3 => RecordKind::Middle,
            4 => RecordKind::Last,
            5 => RecordKind::Cut,
            6 => RecordKind::State,
            7 => RecordKind::Close,
            _ => return None,
        })
    }

    /// Returns the name used in `docs/format-log.md`, in lower case.
    pub(super) fn name(self) -> &'static str {
        match self {
            RecordKind::Full => "full",
            RecordKind::First => "first",
            RecordKind::Middle => "middle",
            RecordKind::Last => "last",
            RecordKind::Cut => "cut",
            RecordKind::State => "state",
            RecordKind::Close => "close",
        }
    }

    /// Whether the record carries an entry or a part of one.
    pub(super) fn is_data(self) -> bool {
        matches!(self, RecordKind::Full | RecordKind::First | RecordKind::Middle | RecordKind::Last)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    /// The tag of the segment that holds the record.
    pub tag: u64,
    /// Number of the record, consecutive over the whole log.
    pub record: u64,
    /// Highest record known to be synced when this one was written.
    pub synced: u64,
    pub index: u64,
    pub stream: u16,
    pub kind: RecordKind,
}

/// A decoded header, with the fields needed only for framing.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodedHeader {
    pub header: RecordHeader,
    pub payload_bytes: usize,
}

/// Returns the size in a segment of a record with this payload.
pub(super) fn record_bytes(payload_bytes: usize) -> usize {
    (HEADER_BYTES + payload_bytes).next_multiple_of(ALIGN)
}

impl RecordHeader {
    /// Appends the record to `out`. The payload comes in two pieces, to avoid
    /// copying the body behind the prefix.
    pub(super) fn encode(&self, prefix: &[u8], body: &[u8], out: &mut Vec<u8>) {
        let padding = self.encode_head(prefix, body, out);
        out.extend_from_slice(body);
        out.resize(out.len() + padding, 0);
    }

    /// Appends the header and the prefix to `out`; the body and as many zeros as
    /// it returns must follow.
    pub(super) fn encode_head(&self, prefix: &[u8], body: &[u8], out: &mut Vec<u8>) -> usize {
        let length = prefix.len() + body.len();
        assert!(length <= RECORD_BYTES_MAX, "a record of {length} bytes was not split");
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(length as u32).to_le_bytes());
        out.extend_from_slice(&self.tag.to_le_bytes());
        out.extend_from_slice(&self.record.to_le_bytes());
        out.extend_from_slice(&self.synced.to_le_bytes());
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.stream.to_le_bytes());
        out.extend_from_slice(&[self.kind as u8, 0, 0, 0, 0, 0]);
        out.extend_from_slice(prefix);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&out[start + 4..]), body);
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        record_bytes(length) - HEADER_BYTES - length
    }
}

/// Returns the tag in an unverified header, to distinguish a damaged record of
/// a segment from bytes that never were one.
pub(super) fn tag_of(header: &[u8]) -> u64 {
    read_u64(header, 8)
}

/// Decodes a header without verifying the CRC; `None` if it is invalid.
pub(super) fn decode(header: &[u8]) -> Option<DecodedHeader> {
    let payload_bytes = read_u32(header, 4) as usize;
    if payload_bytes > RECORD_BYTES_MAX || header[43..HEADER_BYTES] != [0; 5] {
        return None;
    }
    let stream = u16::from_le_bytes([header[40], header[41]]);
    let header = RecordHeader {
        tag: tag_of(header),
        record: read_u64(header, 16),
        synced: read_u64(header, 24),
        index: read_u64(header, 32),
        stream,
        kind: RecordKind::from_byte(header[42])?,
    };
    Some(DecodedHeader { header, payload_bytes })
}

/// Whether the checksum of header and payload (without padding) matches.
pub(super) fn checksum_matches(record: &[u8]) -> bool {
    crc32c::crc32c(&record[4..]) == read_u32(record, 0)
}

pub(super) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("a slice of four bytes"))
}

pub(super) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a slice of eight bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_record_reads_back_as_it_was_written(
            numbers in any::<[u64; 4]>(),
            stream in any::<u16>(),
            kind in 1u8..=7,
            prefix in prop::collection::vec(any::<u8>(), 0..9),
            body in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let [tag, record, synced, index] = numbers;
            let kind = RecordKind::from_byte(kind).unwrap();
            let header = RecordHeader { tag, record, synced, index, stream, kind };
            let mut out = Vec::new();
            header.encode(&prefix, &body, &mut out);
            let decoded = decode(&out).unwrap();
            prop_assert_eq!(decoded.header, header);
            prop_assert_eq!(decoded.payload_bytes, prefix.len() + body.len());
            prop_assert_eq!(out.len(), record_bytes(decoded.payload_bytes));
            let end = HEADER_BYTES + decoded.payload_bytes;
            prop_assert_eq!(&out[HEADER_BYTES..end], &[prefix, body].concat()[..]);
            prop_assert!(checksum_matches(&out[..end]));
            for bit in 0..end * 8 {
                out[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(!checksum_matches(&out[..end]), "bit {} is not checked", bit);
                out[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
