//! The calls of the native API: reads, writes and transactions are here,
//! streams and sessions in the modules beside.

use std::sync::Arc;
use std::time::Duration;

use tonic::{Request, Response, Status};

use super::convert;
use super::proto::metastore_server::{Metastore, MetastoreServer};
use super::proto::*;
use super::streams::{Events, Rows};
use crate::Node;
use crate::auth::Access;
use crate::command::{Caller, Command, Delete, KeyRange, Order, Put, Reply};
use crate::error::{Error, Result};
use crate::node::{Attempt, NodeAs};
use crate::state::Floor;

/// The prefix of the paths of all calls.
pub const PATH: &str = "/stele.metastore.v1.Metastore/";

/// The maximum size of a client's message: the largest transaction and its
/// overhead.
const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// The approximate maximum size of a range in one response.
const RESPONSE_BYTES_MAX: usize = 3 << 20;

/// The API of one node.
#[derive(Clone)]
pub struct Native {
    pub(super) node: Arc<Node>,
    /// The caller of the current call, if it was identified.
    pub(super) caller: Option<Caller>,
}

/// The gRPC service.
pub type Service = MetastoreServer<Native>;

/// Returns whether calls of this path run until they are cancelled.
pub fn is_endless(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|method| matches!(method, "Watch" | "Acquire"))
}

/// Returns whether a learner answers calls of this path: those about itself.
pub fn is_for_learners(path: &str) -> bool {
    let method = path.strip_prefix(PATH);
    method.is_some_and(|method| matches!(method, "Status" | "ClusterStatus" | "GetHashes"))
}

type CallResult<T> = std::result::Result<Response<T>, Status>;

fn respond<T>(result: Result<T>) -> CallResult<T> {
    Ok(Response::new(result?))
}

impl Native {
    pub fn new(node: Arc<Node>) -> Native {
        Native { node, caller: None }
    }

    /// Returns the API for the caller of a request.
    fn of<T>(&self, request: &Request<T>) -> Native {
        Native { node: self.node.clone(), caller: request.extensions().get::<Caller>().cloned() }
    }

