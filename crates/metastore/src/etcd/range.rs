//! Range and RangeStream: keys as the store gives them, written once into the
//! pieces that go to the wire.

use bytes::{Bytes, BytesMut};
use tonic::Status;

use super::header::Header;
use super::response::range_field;
use super::rpc::Answer;
use super::wire::{self, FRAME_BYTES, Fields};
use super::{Etcd, generate, proto, request};
use crate::command::{KeyRange, Order, RangeEnd, RangeQuery, Target};
use crate::state::KeyView;
use crate::{Error, Result};

/// A response is written in pieces of about this size: larger ones fall out of
/// the processor's cache before they are sent.
const PIECE_BYTES: usize = 128 << 10;

pub async fn range(etcd: &Etcd, request: proto::RangeRequest) -> Result<Answer> {
    let linearizable = !request.serializable;
    let query = request::range(request)?;
    if linearizable {
        etcd.node().barrier().await?;
    }
    etcd.counters().ranges.add(1);
    if query.range.single_key().is_some() {
        return key(etcd, &query);
    }
    let mut pieces = Pieces::new();
    let end = etcd.node().range(&query, &mut |view| pieces.push(view))?;
    // The header stands in front, and is known only now.
    let mut head = wire::begin(64);
    etcd.header(end.revision).write(&mut head);
    Ok(Answer::pieces(pieces.end(head, end.more, end.count)?))
}

/// A range of one key.
fn key(etcd: &Etcd, query: &RangeQuery) -> Result<Answer> {
    let mut kvs = BytesMut::new();
    let end = etcd.node().range(query, &mut |view| {
        kvs.key_value(range_field::KVS, view.key, view.tail);
    })?;
    let mut out = wire::begin(64 + kvs.len());
    etcd.header(end.revision).write(&mut out);
    out.extend_from_slice(&kvs);
    out.flag(range_field::MORE, end.more);
    out.int(range_field::COUNT, end.count);
    Ok(Answer::One(wire::end(out)))
}

/// The keys of a response, in pieces.
struct Pieces {
    full: Vec<Bytes>,
    open: BytesMut,
    bytes: usize,
}

/// A first piece shorter than this is sent together with the head.
const SMALL_BYTES: usize = 16 << 10;
/// The longest message that gRPC's clients can be told to take.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

impl Pieces {
    fn new() -> Pieces {
        Pieces { full: Vec::new(), open: BytesMut::new(), bytes: 0 }
    }

    fn push(&mut self, view: KeyView<'_>) {
        let len = wire::field_len(view.wire_len());
        if self.open.len() + len > PIECE_BYTES && !self.open.is_empty() {
            let next = BytesMut::with_capacity(PIECE_BYTES.max(len));
            self.full.push(std::mem::replace(&mut self.open, next).freeze());
        }
        self.open.key_value(range_field::KVS, view.key, view.tail);
        self.bytes += len;
    }

    /// All pieces, behind a head that was begun with room for the frame.
    fn end(mut self, mut head: BytesMut, more: bool, count: i64) -> Result<Vec<Bytes>> {
        let before = self.open.len();
        self.open.flag(range_field::MORE, more);
        self.open.int(range_field::COUNT, count);
        self.bytes += self.open.len() - before;
        let len = head.len() - FRAME_BYTES + self.bytes;
        if len > MESSAGE_BYTES_MAX {
            let (size, limit) = (len as u64, MESSAGE_BYTES_MAX as u64);
            return Err(Error::Limit { what: "bytes of a response", size, limit });
        }
        wire::set_len(&mut head, len);
        if self.full.is_empty() && self.open.len() < SMALL_BYTES {
            head.extend_from_slice(&self.open);
            return Ok(vec![head.freeze()]);
        }
        let mut pieces = vec![head.freeze()];
        pieces.append(&mut self.full);
        pieces.push(self.open.freeze());
        Ok(pieces)
    }
}

/// Keys in one message of a stream, to begin with; then as many as make a
/// message of about `STREAMED_BYTES`.
const STREAMED_KEYS: i64 = 100;
const STREAMED_KEYS_MAX: i64 = 10_000;
const STREAMED_BYTES: usize = 512 << 10;

