//! The network to other members. A single voter has none, so nothing is ever
//! sent.

use std::future::Future;

use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::impls::BasicNode;
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};

use super::types::{Snapshot, Types, Vote};

/// The network of a group of one.
pub struct NoPeers;

impl RaftNetworkFactory<Types> for NoPeers {
    type Network = NoPeer;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> NoPeer {
        NoPeer { target }
    }
}

/// A connection to a member that cannot be reached.
pub struct NoPeer {
    target: u64,
}

impl NoPeer {
    fn unreachable(&self) -> Unreachable<Types> {
        Unreachable::from_string(format!(
            "member {} is unreachable: a group of one has no network",
            self.target
        ))
    }
}

impl RaftNetworkV2<Types> for NoPeer {
    type SnapshotData = ();

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: Snapshot,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(self.unreachable().into())
    }
}
