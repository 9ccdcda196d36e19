//! Reassembles payloads from their parts. A payload counts only with its last
//! part; one left incomplete by a crashed incarnation is dropped.

use bytes::{Bytes, BytesMut};

use super::record::{PAYLOAD_BYTES_MAX, RecordHeader, RecordKind, TOTAL_BYTES, read_u64};

/// The position at which an entry starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordPosition {
    pub segment: u64,
    pub offset: u64,
}

/// An entry whose last part has not been read yet.
struct IncompleteEntry {
    stream: u16,
    index: u64,
    total: usize,
    position: RecordPosition,
    payload: BytesMut,
}

/// Joins the parts of payloads.
#[derive(Default)]
pub(super) struct PayloadAssembler {
    incarnation: u64,
    open: Option<IncompleteEntry>,
    /// Whether a part must follow a `First`. At the start of the log, parts may
    /// belong to an entry whose beginning was released.
    strict: bool,
}

impl PayloadAssembler {
    /// Starts a segment of `incarnation`. Only a crashed incarnation leaves a payload
    /// incomplete, and the next incarnation starts its own segment.
    pub(super) fn begin_segment(&mut self, incarnation: u64) {
        if self.incarnation != incarnation {
            self.open = None;
            self.strict = self.incarnation != 0;
            self.incarnation = incarnation;
        }
    }

    /// Adds a data record. Returns the payload that it completes and where that
    /// starts. `log_bytes_left` bounds the preallocation.
    pub(super) fn accept(
        &mut self,
        header: &RecordHeader,
        payload: Bytes,
        position: RecordPosition,
        log_bytes_left: u64,
    ) -> Result<Option<(Bytes, RecordPosition)>, &'static str> {
        match header.kind {
            RecordKind::Full | RecordKind::First if self.open.is_some() => {
                Err("an entry begins before the end of the one before it")
            }
            RecordKind::Full => {
                self.strict = true;
                Ok(Some((payload, position)))
            }
            RecordKind::First => {
                self.strict = true;
                self.open =
                    Some(IncompleteEntry::begin(header, &payload, position, log_bytes_left)?);
                Ok(None)
            }
            _ => self.continue_entry(header, &payload),
        }
    }

    /// Notes missing records: an entry may have started or ended in them.
    pub(super) fn skip_gap(&mut self) {
        (self.open, self.strict) = (None, false);
    }

    /// Checks that no payload is incomplete before a record that is neither
    /// data nor state: entries do not span such records.
    pub(super) fn check_complete(&self) -> Result<(), &'static str> {
        if self.open.is_some() { Err("an entry is incomplete") } else { Ok(()) }
    }

    fn continue_entry(
        &mut self,
        header: &RecordHeader,
        part: &[u8],
    ) -> Result<Option<(Bytes, RecordPosition)>, &'static str> {
        let Some(open) = self.open.as_mut() else {
            return if self.strict { Err("a part follows no first part") } else { Ok(None) };
        };
        if (open.stream, open.index) != (header.stream, header.index) {
            return Err("a part belongs to another entry");
        }
        if part.len() > open.total - open.payload.len() {
            return Err("the parts are longer than the entry");
        }
        open.payload.extend_from_slice(part);
        if header.kind != RecordKind::Last {
            return Ok(None);
        }
        if open.payload.len() != open.total {
            return Err("the parts are shorter than the entry");
        }
        let done = self.open.take().expect("an entry is open");
        Ok(Some((done.payload.freeze(), done.position)))
    }
}

impl IncompleteEntry {
    fn begin(
        header: &RecordHeader,
        part: &[u8],
        position: RecordPosition,
        log_bytes_left: u64,
    ) -> Result<IncompleteEntry, &'static str> {
        if part.len() < TOTAL_BYTES {
            return Err("a first part does not hold the length of its entry");
        }
        let total = usize::try_from(read_u64(part, 0)).unwrap_or(usize::MAX);
        let part = &part[TOTAL_BYTES..];
        if total > PAYLOAD_BYTES_MAX || part.len() > total {
            return Err("the length of an entry is out of range");
        }
        // An entry longer than the rest of the log cannot be complete.
        let ahead = total.min(usize::try_from(log_bytes_left).unwrap_or(usize::MAX));
        let mut payload = BytesMut::with_capacity(ahead.max(part.len()));
        payload.extend_from_slice(part);
        Ok(IncompleteEntry { stream: header.stream, index: header.index, total, position, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSITION: RecordPosition = RecordPosition { segment: 1, offset: 64 };

    fn header(kind: RecordKind, index: u64) -> RecordHeader {
        RecordHeader { tag: 1, record: 1, synced: 0, index, stream: 0, kind }
    }

    fn first(total: u64, part: &[u8]) -> Bytes {
        [&total.to_le_bytes()[..], part].concat().into()
    }

    fn assembler() -> PayloadAssembler {
        let mut assembler = PayloadAssembler::default();
        assembler.begin_segment(1);
        assembler
    }

    #[test]
    fn an_entry_is_whole_only_with_its_last_part() {
        let mut assembler = assembler();
        let begun = assembler.accept(&header(RecordKind::First, 5), first(6, b"ab"), POSITION, 100);
        assert_eq!(begun, Ok(None));
        assert_eq!(
            assembler.accept(&header(RecordKind::Middle, 5), "cd".into(), POSITION, 100),
            Ok(None)
        );
        let done = assembler.accept(&header(RecordKind::Last, 5), "ef".into(), POSITION, 100);
        assert_eq!(done, Ok(Some(("abcdef".into(), POSITION))));
    }

    #[test]
    fn an_unfinished_entry_is_dropped_with_its_incarnation_only() {
        let mut assembler = assembler();
        assembler.accept(&header(RecordKind::First, 5), first(6, b"ab"), POSITION, 100).unwrap();
        assembler.begin_segment(1);
        assert!(assembler.accept(&header(RecordKind::Full, 6), "x".into(), POSITION, 100).is_err());
        assembler.begin_segment(2);
        let next = assembler.accept(&header(RecordKind::Full, 6), "x".into(), POSITION, 100);
        assert_eq!(next, Ok(Some(("x".into(), POSITION))));
    }

    #[test]
    fn parts_without_a_beginning_are_let_pass_only_at_the_head_of_the_log() {
        let mut assembler = assembler();
        assert_eq!(
            assembler.accept(&header(RecordKind::Last, 5), "ef".into(), POSITION, 100),
            Ok(None)
        );
        assembler.accept(&header(RecordKind::Full, 6), "x".into(), POSITION, 100).unwrap();
        assert!(
            assembler.accept(&header(RecordKind::Last, 7), "ef".into(), POSITION, 100).is_err()
        );
    }

    #[test]
    fn a_false_length_is_refused_and_allocates_nothing() {
        for (total, part) in [(u64::MAX, "a"), (PAYLOAD_BYTES_MAX as u64 + 1, "a"), (1, "ab")] {
            let payload = first(total, part.as_bytes());
            assert!(
                assembler().accept(&header(RecordKind::First, 5), payload, POSITION, 100).is_err()
            );
        }
        let mut assembler = assembler();
        let payload = first(PAYLOAD_BYTES_MAX as u64, b"a");
        assembler.accept(&header(RecordKind::First, 5), payload, POSITION, 100).unwrap();
        assert!(assembler.open.as_ref().unwrap().payload.capacity() < 4096);
        assert!(assembler.accept(&header(RecordKind::Last, 5), "b".into(), POSITION, 100).is_err());
    }
}
