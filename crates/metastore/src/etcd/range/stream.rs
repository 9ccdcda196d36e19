//! RangeStream: a range in many messages, all at one revision. Only one message
//! is in memory at a time, however long the range is.

use bytes::{Bytes, BytesMut};
use stele_grpc::frame;
use tonic::Status;

use crate::auth::Access;
use crate::command::{Caller, Order, Target};
use crate::etcd::generate::generate;
use crate::etcd::header::Header;
use crate::etcd::response::range_field;
use crate::etcd::rpc::FramedResponse;
use crate::etcd::{Etcd, proto, request};
use crate::state::{Floor, KeyView, RangeSummary};
use crate::wire::Fields;

/// The approximate bytes of keys in one message.
const STREAMED_BYTES: usize = 512 << 10;

pub async fn stream(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: proto::RangeRequest,
) -> Result<FramedResponse, Status> {
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
    etcd.by(caller).permit(Access::Read(&query.range))?;
    etcd.counters().ranges.add(1);
    let mut scan = etcd.node().reader(Floor::Compacted).open(&query)?;
    let etcd = etcd.clone();
    Ok(FramedResponse::Many(generate(move |out| async move {
        loop {
            let mut kvs = BytesMut::new();
            let sink = &mut |view: KeyView<'_>| {
                kvs.key_value(range_field::KVS, view.key, view.tail);
            };
            let end = scan.next(STREAMED_BYTES, sink)?;
            let end = end.map(|end| (etcd.header(end.revision), end));
            if end.is_some() || !kvs.is_empty() {
                out.send(message(&kvs, end)).await;
            }
            if end.is_some() {
                return Ok(());
            }
        }
    })))
}

/// Encodes a `RangeStreamResponse`; the last one has the header and the
/// summary.
fn message(kvs: &[u8], whole: Option<(Header, RangeSummary)>) -> Bytes {
    let mut out = frame::begin(kvs.len() + 64);
    out.nested(1, |out| {
        if let Some((header, _)) = whole {
            header.write(out);
        }
        out.extend_from_slice(kvs);
        if let Some((_, end)) = whole {
            out.flag(range_field::MORE, end.more);
            out.int(range_field::COUNT, end.count);
        }
    });
    frame::finish(out)
}