    /// Returns the node as the caller sees it.
    pub(super) fn member(&self) -> NodeAs<'_> {
        self.node.by(self.caller.as_ref())
    }

    pub fn service(self) -> Service {
        Service::new(self).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    async fn get(&self, request: GetRequest) -> Result<GetResponse> {
        self.node.barrier().await?;
        let query = convert::query(KeyRange::single(request.key), request.revision, false);
        self.member().permit(Access::Read(&query.range))?;
        let mut kv = None;
        let reader = self.node.reader(Floor::Retained);
        let read = reader.range(&query, &mut |view| kv = Some(convert::key_value(view)))?;
        Ok(GetResponse { kv, revision: read.revision })
    }

    async fn get_range(&self, request: GetRangeRequest) -> Result<GetRangeResponse> {
        self.node.barrier().await?;
        let range = convert::key_range(request.range)?;
        self.member().permit(Access::Read(&range))?;
        let revision = self.revision_for(request.revision);
        let mut query = convert::query(range, revision, request.keys_only);
        query.limit = request.limit;
        query.order = if request.descending { Order::Descend } else { Order::None };
        let mut scan = self.node.reader(Floor::Retained).open(&query)?;
        let mut kvs = Vec::new();
        let end = scan.next(RESPONSE_BYTES_MAX, &mut |view| {
            kvs.push(convert::key_value(view));
        })?;
        let (more, count) = match end {
            Some(end) => (end.more, end.count),
            None => (true, self.node.count(&query.range, revision)?),
        };
        Ok(GetRangeResponse { kvs, more, count, revision })
    }

    async fn put(&self, request: PutRequest) -> Result<PutResponse> {
        if request.key.is_empty() {
            return Err(Error::EmptyKey);
        }
        let put = Put { lease: Some(request.client_id), ..Put::new(request.key, request.value) };
        let answer = self.member().propose(Command::Put(put)).await?;
        Ok(PutResponse { revision: answer.revision })
    }

    async fn delete(&self, request: DeleteRequest) -> Result<DeleteResponse> {
        let range = convert::key_range(request.range)?;
        let answer = self.member().propose(Command::Delete(Delete::new(range))).await?;
        let Reply::Delete(deleted) = answer.reply else {
            return Err(unexpected_answer("a deletion"));
        };
        Ok(DeleteResponse { revision: answer.revision, deleted: deleted.deleted })
    }

    async fn snapshot(&self, request: SnapshotRequest) -> Result<SnapshotResponse> {
        use snapshot_request::At;
        self.node.barrier().await?;
        self.member().permit(Access::AnyUser)?;
        let (newest, waterline) = (self.node.revision(), self.node.waterline());
        let revision = match request.at {
            None => newest,
            Some(At::TimeMicros(time)) => self.node.revision_at(time)?,
            Some(At::Revision(revision)) if revision > newest => return Err(Error::FutureRevision),
            Some(At::Revision(revision)) if revision < waterline => {
                return Err(Error::TooOld { revision, waterline });
            }
            Some(At::Revision(revision)) => revision,
        };
        Ok(SnapshotResponse { revision, newest, waterline })
    }

    async fn execute(&self, request: ExecuteRequest) -> Result<ExecuteResponse> {
        let age = Duration::from_micros(u64::try_from(request.age_micros).unwrap_or(0));
        // Without an id, each attempt is a transaction of its own.
        let id = match request.attempt_id {
            0 => self.node.settings().world.random.next_u64(),
            id => id,
        };
        let attempt = Attempt { id, age };
        let answer = self.member().execute(convert::execute(request)?, attempt).await?;
        Ok(ExecuteResponse { revision: answer.revision })
    }

    async fn compact(&self, request: CompactRequest) -> Result<CompactResponse> {
        let answer = self.member().compact(request.revision, request.physical).await?;
        Ok(CompactResponse { revision: answer.revision })
    }

    fn status(&self) -> Result<StatusResponse> {
        self.member().permit(Access::AnyUser)?;
        let (status, usage) = (self.node.status(), self.node.usage());
        let history = self.node.history_reach()?;
        Ok(StatusResponse {
            cluster_id: status.cluster_id,
            member_id: status.member_id,
            leader_id: status.leader_id,
            term: status.term,
            last_index: status.last,
            applied_index: status.applied,
            revision: self.node.revision(),
            compacted: self.node.compacted(),
            waterline: self.node.waterline(),
            live_bytes: usage.live_bytes,
            stored_bytes: usage.stored_bytes,
            quota_bytes: usage.quota_bytes,
            alarms: self.alarms(),
            level: self.node.level(),
            level_spoken: self.node.level_spoken(),
            oldest_revision: history.oldest_revision,
            oldest_micros: history.oldest_micros.unwrap_or(0),
        })
    }

    /// Returns the requested revision, or the newest if none was requested.
    pub(super) fn revision_for(&self, requested: i64) -> i64 {
        if requested > 0 { requested } else { self.node.revision() }
    }
}

/// Returns the error for an answer that does not match the command.
pub(super) fn unexpected_answer(command: &str) -> Error {
    Error::Internal(format!("unexpected answer to {command}"))
}

#[tonic::async_trait]
impl Metastore for Native {
    async fn get(&self, request: Request<GetRequest>) -> CallResult<GetResponse> {
        respond(self.of(&request).get(request.into_inner()).await)
    }

    async fn get_range(&self, request: Request<GetRangeRequest>) -> CallResult<GetRangeResponse> {
        respond(self.of(&request).get_range(request.into_inner()).await)
    }

    type ReadStream = Rows;

    async fn read(&self, request: Request<ReadRequest>) -> CallResult<Rows> {
        respond(self.of(&request).read(request.into_inner()).await)
    }

