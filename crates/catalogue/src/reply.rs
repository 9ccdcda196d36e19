//! Encodes replies: values are copied directly from the engine's blocks into the bytes
//! that are sent.

use bytes::Bytes;
use prost::encoding::{encode_varint, encoded_len_varint};
use stele_grpc::frame::{self, PREFIX_BYTES};

use crate::proto::Code;
use crate::service::{Answer, WalkSink};

/// The size of a length that is filled in afterwards.
const LENGTH_BYTES: usize = 4;

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH_DELIMITED: u8 = 2;

const fn tag(field: u8, wire_type: u8) -> u8 {
    field << 3 | wire_type
}

/// A message being written, with its prefix.
struct Frame {
    bytes: Vec<u8>,
}

impl Frame {
    fn new() -> Frame {
        Frame { bytes: vec![0; PREFIX_BYTES] }
    }

    fn len(&self) -> usize {
        self.bytes.len() - PREFIX_BYTES
    }

    fn push_number(&mut self, field: u8, number: u64) {
        if number != 0 {
            self.bytes.push(tag(field, VARINT));
            encode_varint(number, &mut self.bytes);
        }
    }

    fn push_bytes(&mut self, field: u8, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.bytes.reserve(bytes.len() + 16);
            self.bytes.push(tag(field, LENGTH_DELIMITED));
            encode_varint(bytes.len() as u64, &mut self.bytes);
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Starts a nested message and returns the start of its body.
    fn begin(&mut self, field: u8) -> usize {
        self.bytes.push(tag(field, LENGTH_DELIMITED));
        self.bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        self.bytes.len()
    }

    /// Fills in the length of a nested message, in the bytes reserved for it.
    fn end(&mut self, body: usize) {
        let mut length = self.bytes.len() - body;
        debug_assert!(length < 1 << (7 * LENGTH_BYTES), "the limits keep messages smaller");
        for at in body - LENGTH_BYTES..body {
            let more = if at + 1 < body { 0x80 } else { 0 };
            self.bytes[at] = (length & 0x7F) as u8 | more;
            length >>= 7;
        }
    }

    fn finish(mut self) -> Bytes {
        frame::seal(&mut self.bytes);
        self.bytes.into()
    }
}

/// A `GetReply`.
pub struct GetFrame {
    frame: Frame,
    open: Option<usize>,
}

impl Default for GetFrame {
    fn default() -> Self {
        GetFrame { frame: Frame::new(), open: None }
    }
}

impl GetFrame {
    const FOUND: u8 = 1;
    const COUNT: u8 = 2;
    const CATALOGUE_COOKIE: u8 = 3;

    fn open(&mut self) -> usize {
        let frame = &mut self.frame;
        *self.open.get_or_insert_with(|| frame.begin(Self::FOUND))
    }

    pub fn finish(self) -> Bytes {
        self.frame.finish()
    }

    /// Finishes the last message.
    pub fn finish_last(mut self, count: u64, catalogue_cookie: &[u8]) -> Bytes {
        self.frame.push_number(Self::COUNT, count);
        self.frame.push_bytes(Self::CATALOGUE_COOKIE, catalogue_cookie);
        self.frame.finish()
    }
}

impl Answer for GetFrame {
    fn value(&mut self, value: &[u8]) {
        self.open();
        self.frame.push_bytes(2, value);
    }

    fn done(&mut self, code: Code, cookie: &[u8]) {
        let body = self.open();
        self.frame.push_number(1, code as u64);
        self.frame.push_bytes(3, cookie);
        self.frame.end(body);
        self.open = None;
    }

    fn bytes(&self) -> usize {
        self.frame.len()
    }
}

/// A `NextReply`.
pub struct NextFrame {
    frame: Frame,
    /// The open group: its start, and the start of its body.
    group: Option<(u32, usize)>,
}

impl Default for NextFrame {
    fn default() -> Self {
        NextFrame { frame: Frame::new(), group: None }
    }
}

impl NextFrame {
    const GROUPS: u8 = 1;
    const PINNED: u8 = 2;
    const CATALOGUE_COOKIE: u8 = 3;

    fn open(&mut self, start: u32) -> usize {
        if let Some((_, body)) = self.group {
            return body;
        }
        let body = self.frame.begin(Self::GROUPS);
        self.frame.push_number(1, start.into());
        self.group = Some((start, body));
        body
    }