/// A range in many messages, all of one revision. The last has the header and
/// the counts. However long the range is, one message is held at a time.
pub async fn stream(etcd: &Etcd, request: proto::RangeRequest) -> Result<Answer, Status> {
    let linearizable = !request.serializable;
    let query = request::range(request)?;
    let plain = query.target == Target::Key && query.order != Order::Descend;
    if !plain || query.filters() {
        let text = "etcdserver: RangeStream supports neither sorting nor filters by revision";
        return Err(Status::unimplemented(text));
    }
    if linearizable {
        etcd.node().barrier().await?;
    }
    etcd.counters().ranges.add(1);
    let etcd = etcd.clone();
    Ok(Answer::Many(generate::generate(move |out| async move {
        let counted = RangeQuery { count_only: true, ..query.clone() };
        let all = etcd.node().range(&counted, &mut |_| {})?;
        let revision = if query.revision > 0 { query.revision } else { all.revision };
        let mut pages = Pages::new(&query, revision, all.count);
        while let Some(page) = pages.next(&etcd)? {
            out.send(page.message(None)).await;
        }
        let more = !query.count_only && query.limit > 0 && all.count > query.limit;
        let last = Page { kvs: BytesMut::new(), keys: 0 };
        let header = etcd.header(all.revision);
        out.send(last.message(Some((header, more, all.count)))).await;
        Ok(())
    })))
}

/// A range read piece by piece.
pub struct Pages {
    query: RangeQuery,
    /// Keys still to come.
    left: i64,
    /// Keys to read next.
    keys: i64,
}

/// Keys of a range in wire form.
pub struct Page {
    pub kvs: BytesMut,
    keys: i64,
}

impl Pages {
    pub fn new(query: &RangeQuery, revision: i64, count: i64) -> Pages {
        let left = match query.limit {
            _ if query.count_only => 0,
            limit if limit > 0 => limit.min(count),
            _ => count,
        };
        Pages { query: query.clone().at(revision), left, keys: STREAMED_KEYS }
    }

    pub fn next(&mut self, etcd: &Etcd) -> Result<Option<Page>> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut page = Page { kvs: BytesMut::new(), keys: 0 };
        let mut last = Vec::new();
        self.query.limit = self.keys.min(self.left);
        etcd.node().range(&self.query, &mut |view| {
            page.kvs.key_value(range_field::KVS, view.key, view.tail);
            page.keys += 1;
            if page.keys == self.query.limit {
                last.extend_from_slice(view.key);
            }
        })?;
        self.left = if page.keys < self.query.limit { 0 } else { self.left - page.keys };
        let key_bytes = (page.kvs.len() / usize::try_from(page.keys.max(1)).unwrap_or(1)).max(1);
        let fitting = i64::try_from(STREAMED_BYTES / key_bytes).unwrap_or(STREAMED_KEYS_MAX);
        self.keys = fitting.clamp(1, STREAMED_KEYS_MAX);
        self.query.range = after(last, &self.query.range);
        Ok((page.keys > 0).then_some(page))
    }
}

/// The keys of a range that follow one of its keys.
fn after(mut key: Vec<u8>, range: &KeyRange) -> KeyRange {
    key.push(0);
    let end = match &range.end {
        // Nothing follows the only key.
        RangeEnd::Single => RangeEnd::Before(Bytes::new()),
        end => end.clone(),
    };
    KeyRange { start: key.into(), end }
}

impl Page {
    /// A `RangeStreamResponse`; the last tells about the whole.
    fn message(self, whole: Option<(Header, bool, i64)>) -> Bytes {
        let mut out = wire::begin(self.kvs.len() + 64);
        out.nested(1, |out| {
            if let Some((header, ..)) = whole {
                header.write(out);
            }
            out.extend_from_slice(&self.kvs);
            if let Some((_, more, count)) = whole {
                out.flag(range_field::MORE, more);
                out.int(range_field::COUNT, count);
            }
        });
        wire::end(out)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn a_response_is_the_same_however_many_pieces_it_has() {
        for count in [0usize, 1, 40, 1000] {
            let tail = proto::KeyValue { value: vec![1; 500].into(), ..Default::default() };
            let tail = tail.encode_to_vec();
            let mut pieces = Pieces::new();
            for number in 0..count {
                let key = format!("key {number}");
                pieces.push(KeyView { key: key.as_bytes(), tail: &tail });
            }
            let mut head = wire::begin(0);
            Header { cluster_id: 1, member_id: 2, revision: 3, raft_term: 4 }.write(&mut head);
            let pieces = pieces.end(head, true, count as i64).unwrap();
            assert_eq!(pieces.len() > 2, count == 1000);
            let message = pieces.concat();
            let (frame, message) = message.split_at(FRAME_BYTES);
            assert_eq!(frame[1..], u32::try_from(message.len()).unwrap().to_be_bytes());
            let response = proto::RangeResponse::decode(message).unwrap();
            assert_eq!((response.kvs.len(), response.more), (count, true));
            assert_eq!(response.count, count as i64);
            assert_eq!(response.encode_to_vec(), message);
        }
    }
}
