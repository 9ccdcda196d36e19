//! The gRPC service.
//!
//! Operations that change rows run in their own tasks, so that a caller that
//! disconnects does not leave them half done.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::error::{Error, Result};
use crate::fsck;
use crate::identity::{PeerCertificate, Tokens, VerifiedCaller};
use crate::node::Flags;
use crate::proto;
use crate::proto::mounttable_server::{Mounttable as Service, MounttableServer};
use crate::tree::{Call, KnownNode, Mount, Mounttable};

/// The maximum number of replies buffered for a slow caller.
const ANSWERS_AHEAD: usize = 64;
/// The maximum deadline of a caller, and the deadline of streams.
const DEADLINE_MAX: Duration = Duration::from_secs(3600);
const DEADLINE_DEFAULT: Duration = Duration::from_secs(60);
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Checks of all rows need memory, so they run one at a time.
static CHECKING: Semaphore = Semaphore::const_new(1);

/// The naming service over gRPC. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    table: Arc<Mounttable>,
    tokens: Tokens,
}

impl Server {
    pub fn new(table: Arc<Mounttable>, tokens: Tokens) -> Server {
        Server { table, tokens }
    }

    /// Returns the service, to be added to a gRPC server.
    pub fn service(self) -> MounttableServer<Server> {
        MounttableServer::new(self).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Authenticates the caller and computes its deadline, after the tables are ready.
    async fn call<T: Sync>(&self, request: &Request<T>, longest: Duration) -> Result<Call> {
        let by_transport = || Some(PeerCertificate(request.peer_certs()?.first()?.clone()));
        let caller = match request.extensions().get::<VerifiedCaller>() {
            Some(VerifiedCaller(caller)) => caller.clone(),
            None => {
                let certificate =
                    request.extensions().get::<PeerCertificate>().cloned().or_else(by_transport);
                self.tokens.caller(request.metadata(), certificate.as_ref())?
            }
        };
        let requested = stele_grpc::timeout(request.metadata().as_ref());
        let time = requested.unwrap_or(longest).min(DEADLINE_MAX);
        let deadline = Instant::now() + time;
        self.table.ready().await?;
        Ok(Call { caller, deadline })
    }

    /// Runs an operation to its end, even if the caller disconnects.
    async fn detached<T, F>(&self, work: F) -> Result<Response<T>, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        match tokio::spawn(work).await {
            Ok(done) => Ok(Response::new(done?)),
            Err(_) => Err(Status::internal("the operation was aborted")),
        }
    }
}

type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Returns a stream of the items that `work` sends, followed by its error, if any.
fn replies<S, T, F>(work: impl FnOnce(mpsc::Sender<S>) -> F) -> Response<Replies<T>>
where
    S: Into<T> + Send + 'static,
    T: Send + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let (out, answers) = mpsc::channel(ANSWERS_AHEAD);
    let answers = Answers { answers, working: Some(tokio::spawn(work(out))) };
    Response::new(Box::pin(answers.map(|answer| answer.map(Into::into))))
}

struct Answers<S> {
    answers: mpsc::Receiver<S>,
    /// `None` after the result has been returned.
    working: Option<JoinHandle<Result<()>>>,
}

impl<S> Stream for Answers<S> {
    type Item = Result<S, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(answer) = ready!(self.answers.poll_recv(cx)) {
            return Poll::Ready(Some(Ok(answer)));
        }
        let Some(working) = &mut self.working else { return Poll::Ready(None) };
        let ended = ready!(Pin::new(working).poll(cx));
        self.working = None;
        Poll::Ready(match ended {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Err(error.into())),
            Err(_) => Some(Err(Status::internal("the operation was aborted"))),
        })
    }
}

#[tonic::async_trait]
impl Service for Server {
    async fn mount(
        &self,
        request: Request<proto::MountRequest>,
    ) -> Result<Response<proto::MountResponse>, Status> {
        let call = self.call(&request, DEADLINE_DEFAULT).await?;
        let request = request.into_inner();
        let has = |flag: proto::MountFlag| request.flags & flag as u32 != 0;
        let mount = Mount {
            server: request.server.clone(),
            ttl_seconds: request.ttl_seconds,
            flags: Flags { mt: has(proto::MountFlag::Mt), leaf: has(proto::MountFlag::Leaf) },
            replace: has(proto::MountFlag::Replace),
        };
        let table = self.table.clone();
        self.detached(async move {
            let deadline = table.mount(&call, &request.name, &mount).await?;
            Ok(proto::MountResponse { deadline: Some(proto::timestamp(deadline)) })
        })
        .await
    }

    async fn unmount(
        &self,
        request: Request<proto::UnmountRequest>,
    ) -> Result<Response<proto::UnmountResponse>, Status> {
        let call = self.call(&request, DEADLINE_DEFAULT).await?;
        let (table, request) = (self.table.clone(), request.into_inner());
        self.detached(async move {
            table.unmount(&call, &request.name, &request.server).await?;
            Ok(proto::UnmountResponse {})
        })
        .await
    }

    async fn resolve_step(
        &self,
        request: Request<proto::ResolveRequest>,
    ) -> Result<Response<proto::MountEntry>, Status> {
        let call = self.call(&request, DEADLINE_DEFAULT).await?;
        let entry = self.table.resolve_step(&call, &request.get_ref().name).await?;
        Ok(Response::new((&entry).into()))
    }

