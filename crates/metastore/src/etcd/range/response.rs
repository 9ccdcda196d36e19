//! Range: one message, collected in memory if it is not too large.

use bytes::BytesMut;
use stele_grpc::frame;

use super::pieces::Pieces;
use super::{PIECE_BYTES, large};
use crate::auth::Access;
use crate::command::{Caller, RangeQuery};
use crate::etcd::response::range_field;
use crate::etcd::rpc::FramedResponse;
use crate::etcd::{Etcd, proto, request};
use crate::state::{Floor, KeyView};
use crate::wire::Fields;
use crate::{Error, Result};

/// The maximum size of a response that is read once, even if more budget is
/// left.
const COLLECTED_BYTES_MAX: usize = 16 << 20;

pub async fn range(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: proto::RangeRequest,
) -> Result<FramedResponse> {
    let linearizable = !request.serializable;
    let query = request::range(request)?;
    if linearizable {
        if etcd.node().is_learner() {
            return Err(Error::NotForLearner);
        }
        etcd.node().barrier().await?;
    }
    etcd.by(caller).permit(Access::Read(&query.range))?;
    etcd.counters().ranges.add(1);
    match query.range.single_key() {
        Some(_) => single_key(etcd, &query),
        None => keys(etcd, query).await,
    }
}

/// Returns the response to a range of one key.
fn single_key(etcd: &Etcd, query: &RangeQuery) -> Result<FramedResponse> {
    let mut kvs = BytesMut::new();
    let end = etcd.node().reader(Floor::Compacted).range(query, &mut |view| {
        kvs.key_value(range_field::KVS, view.key, view.tail);
    })?;
    let mut out = frame::begin(64 + kvs.len());
    etcd.header(end.revision).write(&mut out);
    out.extend_from_slice(&kvs);
    out.flag(range_field::MORE, end.more);
    out.int(range_field::COUNT, end.count);
    Ok(FramedResponse::One(frame::finish(out)))
}

async fn keys(etcd: &Etcd, query: RangeQuery) -> Result<FramedResponse> {
    let mut scan = etcd.node().reader(Floor::Compacted).open(&query)?;
    let mut pieces = Pieces::new(etcd.budget());
    // Sorting briefly needs twice the memory, so it is limited to a few ranges
    // at a time.
    let _turn = match scan.streams() {
        true => None,
        false => Some(etcd.sorting().acquire().await.map_err(|_| Error::Stopped)?),
    };
    loop {
        let sink = &mut |view: KeyView<'_>| pieces.push(view);
        if let Some(end) = scan.next(PIECE_BYTES, sink)? {
            if !scan.streams() && !pieces.is_within_budget() {
                return Err(Error::TooManyRequests);
            }
            // The header comes first, but is known only now.
            let mut head = frame::begin(64);
            etcd.header(end.revision).write(&mut head);
            return pieces.end(head, end.more, end.count);
        }
        if pieces.len() > COLLECTED_BYTES_MAX || !pieces.is_within_budget() {
            let measured = pieces.len();
            drop(pieces);
            return large::respond(etcd, query, scan, measured).await;
        }
        // A scan may find nothing for a long time.
        tokio::task::yield_now().await;
    }
}
