//! The keys of a response, collected in pieces.

use bytes::{Bytes, BytesMut};
use stele_grpc::frame::{self, PREFIX_BYTES};

use super::PIECE_BYTES;
use super::budget::{Budget, Reservation};
use crate::etcd::generate::generate;
use crate::etcd::response::range_field;
use crate::etcd::rpc::FramedResponse;
use crate::state::KeyView;
use crate::wire::{self, Fields};
use crate::{Error, Result};

/// The maximum size of a response that is sent as one piece.
const SMALL_BYTES: usize = 16 << 10;
/// The maximum size of a message that gRPC clients can be configured to accept.
const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// Collects keys under the shared budget.
pub struct Pieces {
    full: Vec<Bytes>,
    open: BytesMut,
    /// Bytes of all keys so far, on the wire.
    bytes: usize,
    reservation: Reservation,
    /// Whether the budget was sufficient so far.
    within_budget: bool,
}

impl Pieces {
    pub fn new(budget: &Budget) -> Pieces {
        let (full, open) = (Vec::new(), BytesMut::new());
        Pieces { full, open, bytes: 0, reservation: budget.reservation(), within_budget: true }
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether the budget was sufficient so far.
    pub fn is_within_budget(&self) -> bool {
        self.within_budget
    }

    pub fn push(&mut self, view: KeyView<'_>) {
        let len = wire::field_len(view.wire_len());
        if self.open.len() + len > PIECE_BYTES && !self.open.is_empty() {
            let capacity = PIECE_BYTES.max(len);
            self.within_budget &= self.reservation.try_grow(capacity);
            let next = BytesMut::with_capacity(capacity);
            self.full.push(std::mem::replace(&mut self.open, next).freeze());
        }
        self.open.key_value(range_field::KVS, view.key, view.tail);
        self.bytes += len;
    }

    /// Returns the whole response, after a head that begins with its prefix.
    pub fn end(mut self, mut head: BytesMut, more: bool, count: i64) -> Result<FramedResponse> {
        let tail = tail(more, count);
        set_len(&mut head, self.bytes + tail.len())?;
        self.open.extend_from_slice(&tail);
        if self.full.is_empty() && self.open.len() <= SMALL_BYTES {
            head.extend_from_slice(&self.open);
            return Ok(FramedResponse::One(head.freeze()));
        }
        let Pieces { full, open, reservation, .. } = self;
        Ok(FramedResponse::Many(generate(move |out| async move {
            out.send(head.freeze()).await;
            for piece in full {
                out.send(piece).await;
            }
            out.send(open.freeze()).await;
            drop(reservation);
            Ok(())
        })))
    }
}

/// Returns the fields after the keys.
pub fn tail(more: bool, count: i64) -> BytesMut {
    let mut tail = BytesMut::new();
    tail.flag(range_field::MORE, more);
    tail.int(range_field::COUNT, count);
    tail
}

/// Writes the length of a response into the prefix before its head.
pub fn set_len(head: &mut BytesMut, rest: usize) -> Result<()> {
    let len = head.len() - PREFIX_BYTES + rest;
    if len > MESSAGE_BYTES_MAX {
        let (size, limit) = (len as u64, MESSAGE_BYTES_MAX as u64);
        return Err(Error::Limit { what: "bytes of a response", size, limit });
    }
    frame::set_prefix(head, len);
    Ok(())
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tokio_stream::StreamExt;

    use super::*;
    use crate::etcd::header::Header;
    use crate::etcd::proto;

    fn filled(budget: &Budget, count: usize) -> Pieces {
        let tail = proto::KeyValue { value: vec![1; 500].into(), ..Default::default() };
        let tail = tail.encode_to_vec();
        let mut pieces = Pieces::new(budget);
        for number in 0..count {
            let key = format!("key {number}");
            pieces.push(KeyView { key: key.as_bytes(), tail: &tail });
        }
        pieces
    }

    #[tokio::test]
    async fn a_response_is_the_same_however_many_pieces_it_has() {
        let budget = Budget::new(1 << 20);
        for count in [0usize, 1, 40, 1000] {
            let pieces = filled(&budget, count);
            assert!(pieces.is_within_budget());
            let mut head = frame::begin(0);
            Header { cluster_id: 1, member_id: 2, revision: 3, raft_term: 4 }.write(&mut head);
            let message = match pieces.end(head, true, count as i64).unwrap() {
                FramedResponse::One(message) => message.to_vec(),
                FramedResponse::Many(pieces) => {
                    let pieces: Vec<Bytes> = pieces.map(Result::unwrap).collect().await;
                    pieces.concat()
                }
            };
            let (frame, message) = message.split_at(PREFIX_BYTES);
            assert_eq!(frame[1..], u32::try_from(message.len()).unwrap().to_be_bytes());
            let response = proto::RangeResponse::decode(message).unwrap();
            assert_eq!((response.kvs.len(), response.more), (count, true));
            assert_eq!(response.count, count as i64);
            assert_eq!(response.encode_to_vec(), message);
        }
    }

    #[test]
    fn a_response_notices_when_the_budget_is_spent() {
        // More than two pieces, because the first is not charged to the budget.
        let budget = Budget::new(3 * PIECE_BYTES);
        let first = filled(&budget, 600);
        assert!(first.len() > 2 * PIECE_BYTES && first.is_within_budget());
        assert!(!filled(&budget, 600).is_within_budget());
        drop(first);
        assert!(filled(&budget, 600).is_within_budget());
    }
}
