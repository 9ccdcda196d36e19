//! The API of one node: executes the method of a call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::Semaphore;
use tonic::Status;

use super::header::Header;
use super::methods::Method;
use super::metrics::Counters;
use super::range::Budget;
use super::rpc::{FramedResponse, MessageStream};
use super::service::Service;
use super::{kv, lease, maintenance, range, snapshot, watch};
use crate::{Error, Node};

/// The options of a member's API.
#[derive(Clone, Debug)]
pub struct Options {
    /// The member's name.
    pub name: String,
    /// The addresses for clients.
    pub client_urls: Vec<String>,
    pub peer_urls: Vec<String>,
    /// The interval of progress notifications to idle watchers that requested
    /// them.
    pub progress_interval: Duration,
    /// The maximum memory of all range responses together.
    pub response_bytes_max: usize,
    /// Returns the metrics of the process, which are appended to `/metrics`.
    pub process_numbers: fn() -> String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: "default".into(),
            client_urls: Vec::new(),
            peer_urls: Vec::new(),
            progress_interval: Duration::from_secs(600),
            response_bytes_max: 128 << 20,
            process_numbers: String::new,
        }
    }
}

/// The API of one node.
#[derive(Clone)]
pub struct Etcd(Arc<Inner>);

struct Inner {
    node: Arc<Node>,
    options: Options,
    counters: Counters,
    budget: Budget,
    sorting: Semaphore,
}

/// The maximum number of concurrent ranges that are not sorted by key.
const SORTING_MAX: usize = 2;

impl Etcd {
    pub fn new(node: Arc<Node>, options: Options) -> Etcd {
        let budget = Budget::new(options.response_bytes_max);
        let sorting = Semaphore::new(SORTING_MAX);
        Etcd(Arc::new(Inner { node, options, counters: Counters::default(), budget, sorting }))
    }

    /// Returns the service for gRPC and HTTP requests.
    pub fn service(&self) -> Service {
        Service::new(self.clone())
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.0.node
    }

    pub(super) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.0.budget
    }

    pub(super) fn sorting(&self) -> &Semaphore {
        &self.0.sorting
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    pub(super) fn header(&self, revision: i64) -> Header {
        let status = self.node().status();
        Header {
            cluster_id: status.cluster_id,
            member_id: status.member_id,
            revision,
            raft_term: status.term,
        }
    }

    /// Executes a method that takes one message.
    pub(super) async fn unary(
        &self,
        method: Method,
        message: Bytes,
    ) -> Result<FramedResponse, Status> {
        let one = |response: crate::Result<Bytes>| Ok(FramedResponse::One(response?));
        match method {
            Method::Range => Ok(range::range(self, decode(message)?).await?),
            Method::RangeStream => Ok(range::stream(self, decode(message)?).await?),
            Method::Put => one(kv::put(self, message).await),
            Method::DeleteRange => one(kv::delete_range(self, message).await),
            Method::Txn => one(kv::txn(self, message).await),
            Method::Compact => one(kv::compact(self, decode(message)?).await),
            Method::LeaseGrant => one(lease::grant(self, decode(message)?).await),
            Method::LeaseRevoke => one(lease::revoke(self, decode(message)?).await),
            Method::LeaseTimeToLive => one(lease::time_to_live(self, decode(message)?).await),
            Method::LeaseLeases => one(lease::leases(self)),
            Method::MemberList => one(maintenance::member_list(self, decode(message)?).await),
            Method::Alarm => one(maintenance::alarm(self, decode(message)?).await),
            Method::Status => one(maintenance::status(self)),
            Method::Defragment => one(Ok(maintenance::defragment())),
            Method::Hash => one(maintenance::hash(self).await),
            Method::HashKv => one(maintenance::hash_kv(self, decode(message)?).await),
            Method::Snapshot => Ok(snapshot::stream(self).await?),
            Method::Watch | Method::LeaseKeepAlive => {
                Err(Status::internal("the method expects a stream of messages"))
            }
        }
    }

    /// Executes a method that takes a stream of messages.
    pub(super) fn stream(
        &self,
        method: Method,
        requests: MessageStream,
    ) -> Result<FramedResponse, Status> {
        match method {
            Method::Watch => Ok(FramedResponse::Many(watch::stream(self, requests))),
            Method::LeaseKeepAlive => Ok(FramedResponse::Many(lease::keep_alives(self, requests))),
            _ => Err(Status::internal("the method expects a single message")),
        }
    }
}

/// Decodes a message; invalid bytes are the client's error.
pub(super) fn decode<M: Message + Default>(message: Bytes) -> Result<M, Error> {
    M::decode(message)
        .map_err(|_| Error::Malformed("cannot decode the request message of this method"))
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        Status::new(tonic::Code::from_i32(error.code() as i32), error.to_string())
    }
}
