//! The bytes of a group of records on their way to a file: headers and small
//! payloads are copied into one buffer, large payloads are written from where
//! they are.

use std::io::IoSlice;

use bytes::Bytes;

use super::record::RecordHeader;

/// Payloads of at least this size are not copied. Below it, copying is cheaper
/// than another part of a vectored write.
const SHARED_BYTES_MIN: usize = 16 << 10;

#[derive(Default)]
pub(super) struct Vectored {
    copied: Vec<u8>,
    /// Payloads that are not copied, each with the length that `copied` had
    /// when it was added.
    shared: Vec<(usize, Bytes)>,
    shared_bytes: usize,
}

impl Vectored {
    /// Starts with an empty buffer that may have capacity.
    pub(super) fn with_buffer(mut copied: Vec<u8>) -> Vectored {
        copied.clear();
        Vectored { copied, ..Vectored::default() }
    }

    /// Appends a record whose payload is `prefix` followed by `body`.
    pub(super) fn push(&mut self, header: &RecordHeader, prefix: &[u8], body: Bytes) {
        if body.len() < SHARED_BYTES_MIN {
            return header.encode(prefix, &body, &mut self.copied);
        }
        let padding = header.encode_head(prefix, &body, &mut self.copied);
        self.shared_bytes += body.len();
        self.shared.push((self.copied.len(), body));
        self.copied.resize(self.copied.len() + padding, 0);
    }

    pub(super) fn len(&self) -> usize {
        self.copied.len() + self.shared_bytes
    }

    /// Returns the parts of the write, in order.
    pub(super) fn parts(&self) -> Vec<IoSlice<'_>> {
        let mut parts = Vec::with_capacity(2 * self.shared.len() + 1);
        let mut from = 0;
        for (upto, body) in &self.shared {
            parts.push(IoSlice::new(&self.copied[from..*upto]));
            parts.push(IoSlice::new(body));
            from = *upto;
        }
        parts.push(IoSlice::new(&self.copied[from..]));
        parts
    }

    /// Returns the buffer, for the next group.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.copied
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::RecordKind;
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_records_wherever_the_payloads_are() {
        let sizes = [0, 7, SHARED_BYTES_MIN - 1, SHARED_BYTES_MIN, 3, SHARED_BYTES_MIN + 5];
        let (mut expected, mut vectored) = (Vec::new(), Vectored::with_buffer(vec![1, 2, 3]));
        for (record, bytes) in (1..).zip(sizes) {
            let kind = RecordKind::First;
            let header = RecordHeader { tag: 5, record, synced: 0, index: 9, stream: 2, kind };
            let body = vec![record as u8; bytes];
            header.encode(b"prefix", &body, &mut expected);
            vectored.push(&header, b"prefix", body.into());
        }
        assert_eq!(vectored.len(), expected.len());
        assert_eq!(vectored.parts().len(), 5);
        let parts: Vec<u8> = vectored.parts().iter().flat_map(|part| part.to_vec()).collect();
        assert!(parts == expected);
    }
}
