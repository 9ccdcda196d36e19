//! The etcd v3 API in front of a [`Node`]: what etcd's clients send on port
//! 2379, over gRPC and as JSON.
//!
//! Follow a call. [`Service`] looks whether it is gRPC. If so its messages are
//! taken out of their frames (`rpc`), the path names a method (`methods`), the
//! message becomes a command or a query (`request`), the node is asked (`kv`,
//! `range`, `lease`, `maintenance`, `watch`), and the answer is written by hand
//! from the bytes that are stored (`wire`, `header`, `response`). If not it is
//! a page for people and probes (`pages`, `metrics`) or JSON (`gateway`), which
//! takes the same way in wire form.

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

/// The version of etcd whose API this is. Clients compare its numbers.
pub const VERSION: &str = "3.6.5";
/// What members of one cluster agree on.
pub const CLUSTER_VERSION: &str = "3.6.0";

/// What the API of a member is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// The member's name.
    pub name: String,
    /// Where clients reach it.
    pub client_urls: Vec<String>,
    pub peer_urls: Vec<String>,
    /// How often idle watchers that asked for it are told how far they are.
    pub progress_interval: Duration,
    /// What ranges that are being answered may take together.
    pub response_bytes_max: usize,
    /// Numbers about the process, which `/metrics` ends with.
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

/// Ranges that are sorted by anything but their keys at the same time.
const SORTING_MAX: usize = 2;

impl Etcd {
    pub fn new(node: Arc<Node>, options: Options) -> Etcd {
        let budget = Budget::new(options.response_bytes_max);
        let sorting = Semaphore::new(SORTING_MAX);
        Etcd(Arc::new(Inner { node, options, counters: Counters::default(), budget, sorting }))
    }

    /// Answers gRPC and HTTP requests.
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

    /// Answers a method that takes one message.
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

    /// Answers a method that takes a stream of messages.
    fn stream(&self, method: Method, requests: Messages) -> Result<Answer, Status> {
        match method {
            Method::Watch => Ok(Answer::Many(watch::stream(self, requests))),
            Method::LeaseKeepAlive => Ok(Answer::Many(lease::keep_alives(self, requests))),
            _ => Err(Status::internal("the method takes one message")),
        }
    }
}

/// Reads a message; bytes that are none are their sender's mistake.
fn decode<M: Message + Default>(message: Bytes) -> Result<M, Error> {
    M::decode(message).map_err(|_| Error::Malformed("the message is none of this method"))
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        Status::new(tonic::Code::from_i32(error.code() as i32), error.to_string())
    }
}
