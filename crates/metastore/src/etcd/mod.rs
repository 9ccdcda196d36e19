//! The etcd v3 API of a [`Node`]: serves etcd's clients on port 2379, over gRPC
//! and as JSON.
//!
//! [`Service`] dispatches a call. For gRPC, `rpc` extracts the messages from
//! their frames, `methods` maps the path to a method, `request` converts the
//! message to a command or query, and `kv`, `range`, `lease`, `maintenance` or
//! `watch` executes it on the node. The response is written directly from the
//! stored bytes (`wire`, `header`, `response`). Any other call is a page for
//! people and probes (`pages`, `metrics`) or JSON (`gateway`), which is
//! converted to wire format and handled like gRPC.

mod gateway;
mod generate;
mod header;
mod kv;
mod lease;
mod maintenance;
mod methods;
mod metrics;
mod pages;
pub mod proto;
mod range;
mod request;
mod response;
mod results;
mod rpc;
mod service;
mod snapshot;
mod watch;
pub(crate) mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::Semaphore;
use tonic::Status;

use self::header::Header;
use self::methods::Method;
use self::metrics::Counters;
use self::range::Budget;
use self::rpc::{Answer, Messages};
pub use self::service::{PageBody, Service, is_endless, is_gateway};
use crate::{Error, Node};

/// The version of etcd whose API this is, which clients compare.
pub const VERSION: &str = "3.6.5";
/// The version that members of one cluster agree on.
pub const CLUSTER_VERSION: &str = "3.6.0";

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

    fn node(&self) -> &Arc<Node> {
        &self.0.node
    }

    fn options(&self) -> &Options {
        &self.0.options
    }

    fn budget(&self) -> &Budget {
        &self.0.budget
    }

    fn sorting(&self) -> &Semaphore {
        &self.0.sorting
    }

    fn counters(&self) -> &Counters {
        &self.0.counters
    }

    fn header(&self, revision: i64) -> Header {
        let status = self.node().status();
        Header {
            cluster_id: status.cluster_id,
            member_id: status.member_id,
            revision,
            raft_term: status.term,
        }
    }

    /// Executes a method that takes one message.
    async fn unary(&self, method: Method, message: Bytes) -> Result<Answer, Status> {
        let one = |answered: crate::Result<Bytes>| Ok(Answer::One(answered?));
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
                Err(Status::internal("the method takes a stream of messages"))
            }
        }
    }

    /// Executes a method that takes a stream of messages.
    fn stream(&self, method: Method, requests: Messages) -> Result<Answer, Status> {
        match method {
            Method::Watch => Ok(Answer::Many(watch::stream(self, requests))),
            Method::LeaseKeepAlive => Ok(Answer::Many(lease::keep_alives(self, requests))),
            _ => Err(Status::internal("the method takes one message")),
        }
    }
}

/// Decodes a message; invalid bytes are the client's error.
fn decode<M: Message + Default>(message: Bytes) -> Result<M, Error> {
    M::decode(message).map_err(|_| Error::Malformed("the message is none of this method"))
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        Status::new(tonic::Code::from_i32(error.code() as i32), error.to_string())
    }
}
