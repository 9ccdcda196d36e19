//! A coordinator that speaks the etcd v3 API: etcd itself, Stele's metastore on other
//! machines, or the one in this process.
//!
//! - `address`: `etcd://a,b,c/prefix`
//! - `endpoints`: the servers, of which one is in use until it fails
//! - `messages`: transactions and keys as the API has them
//! - `watch`: changes of a key, across lost connections
//!
//! A request is sent once. If its answer is lost, nobody knows whether it was applied, and
//! it ends as [`Unreachable`]; the next one goes to the next server. Only a request that
//! changes nothing is sent again.

mod address;
mod endpoints;
mod messages;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use stele_grpc::{Tls, Transport};
use stele_tables::coordinate::{
    Coordinator, Done, LeaseId, OnChange, Transacted, Transaction, Unreachable, Watch,
};
use tokio::runtime::Handle;
use tonic::{Code, Status};

pub use address::{CoordinatorAddress, InvalidAddress};

use crate::proto::etcd as proto;
use endpoints::Endpoints;
use messages::Namespace;

/// How long a request may take. Shorter than a lease, which must be kept alive by another
/// server if one does not answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum size of an answer: all rows of a table.
pub(crate) const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// A connection to a coordinator. Its requests run on the runtime on which it was created.
pub struct Etcd {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    endpoints: Endpoints,
    namespace: Namespace,
    runtime: Handle,
}

impl Etcd {
    /// Returns a connection to any of several servers, `host:port` or `https://host:port`.
    /// All keys are below `prefix`. Nothing is sent yet, and the servers may still be
    /// starting; fails if an address cannot be one.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio.
    pub fn connect(addresses: &[String], prefix: &str, tls: &Tls) -> Result<Etcd, InvalidAddress> {
        Ok(Etcd::of(Endpoints::connect(addresses, tls)?, prefix))
    }

    /// Returns a connection over a transport, which may lead to this process.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio.
    pub fn over(transport: Transport, prefix: &str) -> Etcd {
        Etcd::of(Endpoints::one(transport), prefix)
    }

    fn of(endpoints: Endpoints, prefix: &str) -> Etcd {
        let (namespace, runtime) = (Namespace::new(prefix), Handle::current());
        Etcd { shared: Arc::new(Shared { endpoints, namespace, runtime }) }
    }

    /// Returns the version of the server in use, as in 3.5.13.
    pub async fn version(&self) -> Result<String, Unreachable> {
        let status = self.shared.send(|transport| async move {
            let mut client = proto::maintenance_client::MaintenanceClient::new(transport);
            Ok(client.status(proto::StatusRequest {}).await?.into_inner())
        });
        status.await.map(|status| status.version).map_err(|status| unreachable(&status))
    }

    /// Runs a request and reports its outcome.
    fn spawn<T, F>(&self, done: Done<T>, request: impl FnOnce(Arc<Shared>) -> F)
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Unreachable>> + Send + 'static,
    {
        let request = request(self.shared.clone());
        self.shared.runtime.spawn(async move { done(request.await) });
    }
}

impl Shared {
    /// Sends a request to the server in use, and notes whether it answers.
    async fn send<T, F>(&self, request: impl FnOnce(Transport) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let (number, transport) = self.endpoints.current();
        let outcome = tokio::time::timeout(REQUEST_TIMEOUT, request(transport)).await;
        let outcome = outcome.unwrap_or_else(|_| {
            Err(Status::unavailable(format!("no answer within {REQUEST_TIMEOUT:?}")))
        });
        if let Err(status) = &outcome
            && is_of_server(status)
        {
            self.endpoints.failed(number);
        }
        outcome
    }

    async fn transact(&self, transaction: &Transaction) -> Result<Transacted, Unreachable> {
        let request = self.namespace.request(transaction);
        let attempts =
            if messages::changes_nothing(transaction) { self.endpoints.len() } else { 1 };
        let mut outcome = self.txn(request.clone()).await;
        for _ in 1..attempts {
            if !outcome.as_ref().is_err_and(is_of_server) {
                break;
            }
            outcome = self.txn(request.clone()).await;
        }
        match outcome {
            Ok(response) => Ok(self.namespace.transacted(response)),
            // One of the puts has a lease that has lapsed: nothing was applied.
            Err(status) if status.code() == Code::NotFound => self.refused(transaction).await,
            Err(status) => Err(unreachable(&status)),
        }
    }

