//! Leases: granted and revoked through the log, renewed without it.

use bytes::Bytes;
use stele_grpc::frame;
use tokio_stream::StreamExt;

use super::api::decode;
use super::callers::Credential;
use super::generate::generate;
use super::rpc::MessageStream;
use super::{Etcd, kv, proto, response};
use crate::Result;
use crate::auth::Access;
use crate::command::{Answer, Caller, Reply};
use crate::wire::Fields;

pub async fn grant(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: proto::LeaseGrantRequest,
) -> Result<Bytes> {
    match etcd.by(caller).lease_grant(request.id, request.ttl).await? {
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

pub async fn revoke(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: proto::LeaseRevokeRequest,
) -> Result<Bytes> {
    let answer = etcd.by(caller).lease_revoke(request.id).await?;
    etcd.counters().revocations.add(1);
    Ok(response::header_only(etcd.header(answer.revision)))
}

pub async fn time_to_live(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: proto::LeaseTimeToLiveRequest,
) -> Result<Bytes> {
    let node = etcd.node();
    let status = node.lease_status(request.id).await?;
    etcd.by(caller).permit(match request.keys {
        true => Access::LeaseKeys(request.id),
        false => Access::AnyUser,
    })?;
    let mut answer = proto::LeaseTimeToLiveResponse {
        header: Some(etcd.header(node.revision()).message()),
        id: request.id,
        ttl: -1,
        ..Default::default()
    };
    if let Some(status) = status {
        answer.ttl = status.ttl_seconds;
        answer.granted_ttl = status.granted_seconds;
        if request.keys {
            answer.keys = node.leases().keys(request.id)?;
        }
    }
    Ok(frame::encode(&answer))
}

/// Lists all leases, if the caller may read all of their keys.
pub fn leases(etcd: &Etcd, caller: Option<&Caller>) -> Result<Bytes> {
    etcd.by(caller).permit(Access::AnyUser)?;
    let leases = etcd.node().leases().list();
    if etcd.node().auth().is_enabled() {
        let readable = |id: &i64| etcd.by(caller).permit(Access::LeaseKeys(*id));
        leases.iter().try_for_each(readable)?;
    }
    Ok(frame::encode(&proto::LeaseLeasesResponse {
        header: Some(etcd.header(etcd.node().revision()).message()),
        leases: leases.into_iter().map(|id| proto::LeaseStatus { id }).collect(),
    }))
}

/// Answers each request with one response. The TTL of a missing lease is 0.
pub fn keep_alives(
    etcd: &Etcd,
    credential: Credential,
    mut requests: MessageStream,
) -> MessageStream {
    let etcd = etcd.clone();
    generate(move |out| async move {
        while let Some(request) = requests.next().await {
            let request: proto::LeaseKeepAliveRequest = decode(request?)?;
            let revision = etcd.node().revision();
            // Only the leader may renew a lease.
            let caller = etcd.identify(&credential).await?;
            if caller.is_some() {
                // Its permissions depend on the keys of the lease.
                etcd.node().barrier().await?;
            }
            etcd.by(caller.as_ref()).permit(Access::Lease(request.id))?;
            let ttl = etcd.node().keep_alive(request.id).await?.unwrap_or(0);
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
