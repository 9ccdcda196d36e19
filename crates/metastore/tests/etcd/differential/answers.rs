//! Answers as text, without the parts that may differ.

use stele_metastore::etcd::proto::response_op::Response;
use stele_metastore::etcd::proto::*;
use tonic::Status;

use super::draw::Step;
use crate::etcd::peer::Peer;

/// Executes a step and returns its answer.
pub async fn answer(peer: &Peer, step: &Step) -> String {
    match step.clone() {
        Step::Range(request) => {
            let sorted = request.sort_target != 0;
            let answer = peer.call("/etcdserverpb.KV/Range", request).await;
            described(answer.map(|mut answer: RangeResponse| {
                if sorted {
                    settle_ties(&mut answer);
                }
                clear(&mut answer.header);
                answer
            }))
        }
        Step::Put(request) => {
            let answer = peer.call("/etcdserverpb.KV/Put", request).await;
            described(answer.map(|mut answer: PutResponse| {
                clear(&mut answer.header);
                answer
            }))
        }
        Step::Delete(request) => {
            let answer = peer.call("/etcdserverpb.KV/DeleteRange", request).await;
            described(answer.map(|mut answer: DeleteRangeResponse| {
                clear(&mut answer.header);
                answer
            }))
        }
        Step::Txn(request) => {
            let answer = peer.call("/etcdserverpb.KV/Txn", request).await;
            described(answer.map(|mut answer: TxnResponse| {
                clear(&mut answer.header);
                settle_txn(&mut answer);
                answer
            }))
        }
        Step::Compact(request) => {
            let answer = peer.call("/etcdserverpb.KV/Compact", request).await;
            described(answer.map(|mut answer: CompactionResponse| {
                clear(&mut answer.header);
                answer
            }))
        }
        Step::Grant(request) => grant(peer, request).await,
        Step::GrantAndRevoke(request) => {
            let granted = grant(peer, request).await;
            granted + &revoke(peer, LeaseRevokeRequest { id: request.id }).await
        }
        Step::Revoke(request) => revoke(peer, request).await,
        Step::TimeToLive(request) => {
            let answer = peer.call("/etcdserverpb.Lease/LeaseTimeToLive", request).await;
            described(answer.map(|mut answer: LeaseTimeToLiveResponse| {
                clear(&mut answer.header);
                answer.keys.sort();
                // A second may pass between the two.
                answer.ttl = (answer.ttl + 60) / 100;
                answer
            }))
        }
        Step::Leases => {
            let request = LeaseLeasesRequest {};
            let answer = peer.call("/etcdserverpb.Lease/LeaseLeases", request).await;
            described(answer.map(|mut answer: LeaseLeasesResponse| {
                clear(&mut answer.header);
                answer.leases.sort_by_key(|lease| lease.id);
                answer
            }))
        }
        Step::KeepAlive(request) => {
            let requests = tokio_stream::once(request);
            let mut answers = peer.stream("/etcdserverpb.Lease/LeaseKeepAlive", requests).await;
            let answer: Result<Option<LeaseKeepAliveResponse>, _> = answers.message().await;
            described(answer.map(|answer| {
                let mut answer = answer.expect("one answer to each request");
                clear(&mut answer.header);
                answer
            }))
        }
        Step::Watch(_) | Step::CancelWatch(_) => unreachable!("goes over the stream of watches"),
    }
}

async fn grant(peer: &Peer, request: LeaseGrantRequest) -> String {
    let answer = peer.call("/etcdserverpb.Lease/LeaseGrant", request).await;
    described(answer.map(|mut answer: LeaseGrantResponse| {
        clear(&mut answer.header);
        answer
    }))
}

async fn revoke(peer: &Peer, request: LeaseRevokeRequest) -> String {
    let answer = peer.call("/etcdserverpb.Lease/LeaseRevoke", request).await;
    described(answer.map(|mut answer: LeaseRevokeResponse| {
        clear(&mut answer.header);
        answer
    }))
}

/// Clears everything in a header but the revision.
pub fn clear(header: &mut Option<ResponseHeader>) {
    if let Some(header) = header {
        *header = ResponseHeader { revision: header.revision, ..Default::default() };
    }
}

fn settle_txn(answer: &mut TxnResponse) {
    for op in &mut answer.responses {
        match &mut op.response {
            Some(Response::ResponseRange(range)) => settle_ties(range),
            Some(Response::ResponseTxn(inner)) => settle_txn(inner),
            _ => {}
        }
    }
}

/// Makes the order of keys that tie under a sort deterministic.
fn settle_ties(answer: &mut RangeResponse) {
    answer.kvs.sort_by(|a, b| a.key.cmp(&b.key));
}

pub fn described<T: std::fmt::Debug>(answer: Result<T, Status>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(status) => format!("{:?}: {}", status.code(), status.message()),
    }
}