    async fn resolve(
        &self,
        request: Request<proto::ResolveRequest>,
    ) -> Result<Response<proto::ResolveResponse>, Status> {
        let call = self.call(&request, DEADLINE_DEFAULT).await?;
        let entry = self.table.resolve_step(&call, &request.get_ref().name).await?;
        let names = entry.names();
        Ok(Response::new(proto::ResolveResponse { entry: Some((&entry).into()), names }))
    }

    type GlobStream = Replies<proto::GlobReply>;

    async fn glob(
        &self,
        request: Request<proto::GlobRequest>,
    ) -> Result<Response<Self::GlobStream>, Status> {
        let call = self.call(&request, DEADLINE_MAX).await?;
        let (table, request) = (self.table.clone(), request.into_inner());
        Ok(replies(move |out| async move {
            table.glob(&call, &request.name, &request.pattern, &out).await
        }))
    }

    async fn delete(
        &self,
        request: Request<proto::DeleteRequest>,
    ) -> Result<Response<proto::DeleteResponse>, Status> {
        let call = self.call(&request, DEADLINE_DEFAULT).await?;
        let (table, request) = (self.table.clone(), request.into_inner());
        self.detached(async move {
            table.delete(&call, &request.name, request.delete_subtree).await?;
            Ok(proto::DeleteResponse {})
        })
        .await
    }

    async fn get_permissions(
        &self,
        request: Request<proto::GetPermissionsRequest>,
    ) -> Result<Response<proto::GetPermissionsResponse>, Status> {
        let call = self.call(&request, DEADLINE_DEFAULT).await?;
        let (permissions, version) = self.table.permissions(&call, &request.get_ref().name).await?;
        let permissions = Some(permissions.into());
        Ok(Response::new(proto::GetPermissionsResponse { permissions, version }))
    }

    async fn set_permissions(
        &self,
        request: Request<proto::SetPermissionsRequest>,
    ) -> Result<Response<proto::SetPermissionsResponse>, Status> {
        let call = self.call(&request, DEADLINE_DEFAULT).await?;
        let (table, request) = (self.table.clone(), request.into_inner());
        let Some(permissions) = request.permissions else {
            return Err(Error::BadPermissions("missing permissions".into()).into());
        };
        let permissions = permissions.into();
        self.detached(async move {
            let set = table.set_permissions(&call, &request.name, &permissions, &request.version);
            Ok(proto::SetPermissionsResponse { version: set.await? })
        })
        .await
    }

    type WatchStream = Replies<proto::WatchReply>;

    async fn watch(
        &self,
        request: Request<proto::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let call = self.call(&request, DEADLINE_MAX).await?;
        let (table, request) = (self.table.clone(), request.into_inner());
        let known = request.known.into_iter();
        let known =
            known.map(|proto::NodeVersion { name, id, version }| KnownNode { name, id, version });
        let known: Vec<_> = known.collect();
        Ok(replies(move |out| async move { table.watch(&call, &request.name, known, &out).await }))
    }

    type FsckStream = Replies<proto::FsckReply>;

    async fn fsck(
        &self,
        request: Request<proto::FsckRequest>,
    ) -> Result<Response<Self::FsckStream>, Status> {
        let call = self.call(&request, DEADLINE_MAX).await?;
        let (table, fix) = (self.table.clone(), request.get_ref().fix);
        Ok(replies(move |out| async move {
            table.authorize_at_root(&call).await?;
            let (rows, checked_max) = (table.rows(), fsck::CHECKED_MAX_SERVED);
            let check = async {
                let _only = CHECKING.acquire().await;
                fsck::check_within(rows, checked_max).await
            };
            let (repaired, report) = match fix {
                true => {
                    let _only = CHECKING.acquire().await;
                    fsck::repair_within(rows, checked_max).await?
                }
                // It changes nothing, so it ends when its caller goes away.
                false => tokio::select! {
                    () = out.closed() => return Ok(()),
                    report = check => (Vec::new(), report?),
                },
            };
            for reply in proto::fsck_replies(&repaired, &report) {
                if out.send(reply).await.is_err() {
                    break;
                }
            }
            Ok(())
        }))
    }
}

#[cfg(test)]
mod tests {
    use stele_bigtable::Api;
    use stele_bigtable_client::{Client, Options};
    use stele_engine::world::World;
    use stele_tables::Tables;

    use super::*;

    #[tokio::test]
    async fn checks_run_one_at_a_time_and_end_with_their_callers() {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(dir.path(), Default::default(), World::real()).unwrap();
        let services = Api::new(tables).unwrap().services();
        let client = Client::in_process(services, Options::new("in process", "names", "tests"));
        let table = Mounttable::new(&client, Default::default()).unwrap();
        let server = Server::new(table.clone(), Tokens::default());
        let check = async || {
            let request = Request::new(proto::FsckRequest { fix: false });
            server.fsck(request).await.unwrap().into_inner()
        };
        let running = CHECKING.acquire().await.unwrap();
        let waiting = check().await;
        assert_eq!(Arc::strong_count(&table), 3, "one is of the task");
        drop(waiting);
        let ended = async {
            while Arc::strong_count(&table) > 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
        drop(running);
        assert!(check().await.next().await.unwrap().is_ok());
    }
}
