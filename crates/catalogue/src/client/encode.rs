//! Encodes vectors: the segments of keys and values are written to the wire one after
//! the other, which is the only copy of them.

use std::marker::PhantomData;

use bytes::{BufMut, Bytes};
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};

use super::Segments;
use crate::codec::{MessageCodec, MessageDecoder};

/// A record to store.
#[derive(Clone, Debug, Default)]
pub struct NewRecord {
    pub key: Segments,
    pub value: Segments,
    /// Optional: a cookie that was returned for this record.
    pub cookie: Bytes,
    /// Store the record only if its current value is this one.
    pub expected: Option<Segments>,
}

impl NewRecord {
    pub fn new(key: impl Into<Segments>, value: impl Into<Segments>) -> NewRecord {
        NewRecord { key: key.into(), value: value.into(), ..NewRecord::default() }
    }
}

/// The key of a record to read or delete.
#[derive(Clone, Debug, Default)]
pub struct RecordKey {
    pub key: Segments,
    /// Optional: a cookie that was returned for this record.
    pub cookie: Bytes,
    /// Delete the record only if its value is this one.
    pub expected: Option<Segments>,
}

impl<K: Into<Segments>> From<K> for RecordKey {
    fn from(key: K) -> RecordKey {
        RecordKey { key: key.into(), ..RecordKey::default() }
    }
}

/// The start of a walk, and the number of records from there.
#[derive(Clone, Debug, Default)]
pub struct WalkStart {
    pub key: Segments,
    pub count: u32,
    /// Optional: a cookie that was returned for the record of this key.
    pub cookie: Bytes,
    /// Start at the first record, or at the last one of a reverse walk, whatever the
    /// key.
    pub edge: bool,
}

impl WalkStart {
    pub fn at(key: impl Into<Segments>, count: u32) -> WalkStart {
        WalkStart { key: key.into(), count, ..WalkStart::default() }
    }

    pub fn at_edge(count: u32) -> WalkStart {
        WalkStart { count, edge: true, ..WalkStart::default() }
    }
}

/// An element of a vector, encoded as a nested message.
pub trait Element: Send + Sync + 'static {
    fn encoded_len(&self) -> usize;
    fn encode(&self, out: &mut impl BufMut);
}

impl Element for NewRecord {
    fn encoded_len(&self) -> usize {
        let expected = self.expected.as_ref().map_or(0, |expected| 1 + sized(expected.len()));
        field(self.key.len()) + field(self.value.len()) + field(self.cookie.len()) + expected
    }

    fn encode(&self, out: &mut impl BufMut) {
        put_pieces(out, 1, &self.key);
        put_pieces(out, 2, &self.value);
        put_bytes(out, 3, &self.cookie);
        put_expected(out, 4, self.expected.as_ref());
    }
}

impl Element for RecordKey {
    fn encoded_len(&self) -> usize {
        let expected = self.expected.as_ref().map_or(0, |expected| 1 + sized(expected.len()));
        field(self.key.len()) + field(self.cookie.len()) + expected
    }

    fn encode(&self, out: &mut impl BufMut) {
        put_pieces(out, 1, &self.key);
        put_bytes(out, 2, &self.cookie);
        put_expected(out, 3, self.expected.as_ref());
    }
}

impl Element for WalkStart {
    fn encoded_len(&self) -> usize {
        let count = if self.count == 0 { 0 } else { 1 + encoded_len_varint(self.count.into()) };
        let edge = if self.edge { 2 } else { 0 };
        field(self.key.len()) + count + field(self.cookie.len()) + edge
    }

    fn encode(&self, out: &mut impl BufMut) {
        put_pieces(out, 1, &self.key);
        put_number(out, 2, self.count.into());
        put_bytes(out, 3, &self.cookie);
        put_number(out, 4, self.edge.into());
    }
}

/// Returns the encoded size of a field; an empty one is omitted.
fn field(len: usize) -> usize {
    if len == 0 { 0 } else { 1 + sized(len) }
}

fn sized(len: usize) -> usize {
    encoded_len_varint(len as u64) + len
}

const VARINT: u8 = 0;
const LENGTH_DELIMITED: u8 = 2;

const fn tag(field: u8, wire_type: u8) -> u8 {
    field << 3 | wire_type
}

fn put_number(out: &mut impl BufMut, field: u8, number: u64) {
    if number != 0 {
        out.put_u8(tag(field, VARINT));
        encode_varint(number, out);
    }
}

fn put_pieces(out: &mut impl BufMut, field: u8, pieces: &Segments) {
    if !pieces.is_empty() {
        put_expected(out, field, Some(pieces));
    }
}

/// Writes bytes that are encoded even if they are empty.
fn put_expected(out: &mut impl BufMut, field: u8, pieces: Option<&Segments>) {
    let Some(pieces) = pieces else { return };
    out.put_u8(tag(field, LENGTH_DELIMITED));
    encode_varint(pieces.len() as u64, out);
    pieces.iter().for_each(|piece| out.put_slice(piece));
}

