//! Leases: granted and revoked through the log, renewed without it.

use bytes::Bytes;
use stele_grpc::frame;
use tokio_stream::StreamExt;

use super::api::decode;
use super::generate::generate;
use super::rpc::MessageStream;
use super::{Etcd, kv, proto, response};
use crate::Result;
use crate::command::{Answer, Reply};
use crate::wire::Fields;

pub async fn grant(etcd: &Etcd, request: proto::LeaseGrantRequest) -> Result<Bytes> {
    match etcd.node().lease_grant(request.id, request.ttl).await? {
        Answer { revision, reply: Reply::LeaseGrant { id, ttl_seconds } } => {
            etcd.counters().grants.add(1);
            Ok(frame::encode(&proto::LeaseGrantResponse {
                header: Some(etcd.header(revision).message()),
                id,
                ttl: ttl_seconds,
                error: String::new(),
            }))
        }
        other => Err(kv::unexpected(&other)),
    }
}

pub async fn revoke(etcd: &Etcd, request: proto::LeaseRevokeRequest) -> Result<Bytes> {
    let answer = etcd.node().lease_revoke(request.id).await?;
    etcd.counters().revocations.add(1);
    Ok(response::header_only(etcd.header(answer.revision)))
}

pub async fn time_to_live(etcd: &Etcd, request: proto::LeaseTimeToLiveRequest) -> Result<Bytes> {
    let node = etcd.node();
    node.barrier().await?;
    let mut answer = proto::LeaseTimeToLiveResponse {
        header: Some(etcd.header(node.revision()).message()),
        id: request.id,
        ttl: -1,
        ..Default::default()
    };
    if let Some(status) = node.leases().time_to_live(request.id) {
        answer.ttl = status.ttl_seconds;
        answer.granted_ttl = status.granted_seconds;
        if request.keys {
            answer.keys = node.leases().keys(request.id)?;
        }
    }
    Ok(frame::encode(&answer))
}

pub fn leases(etcd: &Etcd) -> Result<Bytes> {
    let leases = etcd.node().leases().list();
    Ok(frame::encode(&proto::LeaseLeasesResponse {
        header: Some(etcd.header(etcd.node().revision()).message()),
        leases: leases.into_iter().map(|id| proto::LeaseStatus { id }).collect(),
    }))
}

/// Answers each request with one response. The TTL of a missing lease is 0.
pub fn keep_alives(etcd: &Etcd, mut requests: MessageStream) -> MessageStream {
    let etcd = etcd.clone();
    generate(move |out| async move {
        while let Some(request) = requests.next().await {
            let request: proto::LeaseKeepAliveRequest = decode(request?)?;
            let revision = etcd.node().revision();
            // Only the leader may renew a lease.
            etcd.node().barrier().await?;
            let ttl = etcd.node().leases().keep_alive(request.id).unwrap_or(0);
            etcd.counters().renewals.add(i64::from(ttl > 0));
            let mut message = frame::begin(64);
            etcd.header(revision).write(&mut message);
            message.int(2, request.id);
            message.int(3, ttl);
            out.send(frame::finish(message)).await;
        }
        Ok(())
    })
}
