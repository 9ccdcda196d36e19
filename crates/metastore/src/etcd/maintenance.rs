//! Maintenance and membership: the status of a member.

use bytes::Bytes;
use stele_grpc::frame;

use super::proto::alarm_request::AlarmAction;
use super::proto::{self, AlarmType};
use super::{CLUSTER_VERSION, Etcd, VERSION};
use crate::command::{self, Alarm, Command};
use crate::{Error, Result};

pub async fn member_list(etcd: &Etcd, request: proto::MemberListRequest) -> Result<Bytes> {
    if request.linearizable {
        etcd.node().barrier().await?;
    }
    let options = etcd.options();
    let header = etcd.header(0);
    let member = proto::Member {
        id: header.member_id,
        name: options.name.clone(),
        peer_ur_ls: options.peer_urls.clone(),
        client_ur_ls: options.client_urls.clone(),
        is_learner: false,
    };
    let answer =
        proto::MemberListResponse { header: Some(header.message()), members: vec![member] };
    Ok(frame::encode(&answer))
}

pub fn status(etcd: &Etcd) -> Result<Bytes> {
    let node = etcd.node();
    let (status, usage) = (node.status(), node.usage());
    let mut errors = Vec::new();
    if status.leader_id == 0 {
        errors.push(Error::NoLeader.to_string());
    }
    for (member, alarm) in node.alarms() {
        errors.push(format!("memberID:{member} alarm:{} ", alarm_type(alarm).as_str_name()));
    }
    Ok(frame::encode(&proto::StatusResponse {
        header: Some(etcd.header(node.revision()).message()),
        version: VERSION.into(),
        // Clients interpret a size of zero as no answer.
        db_size: usage.stored_bytes.max(1),
        leader: status.leader_id,
        raft_index: status.committed,
        raft_term: status.term,
        raft_applied_index: status.applied,
        errors,
        db_size_in_use: usage.live_bytes.max(1),
        is_learner: false,
        storage_version: CLUSTER_VERSION.into(),
        db_size_quota: usage.quota_bytes,
        downgrade_info: Some(proto::DowngradeInfo::default()),
    }))
}

/// Does nothing, because space is reclaimed continuously. Like etcd's response,
/// this one has no header.
pub fn defragment() -> Bytes {
    frame::encode(&proto::DefragmentResponse::default())
}

pub async fn hash(etcd: &Etcd) -> Result<Bytes> {
    let hash = etcd.node().hash(0).await?;
    let header = Some(etcd.header(etcd.node().revision()).message());
    Ok(frame::encode(&proto::HashResponse { header, hash: hash.hash }))
}

pub async fn hash_kv(etcd: &Etcd, request: proto::HashKvRequest) -> Result<Bytes> {
    let hash = etcd.node().hash(request.revision).await?;
    Ok(frame::encode(&proto::HashKvResponse {
        header: Some(etcd.header(etcd.node().revision()).message()),
        hash: hash.hash,
        compact_revision: if hash.compacted > 0 { hash.compacted } else { -1 },
        hash_revision: hash.hash_revision,
    }))
}

pub async fn alarm(etcd: &Etcd, request: proto::AlarmRequest) -> Result<Bytes> {
    let kind = match AlarmType::try_from(request.alarm).unwrap_or(AlarmType::None) {
        AlarmType::None => None,
        AlarmType::Nospace => Some(Alarm::NoSpace),
        AlarmType::Corrupt => Some(Alarm::Corrupt),
    };
    let member = request.member_id;
    let active = etcd.node().alarms();
    let requested = |(owner, alarm): &(u64, Alarm)| {
        (member == 0 || *owner == member) && kind.is_none_or(|kind| kind == *alarm)
    };
    let alarms: Vec<(u64, Alarm)> = match (AlarmAction::try_from(request.action), kind) {
        (Ok(AlarmAction::Get), _) => active.into_iter().filter(requested).collect(),
        (Ok(AlarmAction::Activate), Some(alarm)) => {
            propose(etcd, command::AlarmAction::Activate { member, alarm }).await?;
            vec![(member, alarm)]
        }
        (Ok(AlarmAction::Deactivate), Some(alarm)) => {
            let was_active = active.contains(&(member, alarm));
            propose(etcd, command::AlarmAction::Deactivate { member, alarm }).await?;
            if was_active { vec![(member, alarm)] } else { Vec::new() }
        }
        _ => Vec::new(),
    };
    let member =
        |(member_id, alarm)| proto::AlarmMember { member_id, alarm: alarm_type(alarm).into() };
    Ok(frame::encode(&proto::AlarmResponse {
        header: Some(etcd.header(etcd.node().revision()).message()),
        alarms: alarms.into_iter().map(member).collect(),
    }))
}

async fn propose(etcd: &Etcd, action: command::AlarmAction) -> Result<()> {
    etcd.node().propose(Command::Alarm(action)).await.map(drop)
}

fn alarm_type(alarm: Alarm) -> AlarmType {
    match alarm {
        Alarm::NoSpace => AlarmType::Nospace,
        Alarm::Corrupt => AlarmType::Corrupt,
    }
}
