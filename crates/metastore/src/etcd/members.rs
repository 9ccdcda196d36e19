//! The Cluster service: the members, and changes of them.

use bytes::Bytes;
use stele_grpc::frame;

use super::api::decode;
use super::methods::Method;
use super::{Etcd, proto};
use crate::auth::Access;
use crate::command::Caller;
use crate::consensus::Member;
use crate::{Error, Result};

/// Executes a method of the Cluster service.
pub async fn call(
    etcd: &Etcd,
    caller: Option<&Caller>,
    method: Method,
    message: Bytes,
) -> Result<Bytes> {
    let node = etcd.node();
    if method != Method::MemberList {
        etcd.by(caller).permit(Access::Root)?;
    }
    let header = || Some(etcd.header(0).message());
    match method {
        Method::MemberList => {
            etcd.by(caller).permit(Access::AnyUser)?;
            let request: proto::MemberListRequest = decode(message)?;
            if request.linearizable {
                node.barrier().await?;
            }
            let members = list(etcd);
            Ok(frame::encode(&proto::MemberListResponse { header: header(), members }))
        }
        Method::MemberAdd => {
            let request: proto::MemberAddRequest = decode(message)?;
            let peer_urls = request.peer_ur_ls;
            let id = node.add_member(peer_urls.clone(), request.is_learner).await?;
            let member = proto::Member {
                id,
                peer_ur_ls: peer_urls,
                is_learner: request.is_learner,
                ..Default::default()
            };
            let mut members = list(etcd);
            // It is not committed yet if the new member is needed for that.
            if members.iter().all(|member| member.id != id) {
                members.push(member.clone());
            }
            let member = Some(member);
            Ok(frame::encode(&proto::MemberAddResponse { header: header(), member, members }))
        }
        Method::MemberRemove => {
            let request: proto::MemberRemoveRequest = decode(message)?;
            node.remove_member(request.id).await?;
            let members = list(etcd);
            Ok(frame::encode(&proto::MemberRemoveResponse { header: header(), members }))
        }
        Method::MemberUpdate => {
            let request: proto::MemberUpdateRequest = decode(message)?;
            node.update_member(request.id, request.peer_ur_ls).await?;
            let members = list(etcd);
            Ok(frame::encode(&proto::MemberUpdateResponse { header: header(), members }))
        }
        Method::MemberPromote => {
            let request: proto::MemberPromoteRequest = decode(message)?;
            node.promote_member(request.id).await?;
            let members = list(etcd);
            Ok(frame::encode(&proto::MemberPromoteResponse { header: header(), members }))
        }
        _ => Err(Error::Internal("the method is not one of the Cluster service".into())),
    }
}

/// Returns all members. One that runs alone has not published anything.
fn list(etcd: &Etcd) -> Vec<proto::Member> {
    let Some(members) = etcd.node().members() else {
        let options = etcd.options();
        return vec![proto::Member {
            id: etcd.header(0).member_id,
            name: options.name.clone(),
            peer_ur_ls: options.peer_urls.clone(),
            client_ur_ls: options.client_urls.clone(),
            is_learner: false,
        }];
    };
    members.iter().map(message).collect()
}

fn message(Member { id, record, learner }: &Member) -> proto::Member {
    proto::Member {
        id: *id,
        name: record.name.clone(),
        peer_ur_ls: record.peer_urls.clone(),
        client_ur_ls: record.client_urls.clone(),
        is_learner: *learner,
    }
}
