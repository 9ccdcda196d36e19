//! A Put on its way out: the pieces of keys and values are written to the wire
//! one after the other, which is the only copy that is made of them.

use std::marker::PhantomData;

use bytes::{BufMut, Bytes};
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};

use super::Segments;
use crate::codec::{MessageCodec, MessageDecoder};
use crate::proto::{PutRequest, Target, WriteReply};

/// A record to be stored.
#[derive(Clone, Debug, Default)]
pub struct NewRecord {
    pub key: Segments,
    pub value: Segments,
    /// Optional: a cookie that came with this record.
    pub cookie: Bytes,
    /// Store only over a record with this value.
    pub expected: Option<Bytes>,
}

impl NewRecord {
    pub fn new(key: impl Into<Segments>, value: impl Into<Segments>) -> NewRecord {
        NewRecord { key: key.into(), value: value.into(), ..NewRecord::default() }
    }

    pub(super) fn encoded_len(&self) -> usize {
        let expected = self.expected.as_ref().map_or(0, |expected| 1 + sized(expected.len()));
        field(self.key.len()) + field(self.value.len()) + field(self.cookie.len()) + expected
    }
}

/// What a field of that many bytes takes; an empty one is left out.
fn field(len: usize) -> usize {
    if len == 0 { 0 } else { 1 + sized(len) }
}

fn sized(len: usize) -> usize {
    encoded_len_varint(len as u64) + len
}

/// A `PutRequest` whose records are in pieces.
pub struct PutMessage {
    pub target: Option<Target>,
    pub records: Vec<NewRecord>,
    pub flags: u32,
}

const fn tag(field: u8) -> u8 {
    field << 3 | 2
}

impl PutMessage {
    fn encode(&self, out: &mut impl BufMut) {
        // What is not records is a small message like any other.
        let head =
            PutRequest { catalogue: self.target.clone(), flags: self.flags, ..Default::default() };
        head.encode_raw(out);
        for record in &self.records {
            out.put_u8(tag(2));
            encode_varint(record.encoded_len() as u64, out);
            put_segments(out, 1, &record.key);
            put_segments(out, 2, &record.value);
            put_bytes(out, 3, &record.cookie);
            if let Some(expected) = &record.expected {
                out.put_u8(tag(4));
                encode_varint(expected.len() as u64, out);
                out.put_slice(expected);
            }
        }
    }
}

fn put_segments(out: &mut impl BufMut, field: u8, segments: &Segments) {
    if segments.is_empty() {
        return;
    }
    out.put_u8(tag(field));
    encode_varint(segments.len() as u64, out);
    segments.iter().for_each(|segment| out.put_slice(segment));
}

fn put_bytes(out: &mut impl BufMut, field: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        out.put_u8(tag(field));
        encode_varint(bytes.len() as u64, out);
        out.put_slice(bytes);
    }
}

/// Encodes Puts in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutCodec;

impl Codec for PutCodec {
    type Encode = PutMessage;
    type Decode = WriteReply;
    type Encoder = PutEncoder;
    type Decoder = MessageDecoder<WriteReply>;

    fn encoder(&mut self) -> PutEncoder {
        PutEncoder(PhantomData)
    }

    fn decoder(&mut self) -> MessageDecoder<WriteReply> {
        MessageCodec::<(), WriteReply>::default().decoder()
    }
}

pub struct PutEncoder(PhantomData<PutMessage>);

impl Encoder for PutEncoder {
    type Item = PutMessage;
    type Error = Status;

    fn encode(&mut self, item: PutMessage, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Record;

    #[test]
    fn what_is_written_in_pieces_is_read_back_without_a_copy() {
        let value = vec![Bytes::from(vec![1; 300]), Bytes::from(vec![2; 40])];
        let records = vec![
            NewRecord { cookie: "c".into(), ..NewRecord::new("key", value.clone()) },
            NewRecord { expected: Some(Bytes::new()), ..NewRecord::new("", "") },
        ];
        let target = Some(Target { fid: vec![9; 16].into(), ..Default::default() });
        let mut out = Vec::new();
        PutMessage { target: target.clone(), records, flags: 5 }.encode(&mut out);
        let wire = Bytes::from(out);
        let read = PutRequest::decode(wire.clone()).unwrap();
        let expected = vec![
            Record {
                key: "key".into(),
                value: value.concat().into(),
                cookie: "c".into(),
                expected: None,
            },
            Record { expected: Some(Bytes::new()), ..Default::default() },
        ];
        assert_eq!((read.catalogue, read.flags, &read.records), (target, 5, &expected));
        let within = wire.as_ptr_range();
        let at = read.records[0].value.as_ptr();
        assert!(within.contains(&at), "a decoded value is a piece of its message");
    }
}
