//! Range and RangeStream: keys are copied once, from the store into the pieces
//! that are sent (`pieces`).
//!
//! A response must state its length before its first key. So most responses are
//! collected in memory, under a shared budget (`budget`). One that is too
//! large, or for which no budget is left, is read twice instead: once for its
//! length, and again as the client takes it (`large`). A stream of messages
//! does not need this (`stream`).

mod budget;
mod large;
mod pieces;
mod stream;

pub use budget::Budget;
use bytes::BytesMut;
pub use stream::stream;

use self::pieces::Pieces;
use super::response::range_field;
use super::rpc::Answer;
use super::wire::{self, Fields};
use super::{Etcd, proto, request};
use crate::command::RangeQuery;
use crate::state::Floor;
use crate::{Error, Result};

/// The approximate size of a piece: larger ones fall out of the processor's
/// cache before they are sent.
const PIECE_BYTES: usize = 128 << 10;
/// The maximum size of a response that is read once, even if more budget is
/// left.
const GATHERED_BYTES_MAX: usize = 16 << 20;

pub async fn range(etcd: &Etcd, request: proto::RangeRequest) -> Result<Answer> {
    let linearizable = !request.serializable;
    let query = request::range(request)?;
    if linearizable {
        etcd.node().barrier().await?;
    }
    etcd.counters().ranges.add(1);
    match query.range.single_key() {
        Some(_) => key(etcd, &query),
        None => keys(etcd, query).await,
    }
}

/// Answers a range of one key.
fn key(etcd: &Etcd, query: &RangeQuery) -> Result<Answer> {
    let mut kvs = BytesMut::new();
    let end = etcd.node().reader(Floor::Compacted).range(query, &mut |view| {
        kvs.key_value(range_field::KVS, view.key, view.tail);
    })?;
    let mut out = wire::begin(64 + kvs.len());
    etcd.header(end.revision).write(&mut out);
    out.extend_from_slice(&kvs);
    out.flag(range_field::MORE, end.more);
    out.int(range_field::COUNT, end.count);
    Ok(Answer::One(wire::end(out)))
}

async fn keys(etcd: &Etcd, query: RangeQuery) -> Result<Answer> {
    let mut scan = etcd.node().reader(Floor::Compacted).open(&query)?;
    let mut pieces = Pieces::new(etcd.budget());
    // Sorting briefly needs twice the memory, so it is limited to a few ranges
    // at a time.
    let _turn = match scan.streams() {
        true => None,
        false => Some(etcd.sorting().acquire().await.map_err(|_| Error::Stopped)?),
    };
    loop {
        let sink = &mut |view: crate::state::KeyView<'_>| pieces.push(view);
        if let Some(end) = scan.next(PIECE_BYTES, sink)? {
            if !scan.streams() && !pieces.fit() {
                return Err(Error::TooManyRequests);
            }
            // The header comes first, but is known only now.
            let mut head = wire::begin(64);
            etcd.header(end.revision).write(&mut head);
            return pieces.end(head, end.more, end.count);
        }
        if pieces.len() > GATHERED_BYTES_MAX || !pieces.fit() {
            let measured = pieces.len();
            drop(pieces);
            return large::answer(etcd, query, scan, measured).await;
        }
        // A scan may find nothing for a long time.
        tokio::task::yield_now().await;
    }
}