fn put_bytes(out: &mut impl BufMut, field: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        out.put_u8(tag(field, LENGTH_DELIMITED));
        encode_varint(bytes.len() as u64, out);
        out.put_slice(bytes);
    }
}

/// The field number of the vector in every request that has one.
const ELEMENTS: u8 = 2;

/// A request whose vector consists of segments: `head` is the same request with an
/// empty vector.
#[derive(Debug)]
pub struct VectorRequest<H, E> {
    pub head: H,
    pub elements: Vec<E>,
}

impl<H: Message, E: Element> VectorRequest<H, E> {
    fn encode(&self, out: &mut impl BufMut) {
        self.head.encode_raw(out);
        for element in &self.elements {
            out.put_u8(tag(ELEMENTS, LENGTH_DELIMITED));
            encode_varint(element.encoded_len() as u64, out);
            element.encode(out);
        }
    }
}

/// Encodes requests whose vectors consist of segments; decodes replies as usual.
#[derive(Debug)]
pub struct VectorCodec<H, E, R>(PhantomData<(H, E, R)>);

impl<H, E, R> Default for VectorCodec<H, E, R> {
    fn default() -> Self {
        VectorCodec(PhantomData)
    }
}

impl<H, E, R> Codec for VectorCodec<H, E, R>
where
    H: Message + 'static,
    E: Element,
    R: Message + Default + 'static,
{
    type Encode = VectorRequest<H, E>;
    type Decode = R;
    type Encoder = VectorEncoder<H, E>;
    type Decoder = MessageDecoder<R>;

    fn encoder(&mut self) -> VectorEncoder<H, E> {
        VectorEncoder(PhantomData)
    }

    fn decoder(&mut self) -> MessageDecoder<R> {
        MessageCodec::<(), R>::default().decoder()
    }
}

pub struct VectorEncoder<H, E>(PhantomData<(H, E)>);

impl<H: Message, E: Element> Encoder for VectorEncoder<H, E> {
    type Item = VectorRequest<H, E>;
    type Error = Status;

    fn encode(&mut self, item: Self::Item, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{DelRequest, Key, NextRequest, PutRequest, Record, Start, Target};

    fn target() -> Option<Target> {
        Some(Target { fid: vec![9; 16].into(), ..Default::default() })
    }

    fn wire<H: Message, E: Element>(head: H, elements: Vec<E>) -> Bytes {
        let mut out = Vec::new();
        VectorRequest { head, elements }.encode(&mut out);
        out.into()
    }

    fn pieces() -> Vec<Bytes> {
        vec![Bytes::from(vec![1; 300]), Bytes::new(), Bytes::from(vec![2; 40])]
    }

    #[test]
    fn records_of_segments_are_decoded_without_a_copy() {
        let records = vec![
            NewRecord { cookie: "c".into(), ..NewRecord::new(pieces(), pieces()) },
            NewRecord { expected: Some(Segments::default()), ..NewRecord::new("", "") },
        ];
        let head = PutRequest { catalogue: target(), flags: 5, ..Default::default() };
        let wire = wire(head, records);
        let read = PutRequest::decode(wire.clone()).unwrap();
        let whole = Bytes::from(pieces().concat());
        let expected = vec![
            Record { key: whole.clone(), value: whole, cookie: "c".into(), expected: None },
            Record { expected: Some(Bytes::new()), ..Default::default() },
        ];
        assert_eq!((read.catalogue, read.flags, &read.records), (target(), 5, &expected));
        let within = wire.as_ptr_range();
        let at = read.records[0].value.as_ptr();
        assert!(within.contains(&at), "a decoded value is a slice of its message");
    }

    #[test]
    fn keys_of_segments_are_decoded_as_one() {
        let keys = vec![
            RecordKey { cookie: "c".into(), expected: Some(pieces().into()), ..pieces().into() },
            RecordKey::default(),
        ];
        let head = DelRequest { catalogue: target(), flags: 16, ..Default::default() };
        let read = DelRequest::decode(wire(head, keys)).unwrap();
        let whole = Bytes::from(pieces().concat());
        let expected = vec![
            Key { key: whole.clone(), cookie: "c".into(), expected: Some(whole) },
            Key::default(),
        ];
        assert_eq!((read.catalogue, read.flags, read.keys), (target(), 16, expected));
    }

    #[test]
    fn starts_of_segments_are_decoded_as_one() {
        let starts = vec![
            WalkStart { cookie: "c".into(), ..WalkStart::at(pieces(), 300) },
            WalkStart::at_edge(u32::MAX),
            WalkStart::default(),
        ];
        let head = NextRequest { catalogue: target(), at: 7, ..Default::default() };
        let read = NextRequest::decode(wire(head, starts)).unwrap();
        let key = Bytes::from(pieces().concat());
        let expected = vec![
            Start { key, count: 300, cookie: "c".into(), edge: false },
            Start { count: u32::MAX, edge: true, ..Default::default() },
            Start::default(),
        ];
        assert_eq!((read.catalogue, read.at, read.starts), (target(), 7, expected));
    }
}