    async fn put(&self, request: Request<PutRequest>) -> CallResult<PutResponse> {
        respond(self.of(&request).put(request.into_inner()).await)
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> CallResult<DeleteResponse> {
        respond(self.of(&request).delete(request.into_inner()).await)
    }

    async fn snapshot(&self, request: Request<SnapshotRequest>) -> CallResult<SnapshotResponse> {
        respond(self.of(&request).snapshot(request.into_inner()).await)
    }

    async fn execute(&self, request: Request<ExecuteRequest>) -> CallResult<ExecuteResponse> {
        respond(self.of(&request).execute(request.into_inner()).await)
    }

    type WatchStream = Events;

    async fn watch(&self, request: Request<WatchRequest>) -> CallResult<Events> {
        respond(self.of(&request).watch(request.into_inner()).await)
    }

    async fn new_client(
        &self,
        request: Request<NewClientRequest>,
    ) -> CallResult<NewClientResponse> {
        respond(self.of(&request).new_client(request.into_inner()).await)
    }

    async fn keep_alive(
        &self,
        request: Request<KeepAliveRequest>,
    ) -> CallResult<KeepAliveResponse> {
        respond(self.of(&request).keep_alive(request.into_inner()).await)
    }

    async fn close_client(
        &self,
        request: Request<CloseClientRequest>,
    ) -> CallResult<CloseClientResponse> {
        respond(self.of(&request).close_client(request.into_inner()).await)
    }

    async fn get_client(
        &self,
        request: Request<GetClientRequest>,
    ) -> CallResult<GetClientResponse> {
        respond(self.of(&request).get_client(request.into_inner()).await)
    }

    async fn list_clients(
        &self,
        request: Request<ListClientsRequest>,
    ) -> CallResult<ListClientsResponse> {
        respond(self.of(&request).list_clients().await)
    }

    async fn acquire(&self, request: Request<AcquireRequest>) -> CallResult<AcquireResponse> {
        respond(self.of(&request).acquire(request.into_inner()).await)
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> CallResult<ReleaseResponse> {
        respond(self.of(&request).release(request.into_inner()).await)
    }

    async fn get_lock(&self, request: Request<GetLockRequest>) -> CallResult<GetLockResponse> {
        respond(self.of(&request).get_lock(request.into_inner()).await)
    }

    async fn compact(&self, request: Request<CompactRequest>) -> CallResult<CompactResponse> {
        respond(self.of(&request).compact(request.into_inner()).await)
    }

    async fn status(&self, request: Request<StatusRequest>) -> CallResult<StatusResponse> {
        respond(self.of(&request).status())
    }

    async fn history(&self, request: Request<HistoryRequest>) -> CallResult<HistoryResponse> {
        respond(self.of(&request).history(request.into_inner()).await)
    }

    async fn top(&self, request: Request<TopRequest>) -> CallResult<TopResponse> {
        respond(self.of(&request).top(request.into_inner()).await)
    }

    async fn raise_level(
        &self,
        request: Request<RaiseLevelRequest>,
    ) -> CallResult<RaiseLevelResponse> {
        respond(self.of(&request).raise_level(request.into_inner()).await)
    }

    async fn set_quota(&self, request: Request<SetQuotaRequest>) -> CallResult<SetQuotaResponse> {
        respond(self.of(&request).set_quota(request.into_inner()).await)
    }

    async fn list_quotas(
        &self,
        request: Request<ListQuotasRequest>,
    ) -> CallResult<ListQuotasResponse> {
        respond(self.of(&request).list_quotas().await)
    }

    async fn create_backup(
        &self,
        request: Request<CreateBackupRequest>,
    ) -> CallResult<CreateBackupResponse> {
        respond(self.of(&request).create_backup(request.into_inner()).await)
    }

    async fn cluster_status(
        &self,
        request: Request<ClusterStatusRequest>,
    ) -> CallResult<ClusterStatusResponse> {
        respond(self.of(&request).cluster_status().await)
    }

    async fn move_leader(
        &self,
        request: Request<MoveLeaderRequest>,
    ) -> CallResult<MoveLeaderResponse> {
        respond(self.of(&request).move_leader(request.into_inner()).await)
    }

    async fn get_hashes(
        &self,
        request: Request<GetHashesRequest>,
    ) -> CallResult<GetHashesResponse> {
        respond(self.of(&request).get_hashes(&request.into_inner()))
    }
}
