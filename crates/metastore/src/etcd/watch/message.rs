//! `WatchResponse` messages, written around events that were encoded once for
//! all watchers.

use bytes::{Bytes, BytesMut};
use stele_grpc::frame;

use crate::etcd::header::Header;
use crate::watch::Event;
use crate::wire::{self, Fields};

const EVENTS: u8 = 11;

/// A response without its events.
#[derive(Clone, Debug, Default)]
pub struct WatchMessage {
    pub header: Header,
    pub watch_id: i64,
    pub created: bool,
    pub canceled: bool,
    pub compact_revision: i64,
    pub cancel_reason: String,
    pub fragment: bool,
}

impl WatchMessage {
    pub fn new(header: Header, watch_id: i64) -> WatchMessage {
        WatchMessage { header, watch_id, ..WatchMessage::default() }
    }

    /// Encodes and frames the message with these events. Those after the
    /// revision `prev_after` have the previous values.
    pub fn encode(&self, events: &[&Event], prev_after: i64) -> Bytes {
        let bytes: usize = events.iter().map(|event| event_len(event, prev_after)).sum();
        let mut out = frame::begin(128 + self.cancel_reason.len() + bytes);
        self.write(&mut out);
        for event in events {
            out.message(EVENTS, event.wire(event.revision > prev_after));
        }
        frame::finish(out)
    }

    fn write(&self, out: &mut BytesMut) {
        self.header.write(out);
        out.int(2, self.watch_id);
        out.flag(3, self.created);
        out.flag(4, self.canceled);
        out.int(5, self.compact_revision);
        out.text(6, self.cancel_reason.as_bytes());
        out.flag(7, self.fragment);
    }

    /// Splits the events into messages, none of which is too large unless a
    /// single event is. All but the last are marked as fragments.
    pub fn fragments(&self, events: &[&Event], prev_after: i64, bytes_max: usize) -> Vec<Bytes> {
        let mut messages = Vec::new();
        let (mut start, mut bytes) = (0, 0);
        for (at, event) in events.iter().enumerate() {
            let len = event_len(event, prev_after);
            if bytes > 0 && bytes + len >= bytes_max {
                let piece = WatchMessage { fragment: true, ..self.clone() };
                messages.push(piece.encode(&events[start..at], prev_after));
                (start, bytes) = (at, 0);
            }
            bytes += len;
        }
        messages.push(self.encode(&events[start..], prev_after));
        messages
    }
}

fn event_len(event: &Event, prev_after: i64) -> usize {
    wire::field_len(event.wire(event.revision > prev_after).len())
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::etcd::proto::WatchResponse;
    use crate::state::{KeyView, Tail};
    use crate::watch::EventKind;

    fn event(value: &[u8]) -> Event {
        let tail = Tail { create_revision: 2, mod_revision: 3, version: 2, value, lease: 0 };
        let tail = tail.encode();
        Event::new(3, EventKind::Put, KeyView { key: b"k", tail: &tail }, Some(&tail))
    }

    fn decode(framed: &Bytes) -> WatchResponse {
        let message = &framed[frame::PREFIX_BYTES..];
        let response = WatchResponse::decode(message).unwrap();
        assert_eq!(response.encode_to_vec(), message, "prost writes the same");
        response
    }

    #[test]
    fn a_message_is_what_prost_would_write() {
        let message = WatchMessage {
            header: Header { cluster_id: 1, member_id: 2, revision: 3, raft_term: 4 },
            watch_id: -1,
            created: true,
            canceled: true,
            compact_revision: 5,
            cancel_reason: "why".into(),
            fragment: true,
        };
        let read = decode(&message.encode(&[&event(b"v")], 2));
        assert_eq!((read.watch_id, read.compact_revision), (-1, 5));
        assert_eq!(read.events[0].prev_kv.as_ref().unwrap().value, "v");
        let read = decode(&message.encode(&[&event(b"v")], 3));
        assert_eq!(read.events[0].prev_kv, None);
    }

    #[test]
    fn a_large_batch_is_cut_between_events() {
        let events: Vec<Event> = (0..5).map(|_| event(&vec![0; 900 << 10])).collect();
        let events: Vec<&Event> = events.iter().collect();
        let message = WatchMessage::new(Header::default(), 0);
        let read: Vec<_> =
            message.fragments(&events, i64::MAX, 2 << 20).iter().map(decode).collect();
        let shape: Vec<_> = read.iter().map(|piece| (piece.events.len(), piece.fragment)).collect();
        assert_eq!(shape, [(2, true), (2, true), (1, false)]);
    }
}
