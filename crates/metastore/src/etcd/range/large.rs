//! Sends a response that is too large to hold in memory: measures its length
//! first, then reads it again at the same revision as the client takes it. Only
//! one piece is in memory, whatever the size.

use bytes::BytesMut;
use stele_grpc::frame;
use tonic::Status;

use super::PIECE_BYTES;
use super::pieces::{set_len, tail};
use crate::Result;
use crate::command::RangeQuery;
use crate::etcd::Etcd;
use crate::etcd::generate::generate;
use crate::etcd::response::range_field;
use crate::etcd::rpc::FramedResponse;
use crate::state::{Floor, KeyView, RangeScan};
use crate::wire::{self, Fields};

/// Returns the response to a range of which `measured` bytes have been read and the rest is
/// still in the scan.
pub async fn respond(
    etcd: &Etcd,
    query: RangeQuery,
    mut scan: RangeScan,
    mut measured: usize,
) -> Result<FramedResponse> {
    let end = loop {
        let sink = &mut |view: KeyView<'_>| measured += wire::field_len(view.wire_len());
        if let Some(end) = scan.next(PIECE_BYTES, sink)? {
            break end;
        }
        tokio::task::yield_now().await;
    };
    let tail = tail(end.more, end.count);
    let mut head = frame::begin(64);
    etcd.header(end.revision).write(&mut head);
    set_len(&mut head, measured + tail.len())?;
    // Compact does not stop a read that has begun.
    let mut scan = etcd.node().reader(Floor::InProgress).open(&query.at(scan.at()))?;
    let etcd = etcd.clone();
    Ok(FramedResponse::Many(generate(move |out| async move {
        // The node stays open until the response is sent.
        let _etcd = etcd;
        out.send(head.freeze()).await;
        let mut sent = 0;
        loop {
            let mut piece = BytesMut::with_capacity(PIECE_BYTES + PIECE_BYTES / 8);
            let sink = &mut |view: KeyView<'_>| {
                piece.key_value(range_field::KVS, view.key, view.tail);
            };
            let ended = scan.next(PIECE_BYTES, sink)?.is_some();
            sent += piece.len();
            if !piece.is_empty() {
                out.send(piece.freeze()).await;
            }
            if ended {
                break;
            }
        }
        if sent != measured {
            return Err(Status::internal("a range changed while it was being sent"));
        }
        out.send(tail.freeze()).await;
        Ok(())
    })))
}
