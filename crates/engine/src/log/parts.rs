//! Reassembles payloads from their parts. A payload counts only with its last
//! part; one left incomplete by a crashed incarnation is dropped.

use bytes::{Bytes, BytesMut};

use super::record::{Kind, PAYLOAD_BYTES_MAX, RecordHeader, TOTAL_BYTES, read_u64};

/// The position at which an entry starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub segment: u64,
    pub offset: u64,
}

struct Open {
    stream: u16,
    index: u64,
    total: usize,
    place: Place,
    payload: BytesMut,
}

#[derive(Default)]
pub(super) struct Parts {
    epoch: u64,
    open: Option<Open>,
    /// Whether a part must follow a `First`. At the start of the log, parts may
    /// belong to an entry whose beginning was released.
    strict: bool,
}

impl Parts {
    /// Starts a segment of `epoch`. Only a crashed incarnation leaves a payload
    /// incomplete, and the next incarnation starts its own segment.
    pub(super) fn enter(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.open = None;
            self.strict = self.epoch != 0;
            self.epoch = epoch;
        }
    }

    /// Adds a data record. Returns the payload that it completes and where that
    /// starts. `log_bytes_left` bounds the preallocation.
    pub(super) fn accept(
        &mut self,
        header: &RecordHeader,
        payload: Bytes,
        place: Place,
        log_bytes_left: u64,
    ) -> Result<Option<(Bytes, Place)>, &'static str> {
        match header.kind {
            Kind::Full | Kind::First if self.open.is_some() => {
                Err("an entry begins inside another")
            }
            Kind::Full => {
                self.strict = true;
                Ok(Some((payload, place)))
            }
            Kind::First => {
                self.strict = true;
                self.open = Some(Open::begin(header, &payload, place, log_bytes_left)?);
                Ok(None)
            }
            _ => self.go_on(header, &payload),
        }
    }

    /// Notes missing records: an entry may have started or ended in them.
    pub(super) fn lose(&mut self) {
        (self.open, self.strict) = (None, false);
    }

    /// Checks that no payload is incomplete before a record that is neither
    /// data nor state: entries do not span such records.
    pub(super) fn between(&self) -> Result<(), &'static str> {
        if self.open.is_some() { Err("an entry has no end") } else { Ok(()) }
    }

    fn go_on(
        &mut self,
        header: &RecordHeader,
        part: &[u8],
    ) -> Result<Option<(Bytes, Place)>, &'static str> {
        let Some(open) = self.open.as_mut() else {
            return if self.strict { Err("a part without a beginning") } else { Ok(None) };
        };
        if (open.stream, open.index) != (header.stream, header.index) {
            return Err("a part of another entry");
        }
        if part.len() > open.total - open.payload.len() {
            return Err("the parts are longer than the entry");
        }
        open.payload.extend_from_slice(part);
        if header.kind != Kind::Last {
            return Ok(None);
        }
        if open.payload.len() != open.total {
            return Err("the parts are shorter than the entry");
        }
        let done = self.open.take().expect("it was borrowed just above");
        Ok(Some((done.payload.freeze(), done.place)))
    }
}

impl Open {
    fn begin(
        header: &RecordHeader,
        part: &[u8],
        place: Place,
        log_bytes_left: u64,
    ) -> Result<Open, &'static str> {
        if part.len() < TOTAL_BYTES {
            return Err("a first part without the length of its entry");
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
        Ok(Open { stream: header.stream, index: header.index, total, place, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { segment: 1, offset: 64 };

    fn header(kind: Kind, index: u64) -> RecordHeader {
        RecordHeader { tag: 1, record: 1, synced: 0, index, stream: 0, kind }
    }

    fn first(total: u64, part: &[u8]) -> Bytes {
        [&total.to_le_bytes()[..], part].concat().into()
    }

    fn parts() -> Parts {
        let mut parts = Parts::default();
        parts.enter(1);
        parts
    }

    #[test]
    fn an_entry_is_whole_only_with_its_last_part() {
        let mut parts = parts();
        let begun = parts.accept(&header(Kind::First, 5), first(6, b"ab"), PLACE, 100);
        assert_eq!(begun, Ok(None));
        assert_eq!(parts.accept(&header(Kind::Middle, 5), "cd".into(), PLACE, 100), Ok(None));
        let done = parts.accept(&header(Kind::Last, 5), "ef".into(), PLACE, 100);
        assert_eq!(done, Ok(Some(("abcdef".into(), PLACE))));
    }

    #[test]
    fn an_unfinished_entry_is_dropped_with_its_incarnation_only() {
        let mut parts = parts();
        parts.accept(&header(Kind::First, 5), first(6, b"ab"), PLACE, 100).unwrap();
        parts.enter(1);
        assert!(parts.accept(&header(Kind::Full, 6), "x".into(), PLACE, 100).is_err());
        parts.enter(2);
        let next = parts.accept(&header(Kind::Full, 6), "x".into(), PLACE, 100);
        assert_eq!(next, Ok(Some(("x".into(), PLACE))));
    }

    #[test]
    fn parts_without_a_beginning_are_let_pass_only_at_the_head_of_the_log() {
        let mut parts = parts();
        assert_eq!(parts.accept(&header(Kind::Last, 5), "ef".into(), PLACE, 100), Ok(None));
        parts.accept(&header(Kind::Full, 6), "x".into(), PLACE, 100).unwrap();
        assert!(parts.accept(&header(Kind::Last, 7), "ef".into(), PLACE, 100).is_err());
    }

    #[test]
    fn a_false_length_is_refused_and_allocates_nothing() {
        for (total, part) in [(u64::MAX, "a"), (PAYLOAD_BYTES_MAX as u64 + 1, "a"), (1, "ab")] {
            let payload = first(total, part.as_bytes());
            assert!(parts().accept(&header(Kind::First, 5), payload, PLACE, 100).is_err());
        }
        let mut parts = parts();
        let payload = first(PAYLOAD_BYTES_MAX as u64, b"a");
        parts.accept(&header(Kind::First, 5), payload, PLACE, 100).unwrap();
        assert!(parts.open.as_ref().unwrap().payload.capacity() < 4096);
        assert!(parts.accept(&header(Kind::Last, 5), "b".into(), PLACE, 100).is_err());
    }
}
