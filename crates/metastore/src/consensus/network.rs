//! The Raft library's view of the other members: its calls as messages over a
//! [`Transport`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable,
};
use openraft::impls::BasicNode;
use openraft::network::{RPCOption, RPCTypes};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};

use super::message::{Request, response};
use super::record::Decoded;
use super::rules::Rules;
use super::transport::{Lane, Transport, Unreached};
use super::types::{Snapshot, Types, Vote};

/// The network of a member; a group of one has no transport.
#[derive(Clone)]
pub struct Network {
    pub member: u64,
    pub transport: Option<Arc<dyn Transport>>,
    pub rules: Rules,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> Peer {
        Peer { target, network: self.clone() }
    }
}

/// Another member.
pub struct Peer {
    target: u64,
    network: Network,
}

impl Peer {
    async fn call<T>(
        &self,
        (action, lane): (RPCTypes, Lane),
        request: Bytes,
        option: &RPCOption,
        decode: impl FnOnce(Bytes) -> Decoded<T>,
    ) -> Result<T, RPCError<Types>> {
        let Some(transport) = &self.network.transport else {
            return Err(self.unreachable("a group of one has no network"));
        };
        let call = transport.call(self.target, lane, request);
        let response = match tokio::time::timeout(option.soft_ttl(), call).await {
            Ok(Ok(response)) => response,
            Ok(Err(Unreached::NotSent(why) | Unreached::Unknown(why))) => {
                return Err(self.unreachable(&why));
            }
            Err(_) => return Err(self.timed_out(action, option.soft_ttl())),
        };
        decode(response).map_err(|what| {
            let target = self.target;
            NetworkError::from_string(format!("member {target:x} sent a bad response: {what}"))
                .into()
        })
    }

    fn unreachable(&self, why: &str) -> RPCError<Types> {
        Unreachable::from_string(format!("member {:x} is unreachable: {why}", self.target)).into()
    }

    fn timed_out(&self, action: RPCTypes, timeout: Duration) -> RPCError<Types> {
        Timeout { action, id: self.network.member, target: self.target, timeout }.into()
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = ();

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let counts_anyway = self.network.rules.commit_without_quorum && !rpc.entries.is_empty();
        let lane = if rpc.entries.is_empty() { Lane::Control } else { Lane::Entries };
        let request = Request::Append(rpc).encode();
        let kind = (RPCTypes::AppendEntries, lane);
        match self.call(kind, request, &option, response::decode_append).await {
            Err(_) if counts_anyway => Ok(AppendEntriesResponse::Success),
            answer => answer,
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let request = Request::Vote(rpc).encode();
        self.call((RPCTypes::Vote, Lane::Control), request, &option, response::decode_vote).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let request = Request::PreVote(rpc).encode();
        self.call((RPCTypes::Vote, Lane::Control), request, &option, response::decode_vote).await
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        snapshot: Snapshot,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let target = self.target;
        tracing::error!(
            member = format_args!("{target:x}"),
            snapshot = %snapshot.meta,
            "a member is too far behind to be caught up from the log, and snapshots are not sent \
             to members"
        );
        let why = "it is too far behind to be caught up from the log";
        let why = format!("member {target:x} cannot be caught up: {why}");
        Err(Unreachable::from_string(why).into())
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let request = Request::Transfer(request).encode();
        let kind = (RPCTypes::TransferLeader, Lane::Control);
        self.call(kind, request, &option, response::decode_transfer).await
    }
}