    /// Takes the steps of a transaction that was refused.
    async fn refused(&self, transaction: &Transaction) -> Result<Transacted, Unreachable> {
        let otherwise =
            Transaction { then: transaction.otherwise.clone(), ..Transaction::default() };
        let response = self.txn(self.namespace.request(&otherwise)).await;
        let response = response.map_err(|status| unreachable(&status))?;
        Ok(Transacted { applied: false, ..self.namespace.transacted(response) })
    }

    async fn txn(&self, request: proto::TxnRequest) -> Result<proto::TxnResponse, Status> {
        self.send(|transport| async move {
            let client = proto::kv_client::KvClient::new(transport);
            let mut client = client.max_decoding_message_size(RESPONSE_BYTES_MAX);
            Ok(client.txn(request).await?.into_inner())
        })
        .await
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, Unreachable> {
        // Whole seconds; a lease must not end before its time.
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let ttl = i64::try_from(seconds.max(1)).unwrap_or(i64::MAX);
        let granted = self.send(|transport| async move {
            let request = proto::LeaseGrantRequest { ttl, id: 0 };
            Ok(lease_client(transport).lease_grant(request).await?.into_inner())
        });
        match granted.await {
            Ok(granted) if granted.error.is_empty() => Ok(LeaseId(granted.id)),
            Ok(granted) => Err(Unreachable(granted.error)),
            Err(status) => Err(unreachable(&status)),
        }
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<bool, Unreachable> {
        let answered = self.send(|transport| async move {
            let request = proto::LeaseKeepAliveRequest { id: lease.0 };
            let requests = tokio_stream::once(request);
            let mut answers =
                lease_client(transport).lease_keep_alive(requests).await?.into_inner();
            answers.message().await?.ok_or_else(|| Status::unavailable("no answer"))
        });
        match answered.await {
            Ok(answer) => Ok(answer.ttl > 0),
            Err(status) if status.code() == Code::NotFound => Ok(false),
            Err(status) => Err(unreachable(&status)),
        }
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Unreachable> {
        let revoked = self.send(|transport| async move {
            let request = proto::LeaseRevokeRequest { id: lease.0 };
            lease_client(transport).lease_revoke(request).await
        });
        match revoked.await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::NotFound => Ok(()),
            Err(status) => Err(unreachable(&status)),
        }
    }
}

fn lease_client(transport: Transport) -> proto::lease_client::LeaseClient<Transport> {
    proto::lease_client::LeaseClient::new(transport)
}

/// Whether another server may answer what this one did not.
fn is_of_server(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Unknown
            | Code::Internal
            | Code::Cancelled
    )
}

fn unreachable(status: &Status) -> Unreachable {
    if !is_of_server(status) {
        // Repeating it will not help: credentials, sizes, an old version.
        tracing::warn!(code = ?status.code(), error = status.message(), "the coordinator refuses a request");
    }
    Unreachable(format!("{}: {}", status.code(), status.message()))
}

impl Coordinator for Etcd {
    fn transact(&self, transaction: Transaction, done: Done<Transacted>) {
        self.spawn(done, |shared| async move { shared.transact(&transaction).await });
    }

    fn grant(&self, ttl: Duration, done: Done<LeaseId>) {
        self.spawn(done, |shared| async move { shared.grant(ttl).await });
    }

    fn keep_alive(&self, lease: LeaseId, done: Done<bool>) {
        self.spawn(done, |shared| async move { shared.keep_alive(lease).await });
    }

    fn revoke(&self, lease: LeaseId, done: Done<()>) {
        self.spawn(done, |shared| async move { shared.revoke(lease).await });
    }

    fn watch(&self, key: Vec<u8>, after: i64, each: OnChange) -> Box<dyn Watch> {
        let watching = watch::follow(self.shared.clone(), key, after, each);
        Box::new(watch::Following::new(self.shared.runtime.spawn(watching)))
    }
}
