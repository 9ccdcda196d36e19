//! The calls of the native API: reads, writes and transactions are here,
//! streams and sessions in the modules beside.

use std::time::Duration;

use tonic::{Request, Response, Status};

use super::proto::metastore_server::Metastore;
use super::proto::*;
use super::streams::{Events, Rows};
use super::{Native, convert};
use crate::command::{Alarm, Command, Delete, KeyRange, Order, Put, Reply};
use crate::error::{Error, Result};
use crate::node::Attempt;
use crate::state::Floor;

/// The approximate maximum size of a range in one response.
const ANSWER_BYTES: usize = 3 << 20;

type Answered<T> = std::result::Result<Response<T>, Status>;

fn answered<T>(answer: Result<T>) -> Answered<T> {
    Ok(Response::new(answer?))
}

impl Native {
    async fn get(&self, request: GetRequest) -> Result<GetResponse> {
        self.node.barrier().await?;
        let query = convert::query(KeyRange::single(request.key), request.revision, false);
        let mut kv = None;
        let reader = self.node.reader(Floor::Retained);
        let read = reader.range(&query, &mut |view| kv = Some(convert::key_value(view)))?;
        Ok(GetResponse { kv, revision: read.revision })
    }

    async fn get_range(&self, request: GetRangeRequest) -> Result<GetRangeResponse> {
        self.node.barrier().await?;
        let range = convert::key_range(request.range)?;
        let revision = self.revision_for(request.revision);
        let mut query = convert::query(range, revision, request.keys_only);
        query.limit = request.limit;
        query.order = if request.descending { Order::Descend } else { Order::None };
        let mut scan = self.node.reader(Floor::Retained).open(&query)?;
        let mut kvs = Vec::new();
        let end = scan.next(ANSWER_BYTES, &mut |view| {
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
        let answer = self.node.propose(Command::Put(put)).await?;
        Ok(PutResponse { revision: answer.revision })
    }

    async fn delete(&self, request: DeleteRequest) -> Result<DeleteResponse> {
        let range = convert::key_range(request.range)?;
        let answer = self.node.propose(Command::Delete(Delete::new(range))).await?;
        let Reply::Delete(deleted) = answer.reply else { return Err(unlike("a deletion")) };
        Ok(DeleteResponse { revision: answer.revision, deleted: deleted.deleted })
    }

    async fn snapshot(&self, request: SnapshotRequest) -> Result<SnapshotResponse> {
        use snapshot_request::At;
        self.node.barrier().await?;
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
        let answer = self.node.execute(convert::execute(request)?, attempt).await?;
        Ok(ExecuteResponse { revision: answer.revision })
    }

    async fn compact(&self, request: CompactRequest) -> Result<CompactResponse> {
        let answer = self.node.compact(request.revision, request.physical).await?;
        Ok(CompactResponse { revision: answer.revision })
    }

    fn status(&self) -> StatusResponse {
        let (status, usage) = (self.node.status(), self.node.usage());
        let alarm = |(member, alarm): (u64, Alarm)| match alarm {
            Alarm::NoSpace => format!("NOSPACE on member {member:x}"),
            Alarm::Corrupt => format!("CORRUPT on member {member:x}"),
        };
        StatusResponse {
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
            alarms: self.node.alarms().into_iter().map(alarm).collect(),
        }
    }

    /// Returns the requested revision, or the newest if none was requested.
    pub(super) fn revision_for(&self, asked: i64) -> i64 {
        if asked > 0 { asked } else { self.node.revision() }
    }
}

/// Returns the error for an answer that does not match the command.
pub(super) fn unlike(what: &str) -> Error {
    Error::Internal(format!("the answer is not that to {what}"))
}

#[tonic::async_trait]
impl Metastore for Native {
    async fn get(&self, request: Request<GetRequest>) -> Answered<GetResponse> {
        answered(self.get(request.into_inner()).await)
    }

    async fn get_range(&self, request: Request<GetRangeRequest>) -> Answered<GetRangeResponse> {
        answered(self.get_range(request.into_inner()).await)
    }

    type ReadStream = Rows;

    async fn read(&self, request: Request<ReadRequest>) -> Answered<Rows> {
        answered(self.read(request.into_inner()).await)
    }

    async fn put(&self, request: Request<PutRequest>) -> Answered<PutResponse> {
        answered(self.put(request.into_inner()).await)
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> Answered<DeleteResponse> {
        answered(self.delete(request.into_inner()).await)
    }

    async fn snapshot(&self, request: Request<SnapshotRequest>) -> Answered<SnapshotResponse> {
        answered(self.snapshot(request.into_inner()).await)
    }

    async fn execute(&self, request: Request<ExecuteRequest>) -> Answered<ExecuteResponse> {
        answered(self.execute(request.into_inner()).await)
    }

    type WatchStream = Events;

    async fn watch(&self, request: Request<WatchRequest>) -> Answered<Events> {
        answered(self.watch(request.into_inner()).await)
    }

    async fn new_client(&self, request: Request<NewClientRequest>) -> Answered<NewClientResponse> {
        answered(self.new_client(request.into_inner()).await)
    }

    async fn keep_alive(&self, request: Request<KeepAliveRequest>) -> Answered<KeepAliveResponse> {
        answered(self.keep_alive(request.into_inner()).await)
    }

    async fn close_client(
        &self,
        request: Request<CloseClientRequest>,
    ) -> Answered<CloseClientResponse> {
        answered(self.close_client(request.into_inner()).await)
    }

    async fn get_client(&self, request: Request<GetClientRequest>) -> Answered<GetClientResponse> {
        answered(self.get_client(request.into_inner()).await)
    }

    async fn list_clients(
        &self,
        _request: Request<ListClientsRequest>,
    ) -> Answered<ListClientsResponse> {
        answered(self.list_clients().await)
    }

    async fn acquire(&self, request: Request<AcquireRequest>) -> Answered<AcquireResponse> {
        answered(self.acquire(request.into_inner()).await)
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Answered<ReleaseResponse> {
        answered(self.release(request.into_inner()).await)
    }

    async fn get_lock(&self, request: Request<GetLockRequest>) -> Answered<GetLockResponse> {
        answered(self.get_lock(request.into_inner()).await)
    }

    async fn compact(&self, request: Request<CompactRequest>) -> Answered<CompactResponse> {
        answered(self.compact(request.into_inner()).await)
    }

    async fn status(&self, _request: Request<StatusRequest>) -> Answered<StatusResponse> {
        Ok(Response::new(self.status()))
    }
}
