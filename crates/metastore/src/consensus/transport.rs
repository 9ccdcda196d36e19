//! How members reach each other: requests and responses are opaque bytes. The
//! real network is in `peer`, the simulated one in the tests.

use std::sync::Arc;

use bytes::Bytes;
use stele_grpc::Pending;

use super::membership::Member;

/// Separate connections, so that small urgent messages do not wait behind large
/// ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Log entries.
    Entries = 0,
    /// Heartbeats and votes.
    Control = 1,
    /// Proposals and reads on behalf of clients.
    Client = 2,
    /// Snapshots.
    Snapshot = 3,
}

impl Lane {
    pub const COUNT: usize = 4;
}

/// Why there is no response.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unreached {
    /// The request was certainly not received.
    #[error("{0}")]
    NotSent(String),
    /// The request may have been received.
    #[error("{0}")]
    Unknown(String),
}

/// The network of a member.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request to a member and waits for its response.
    fn call(
        &self,
        to: u64,
        lane: Lane,
        request: Bytes,
    ) -> Pending<'static, Result<Bytes, Unreached>>;

    /// Replaces the members that can be reached.
    fn set_members(&self, _members: &[Member]) {}

    /// Starts to pass the requests of other members to `inbox`.
    fn serve(&self, inbox: Arc<dyn Inbox>);

    /// Stops passing requests and closes all connections.
    fn close(&self);
}

/// Receives the requests of other members.
pub trait Inbox: Send + Sync + 'static {
    /// Handles a request of a member and returns the response. The id of a member
    /// that does not know it yet is 0.
    fn receive(&self, from: u64, request: Bytes) -> Pending<'static, Bytes>;

    /// Reports that a connection which a member has opened has ended.
    fn disconnected(&self, _from: u64) {}
}
