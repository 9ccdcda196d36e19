//! The API of one node: executes the method of a call.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::Semaphore;
use tonic::Status;

use super::callers::Credential;
use super::header::Header;
use super::methods::Method;
use super::metrics::Counters;
use super::range::Budget;
use super::request::TXN_OPS_MAX;
use super::rpc::{FramedResponse, MESSAGE_OVERHEAD, MessageStream, REQUEST_BYTES_MAX};
use super::service::Service;
use super::{auth, kv, lease, maintenance, members, range, recipes, snapshot, watch};
use crate::auth::{Login, ROUNDS, TokenKind};
use crate::command::Caller;
use crate::node::NodeAs;
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
    /// The maximum size of a request that is proposed.
    pub request_bytes_max: usize,
    /// The maximum number of operations in a transaction.
    pub txn_ops_max: usize,
    /// The kind of tokens that callers get for their passwords.
    pub tokens: TokenKind,
    /// Whether the name in a client's certificate is that of a user. Only for
    /// gRPC, as in etcd: whoever is in front of the JSON gateway would be the
    /// client.
    pub certificate_users: bool,
    /// The rounds with which new passwords are hashed.
    pub password_rounds: NonZeroU32,
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
            request_bytes_max: REQUEST_BYTES_MAX,
            txn_ops_max: TXN_OPS_MAX,
            tokens: TokenKind::default(),
            certificate_users: false,
            password_rounds: ROUNDS,
            process_numbers: String::new,
        }
    }
}

impl Options {
    /// Returns the maximum size of a client's message: the largest request, plus
    /// the overhead that etcd allows.
    pub fn message_bytes_max(&self) -> usize {
        self.request_bytes_max.saturating_add(MESSAGE_OVERHEAD)
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
    login: Login,
}

/// The maximum number of concurrent ranges that are not sorted by key.
const SORTING_MAX: usize = 2;

impl Etcd {
    pub fn new(node: Arc<Node>, options: Options) -> Etcd {
        let budget = Budget::new(options.response_bytes_max);
        let sorting = Semaphore::new(SORTING_MAX);
        let clock = node.settings().world.clock.clone();
        let login = Login::new(options.tokens.clone(), options.password_rounds, clock);
        let counters = Counters::default();
        Etcd(Arc::new(Inner { node, options, counters, budget, sorting, login }))
    }

    /// Returns the service for gRPC and HTTP requests.
    pub fn service(&self) -> Service {
        Service::new(self.clone())
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.0.node
    }

    /// Returns the node as a caller sees it.
    pub(super) fn by<'n>(&'n self, caller: Option<&'n Caller>) -> NodeAs<'n> {
        self.0.node.by(caller)
    }

    pub(super) fn login(&self) -> &Login {
        &self.0.login
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
        credential: &Credential,
        message: Bytes,
    ) -> Result<FramedResponse, Status> {
        if !method.is_for_learners() && self.node().is_learner() {
            return Err(Error::NotForLearner.into());
        }
        let caller = if method.is_public() { None } else { self.identify(credential).await? };
        let caller = caller.as_ref();
        let one = |response: crate::Result<Bytes>| Ok(FramedResponse::One(response?));
        let recipe = |response| Ok(FramedResponse::One(recipes::answered(response)?));
        match method {
            Method::Range => Ok(range::range(self, caller, decode(message)?).await?),
            Method::RangeStream => Ok(range::stream(self, caller, decode(message)?).await?),
            Method::Put => one(kv::put(self, caller, message).await),
            Method::DeleteRange => one(kv::delete_range(self, caller, message).await),
            Method::Txn => one(kv::txn(self, caller, message).await),
            Method::Compact => one(kv::compact(self, caller, decode(message)?).await),
            Method::LeaseGrant => one(lease::grant(self, caller, decode(message)?).await),
            Method::LeaseRevoke => one(lease::revoke(self, caller, decode(message)?).await),
            Method::LeaseTimeToLive => {
                one(lease::time_to_live(self, caller, decode(message)?).await)
            }
            Method::LeaseLeases => one(lease::leases(self, caller)),
            Method::MemberList
            | Method::MemberAdd
            | Method::MemberRemove
            | Method::MemberUpdate
            | Method::MemberPromote => one(members::call(self, caller, method, message).await),
            Method::Alarm
            | Method::Status
            | Method::Defragment
            | Method::Hash
            | Method::HashKv
            | Method::MoveLeader
            | Method::Downgrade => one(self.maintain(method, caller, message).await),
            Method::Snapshot => Ok(snapshot::stream(self, caller).await?),
            Method::AuthStatus => one(auth::status(self).await),
            Method::Authenticate => one(auth::authenticate(self, decode(message)?).await),
            Method::UserGet => one(auth::user_get(self, caller, decode(message)?).await),
            Method::UserList => one(auth::user_list(self, caller).await),
            Method::RoleGet => one(auth::role_get(self, caller, decode(message)?).await),
            Method::RoleList => one(auth::role_list(self, caller).await),
            Method::AuthEnable
            | Method::AuthDisable
            | Method::UserAdd
            | Method::UserDelete
            | Method::UserChangePassword
            | Method::UserGrantRole
            | Method::UserRevokeRole
            | Method::RoleAdd
            | Method::RoleDelete
            | Method::RoleGrantPermission
            | Method::RoleRevokePermission => {
                one(auth::change(self, caller, method, message).await)
            }
            Method::Lock => recipe(recipes::lock(self, caller, decode(message)?).await),
            Method::Unlock => recipe(recipes::unlock(self, caller, decode(message)?).await),
            Method::Campaign => recipe(recipes::campaign(self, caller, decode(message)?).await),
            Method::Proclaim => recipe(recipes::proclaim(self, caller, decode(message)?).await),
            Method::Leader => recipe(recipes::leader(self, caller, decode(message)?).await),
            Method::Observe => Ok(recipes::observe(self, caller.cloned(), decode(message)?)),
            Method::Resign => recipe(recipes::resign(self, caller, decode(message)?).await),
            Method::Watch | Method::LeaseKeepAlive => {
                Err(Status::internal("the method expects a stream of messages"))
            }
        }
    }

    async fn maintain(
        &self,
        method: Method,
        caller: Option<&Caller>,
        message: Bytes,
    ) -> crate::Result<Bytes> {
        match method {
            Method::Alarm => maintenance::alarm(self, caller, decode(message)?).await,
            Method::Status => maintenance::status(self, caller),
            Method::Defragment => maintenance::defragment(self, caller),
            Method::Hash => maintenance::hash(self, caller).await,
            Method::HashKv => maintenance::hash_kv(self, caller, decode(message)?).await,
            Method::MoveLeader => maintenance::move_leader(self, caller, decode(message)?).await,
            Method::Downgrade => maintenance::downgrade(self, caller, decode(message)?),
            _ => Err(Error::Internal("the method is not one of maintenance".into())),
        }
    }

    /// Executes a method that takes a stream of messages.
    pub(super) fn stream(
        &self,
        method: Method,
        credential: Credential,
        requests: MessageStream,
    ) -> Result<FramedResponse, Status> {
        if self.node().is_learner() {
            return Err(Error::NotForLearner.into());
        }
        match method {
            Method::Watch => Ok(FramedResponse::Many(watch::stream(self, credential, requests))),
            Method::LeaseKeepAlive => {
                Ok(FramedResponse::Many(lease::keep_alives(self, credential, requests)))
            }
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
