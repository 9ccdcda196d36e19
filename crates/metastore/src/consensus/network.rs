//! The Raft library's view of the other members: its calls as messages over a
//! [`Transport`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable,
};
use openraft::network::{RPCOption, RPCTypes};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};

use super::Position;
use super::membership::MemberRecord;
use super::message::{Request, response};
use super::outbox::Outbox;
use super::outgoing::Outgoing;
use super::record::Decoded;
use super::rules::Rules;
use super::transport::{Lane, Unreached};
use super::types::{Snapshot, SnapshotData, Types, Vote};

/// The network of a member; a group of one has none.
#[derive(Clone)]
pub struct Network {
    pub member: u64,
    pub outbox: Option<Arc<Outbox>>,
    pub outgoing: Option<Arc<Outgoing>>,
    pub rules: Rules,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _node: &MemberRecord) -> Peer {
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
        let Some(outbox) = &self.network.outbox else {
            return Err(self.unreachable("a group of one has no network"));
        };
        let call = outbox.call(self.target, lane, request);
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

    /// A vote of a member that has forgotten its entries does not count.
    async fn ask_for_vote(
        &self,
        request: Request,
        option: &RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let kind = (RPCTypes::Vote, Lane::Control);
        let response = self.call(kind, request.encode(), option, response::decode_vote).await?;
        let empty = response.last_log_id.is_none_or(|last| last.index == 0);
        if response.vote_granted && empty && self.has_lost_its_log() {
            return Err(self.unreachable("it has lost its data"));
        }
        Ok(response)
    }

    fn has_lost_its_log(&self) -> bool {
        self.network.outbox.as_ref().is_some_and(|outbox| outbox.has_lost_its_log(self.target))
    }

    fn unreachable(&self, why: &str) -> RPCError<Types> {
        Unreachable::from_string(format!("member {:x} is unreachable: {why}", self.target)).into()
    }

    fn timed_out(&self, action: RPCTypes, timeout: Duration) -> RPCError<Types> {
        Timeout { action, id: self.network.member, target: self.target, timeout }.into()
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let counts_anyway = self.network.rules.commit_without_quorum && !rpc.entries.is_empty();
        let lane = if rpc.entries.is_empty() { Lane::Control } else { Lane::Entries };
        let request = Request::Append(rpc).encode();
        let kind = (RPCTypes::AppendEntries, lane);
        let response = match self.call(kind, request, &option, response::decode_append).await {
            Err(_) if counts_anyway => return Ok(AppendEntriesResponse::Success),
            answer => answer?,
        };
        let (response, empty) = response;
        if empty && self.has_lost_its_log() {
            return Err(self.unreachable("it has lost its data"));
        }
        Ok(response)
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_for_vote(Request::Vote(rpc), &option).await
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_for_vote(Request::PreVote(rpc), &option).await
    }

    /// Sends the machine's state as of the snapshot, or a later one.
    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let (Some(outbox), Some(outgoing)) = (&self.network.outbox, &self.network.outgoing) else {
            let why = "a group of one has no network";
            return Err(Unreachable::from_string(why).into());
        };
        let index = snapshot.meta.last_log_id.as_ref().map_or(0, |at| Position::of(at).index);
        let sent = tokio::select! {
            closed = cancel => return Err(closed.into()),
            sent = outgoing.send(outbox, self.target, vote, index) => sent,
        };
        match sent {
            Ok(vote) => Ok(SnapshotResponse::new(vote)),
            Err(error) => {
                tracing::warn!(
                    member = format_args!("{:x}", self.target),
                    %error,
                    "a snapshot was not sent; it is tried again"
                );
                Err(Unreachable::from_string(error.to_string()).into())
            }
        }
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
