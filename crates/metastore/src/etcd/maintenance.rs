//! Maintenance: the status of a member.

use bytes::Bytes;
use stele_grpc::frame;

use super::proto::alarm_request::AlarmAction;
use super::proto::{self, AlarmType};
use super::{CLUSTER_VERSION, Etcd, VERSION};
use crate::auth::Access;
use crate::command::{self, Alarm, Caller, Command};
use crate::{Error, Result};

pub fn status(etcd: &Etcd, caller: Option<&Caller>) -> Result<Bytes> {
    etcd.by(caller).permit(Access::AnyUser)?;
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
pub fn defragment(etcd: &Etcd, caller: Option<&Caller>) -> Result<Bytes> {
    etcd.by(caller).permit(Access::Root)?;
    Ok(frame::encode(&proto::DefragmentResponse::default()))
}

/// Moves the leadership to another member, and returns once that leads. Only the
/// leader accepts the call. Like etcd's response, this one has no header.
pub async fn move_leader(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: proto::MoveLeaderRequest,
) -> Result<Bytes> {
    etcd.by(caller).permit(Access::Root)?;
    let status = etcd.node().status();
    if status.leader_id != status.member_id {
        return Err(Error::NotLeader);
    }
    if request.target_id == 0 {
        return Err(Error::BadTransferee);
    }
    etcd.node().move_leader(Some(request.target_id)).await?;
    Ok(frame::encode(&proto::MoveLeaderResponse::default()))
}

/// Answers requests to downgrade etcd's storage, which this member does not
/// have: there is no version to go to and nothing to cancel.
pub fn downgrade(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: proto::DowngradeRequest,
) -> Result<Bytes> {
    use proto::downgrade_request::DowngradeAction;
    etcd.by(caller).permit(Access::Root)?;
    if request.action == i32::from(DowngradeAction::Cancel) {
        return Err(Error::NoDowngrade);
    }
    let numbers = request.version.strip_prefix('v').unwrap_or(&request.version).split('.');
    let parsed: Vec<_> = numbers.map(|number| number.parse::<u32>().ok()).collect();
    let is_version = (2..=3).contains(&parsed.len()) && parsed.iter().all(Option::is_some);
    Err(if is_version { Error::DowngradeTarget } else { Error::DowngradeFormat })
}

pub async fn hash(etcd: &Etcd, caller: Option<&Caller>) -> Result<Bytes> {
    etcd.by(caller).permit(Access::Root)?;
    let hash = etcd.node().hash(0).await?;
    let header = Some(etcd.header(etcd.node().revision()).message());
    Ok(frame::encode(&proto::HashResponse { header, hash: hash.hash }))
}

pub async fn hash_kv(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: proto::HashKvRequest,
) -> Result<Bytes> {
    etcd.by(caller).permit(Access::Root)?;
    let hash = etcd.node().hash(request.revision).await?;
    Ok(frame::encode(&proto::HashKvResponse {
        header: Some(etcd.header(etcd.node().revision()).message()),
        hash: hash.hash,
        compact_revision: if hash.compacted > 0 { hash.compacted } else { -1 },
        hash_revision: hash.hash_revision,
    }))
}

pub async fn alarm(
    etcd: &Etcd,
    caller: Option<&Caller>,
    request: proto::AlarmRequest,
) -> Result<Bytes> {
    let reads = request.action == i32::from(AlarmAction::Get);
    etcd.by(caller).permit(if reads { Access::AnyUser } else { Access::Root })?;
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
            propose(etcd, caller, command::AlarmAction::ActivateByHand { member, alarm }).await?;
            vec![(member, alarm)]
        }
        (Ok(AlarmAction::Deactivate), Some(alarm)) => {
            let was_active = active.contains(&(member, alarm));
            propose(etcd, caller, command::AlarmAction::Deactivate { member, alarm }).await?;
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

async fn propose(etcd: &Etcd, caller: Option<&Caller>, action: command::AlarmAction) -> Result<()> {
    etcd.by(caller).propose(Command::Alarm(action)).await.map(drop)
}

fn alarm_type(alarm: Alarm) -> AlarmType {
    match alarm {
        Alarm::NoSpace => AlarmType::Nospace,
        Alarm::Corrupt => AlarmType::Corrupt,
    }
}
