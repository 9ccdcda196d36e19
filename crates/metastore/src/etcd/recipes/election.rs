//! The Election service.

use bytes::Bytes;
use stele_grpc::frame;

use super::queue::{self, Changes, Leaving};
use crate::command::{Caller, KeyRange};
use crate::etcd::generate::{Output, generate};
use crate::etcd::proto::KeyValue;
use crate::etcd::proto::v3electionpb::{
    CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, ProclaimRequest,
    ResignRequest,
};
use crate::etcd::rpc::FramedResponse;
use crate::etcd::{Etcd, response};
use crate::key::Tail;
use crate::watch::EventKind;
use crate::{Error, Result};

const NO_LEADER: Error = Error::Recipe("election: no leader");
const NOT_LEADER: Error = Error::Recipe("election: not leader");
const LEADER_MISSING: Error = Error::Recipe("\"leader\" field must be provided");

/// Waits until the caller is elected.
pub async fn campaign(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: CampaignRequest,
) -> Result<Bytes> {
    let CampaignRequest { name, lease, value } = request;
    let place = queue::join(etcd, caller, &name, lease, value.clone()).await?;
    let leaving = Leaving::new(etcd, caller, &place);
    if place.found.as_ref().is_some_and(|found| *found != value) {
        let key = (&place.key, place.created);
        let (leads, _) = queue::replace(etcd, caller, key, place.lease, value).await?;
        if !leads {
            return Err(NOT_LEADER);
        }
    }
    queue::wait(etcd, caller, &name, &place).await?;
    leaving.stay();
    let leader = LeaderKey { name, key: place.key, rev: place.created, lease: place.lease };
    let header = Some(etcd.header(place.revision).message());
    Ok(frame::encode(&CampaignResponse { header, leader: Some(leader) }))
}

/// Changes the value of a leader.
pub async fn proclaim(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: ProclaimRequest,
) -> Result<Bytes> {
    let leader = request.leader.ok_or(LEADER_MISSING)?;
    let key = (&leader.key, leader.rev);
    let (leads, revision) = queue::replace(etcd, caller, key, leader.lease, request.value).await?;
    if leads { Ok(response::header_only(etcd.header(revision))) } else { Err(NOT_LEADER) }
}

/// Ends the leadership. Not an error if it has ended already.
pub async fn resign(etcd: &Etcd, caller: Option<&Caller>, request: ResignRequest) -> Result<Bytes> {
    let leader = request.leader.ok_or(LEADER_MISSING)?;
    let revision = queue::leave(etcd, caller, &leader.key, leader.rev).await?;
    Ok(response::header_only(etcd.header(revision)))
}

pub async fn leader(etcd: &Etcd, caller: Option<&Caller>, request: LeaderRequest) -> Result<Bytes> {
    let (kv, revision) = queue::oldest(etcd, caller, &request.name).await?;
    let kv = kv.ok_or(NO_LEADER)?;
    Ok(message(etcd, revision, &kv.key, &kv.tail))
}

/// Streams the leader and its values, then the leaders after it.
pub fn observe(etcd: &Etcd, caller: Option<Caller>, request: LeaderRequest) -> FramedResponse {
    let etcd = etcd.clone();
    FramedResponse::Many(generate(move |out| async move {
        loop {
            follow(&etcd, caller.as_ref(), &request.name, &out).await?;
        }
    }))
}

/// Sends a leader and its values until it resigns. If there is none, waits for
/// one.
async fn follow(etcd: &Etcd, caller: Option<&Caller>, name: &[u8], out: &Output) -> Result<()> {
    let (kv, revision) = queue::oldest(etcd, caller, name).await?;
    let Some(kv) = kv else {
        let candidates = KeyRange::prefix(queue::prefix(name));
        Changes::after(etcd, revision, candidates).next().await?;
        return Ok(());
    };
    out.send(message(etcd, revision, &kv.key, &kv.tail)).await;
    let mut changes = Changes::after(etcd, revision, KeyRange::single(kv.key));
    while let Some(events) = changes.next().await? {
        for event in &events {
            if event.kind == EventKind::Delete {
                return Ok(());
            }
            out.send(message(etcd, event.revision, event.key(), event.tail())).await;
        }
    }
    Ok(())
}

fn message(etcd: &Etcd, revision: i64, key: &[u8], tail: &[u8]) -> Bytes {
    let Tail { create_revision, mod_revision, version, value, lease } = Tail::parse(tail);
    let kv = KeyValue {
        key: Bytes::copy_from_slice(key),
        create_revision,
        mod_revision,
        version,
        value: Bytes::copy_from_slice(value),
        lease,
    };
    let header = Some(etcd.header(revision).message());
    frame::encode(&LeaderResponse { header, kv: Some(kv) })
}