    fn close(&mut self) {
        if let Some((_, body)) = self.group.take() {
            self.frame.end(body);
        }
    }

    pub fn finish(mut self) -> Bytes {
        self.close();
        self.frame.finish()
    }

    /// Finishes the last message.
    pub fn finish_last(mut self, pinned: Option<u64>, catalogue_cookie: &[u8]) -> Bytes {
        self.close();
        if let Some(txn) = pinned {
            self.frame.bytes.push(tag(Self::PINNED, FIXED64));
            self.frame.bytes.extend_from_slice(&txn.to_le_bytes());
        }
        self.frame.push_bytes(Self::CATALOGUE_COOKIE, catalogue_cookie);
        self.frame.finish()
    }
}

/// Returns the encoded size of a bytes field.
fn field_bytes(bytes: &[u8]) -> usize {
    match bytes.len() {
        0 => 0,
        length => 1 + encoded_len_varint(length as u64) + length,
    }
}

impl WalkSink for NextFrame {
    fn record(&mut self, start: u32, key: &[u8], value: &[u8], cookie: &[u8]) {
        self.open(start);
        let length = field_bytes(key) + field_bytes(value) + field_bytes(cookie);
        self.frame.bytes.reserve(length + 16);
        self.frame.bytes.push(tag(2, LENGTH_DELIMITED));
        encode_varint(length as u64, &mut self.frame.bytes);
        self.frame.push_bytes(1, key);
        self.frame.push_bytes(2, value);
        self.frame.push_bytes(3, cookie);
    }

    fn end(&mut self, start: u32, code: Code, count: u64) {
        self.open(start);
        self.frame.push_number(3, code as u64);
        self.frame.push_number(4, 1);
        self.frame.push_number(5, count);
        self.close();
    }

    fn bytes(&self) -> usize {
        self.frame.len()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::proto::{Found, GetReply, Group, Item, NextReply};

    fn message<M: Message + Default>(frame: &Bytes) -> M {
        let length = u32::from_be_bytes(frame[1..5].try_into().unwrap());
        assert_eq!((frame[0], length as usize), (0, frame.len() - 5));
        M::decode(&frame[5..]).unwrap()
    }

    #[test]
    fn encoded_get_replies_are_decoded() {
        let large = vec![7; 70_000];
        let mut frame = GetFrame::default();
        frame.value(&large);
        frame.done(Code::Ok, b"cookie");
        frame.done(Code::Absent, b"");
        frame.value(b"");
        frame.done(Code::Ok, b"");
        let reply: GetReply = message(&frame.finish_last(2, b"c"));
        let found = |code: Code, value: &[u8], cookie: &'static [u8]| Found {
            code: code as i32,
            value: Bytes::copy_from_slice(value),
            cookie: cookie.into(),
        };
        let expected = [
            found(Code::Ok, &large, b"cookie"),
            found(Code::Absent, b"", b""),
            found(Code::Ok, b"", b""),
        ];
        assert_eq!(reply.found, expected);
        assert_eq!((reply.count, &reply.catalogue_cookie[..]), (2, &b"c"[..]));
    }

    #[test]
    fn encoded_groups_are_decoded() {
        let mut frame = NextFrame::default();
        frame.record(0, b"", b"v", b"x");
        frame.record(0, b"k", &[1; 200], b"");
        frame.end(0, Code::Ok, 2);
        frame.end(1, Code::Absent, 0);
        frame.record(300, b"z", b"", b"");
        let reply: NextReply = message(&frame.finish_last(Some(u64::MAX >> 1), b""));
        let item = |key: &'static [u8], value: &[u8], cookie: &'static [u8]| Item {
            key: key.into(),
            value: Bytes::copy_from_slice(value),
            cookie: cookie.into(),
        };
        let expected = [
            Group {
                start: 0,
                records: vec![item(b"", b"v", b"x"), item(b"k", &[1; 200], b"")],
                code: 0,
                last: true,
                count: 2,
            },
            Group { start: 1, code: Code::Absent as i32, last: true, ..Default::default() },
            Group { start: 300, records: vec![item(b"z", b"", b"")], ..Default::default() },
        ];
        assert_eq!(reply.groups, expected);
        assert_eq!(reply.pinned, u64::MAX >> 1);
    }
}
