//! The metastore on its own port: gRPC and plain HTTP side by side, as etcd's clients
//! expect.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::future::RouteFuture;
use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use pin_project_lite::pin_project;
use stele_engine::world::{BootClock, World};
use stele_grpc::{Services, is_grpc};
use stele_metastore::Node;
use stele_metastore::auth::TokenKind;
use stele_metastore::backup::Schedule;
use stele_metastore::etcd::{self, Etcd};
use stele_metastore::node::{self, BackupSettings, Retention};
use tokio::time::{Instant, timeout};

use super::banner::reachable;
use super::call::{Call, Calls, ResponseBody};
use super::connections::Pages;
use super::data_dir::DataDir;
use super::disk::ServerDisk;
use super::health::Reporter;
use super::metrics;
use super::peers::Peers;
use super::settings::{ClusterId, EffectiveSettings, PartialSettings, Port, Size};
use super::shares::Shares;
use crate::metastore::buckets::open_location;

/// The metastore's directory within the server's data directory.
pub const DIR: &str = "metastore";
/// The services whose health is reported.
const SERVICES: [&str; 9] = [
    "etcdserverpb.KV",
    "etcdserverpb.Watch",
    "etcdserverpb.Lease",
    "etcdserverpb.Cluster",
    "etcdserverpb.Maintenance",
    "etcdserverpb.Auth",
    "v3lockpb.Lock",
    "v3electionpb.Election",
    "stele.metastore.v1.Metastore",
];
/// How long shutdown waits for calls to release the node, and how often it checks.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long shutdown waits for a purge in progress.
const PURGE_WAIT: Duration = Duration::from_secs(10);
const BACKUP_EVERY: Duration = Duration::from_secs(3600);
const BACKUPS_KEPT: usize = 7;
const SLOW_REQUEST: Duration = Duration::from_millis(100);

/// The settings of the metastore.
#[derive(Clone, Debug)]
pub struct MetastoreSettings {
    cluster: Option<ClusterId>,
    /// 0 means no limit.
    quota: Size,
    retention: Retention,
    backup: Option<BackupSettings>,
    slow_request: Duration,
    /// As given; `None` means the default.
    progress_interval: Option<Duration>,
    request_max: Option<Size>,
    txn_ops_max: Option<u32>,
    auth_token: Option<String>,
    /// Takes the name in a client's certificate for its user.
    cert_users: bool,
    pub metrics_port: Port,
    /// Accepts plain text beside TLS.
    pub plain_text: bool,
    /// The URL for clients, instead of the address that the port listens on.
    url: Option<String>,
    peers: Option<Peers>,
}

/// The bounds of `--metastore-max-request`: a proposal must fit into a log entry.
const REQUEST_MIN: Size = Size(64 << 10);
const REQUEST_MAX: Size = Size(16 << 20);
/// The minimum of `--metastore-progress`, as in etcd.
const PROGRESS_MIN: Duration = Duration::from_millis(100);
/// The pages that the metrics port serves.
const PROBES: [&str; 5] = ["/metrics", "/health", "/livez", "/readyz", "/version"];

impl MetastoreSettings {
    pub fn new(given: &PartialSettings) -> anyhow::Result<MetastoreSettings> {
        let mut retention = Retention::default();
        if let Some(time) = given.metastore_retention {
            retention = retention.of_age(time.0);
        }
        if let Some(size) = given.metastore_history {
            retention.bytes_max = i64::try_from(size.0).unwrap_or(i64::MAX);
        }
        if given.metastore_cert_users == Some(true) && given.tls_client_ca.is_none() {
            anyhow::bail!(
                "--metastore-cert-users needs --tls-client-ca: only verified certificates name users"
            );
        }
        Ok(MetastoreSettings {
            cluster: given.metastore_cluster,
            quota: given.metastore_quota.unwrap_or(Size(0)),
            retention,
            backup: given.metastore_backup.clone().map(|location| {
                let every = given.metastore_backup_every.map_or(BACKUP_EVERY, |time| time.0);
                BackupSettings {
                    location,
                    every: (!every.is_zero()).then_some(every),
                    keep: given.metastore_backup_keep.unwrap_or(BACKUPS_KEPT),
                }
            }),
            slow_request: given.metastore_slow_request.map_or(SLOW_REQUEST, |time| time.0),
            progress_interval: given.metastore_progress.map(|time| time.0),
            request_max: given.metastore_max_request,
            txn_ops_max: given.metastore_max_txn_ops,
            auth_token: given.auth_token.clone(),
            cert_users: given.metastore_cert_users.unwrap_or(false),
            metrics_port: given.metastore_metrics_port.unwrap_or(Port::Off),
            plain_text: given.metastore_plain_text.unwrap_or(false),
            url: given.metastore_url.clone(),
            peers: Peers::new(given)?,
        })
    }

    /// Fills in the options of etcd's API. Refuses values that cannot work.
    fn options(&self, mut options: etcd::Options) -> anyhow::Result<etcd::Options> {
        if let Some(interval) = self.progress_interval {
            if interval < PROGRESS_MIN {
                anyhow::bail!("--metastore-progress {interval:?} is too short: use 100ms or more");
            }
            options.progress_interval = interval;
        }
        if let Some(size) = self.request_max {
            if !(REQUEST_MIN.0..=REQUEST_MAX.0).contains(&size.0) {
                anyhow::bail!("--metastore-max-request {size} is out of range: use 64KiB to 16MiB");
            }
            options.request_bytes_max = usize::try_from(size.0)?;
        }
        if let Some(ops) = self.txn_ops_max {
            if ops == 0 {
                anyhow::bail!("--metastore-max-txn-ops must be at least 1");
            }
            options.txn_ops_max = ops as usize;
        }
        if let Some(kind) = &self.auth_token {
            options.tokens = TokenKind::parse(kind).context("--auth-token")?;
        }
        Ok(options)
    }
}

/// An open member and the services that reach it.
pub struct Metastore {
    node: Arc<Node>,
    etcd: Etcd,
    backups: Option<Schedule>,
}

impl Metastore {
    pub async fn open(
        data_dir: &DataDir,
        settings: &EffectiveSettings,
        address: SocketAddr,
    ) -> anyhow::Result<Metastore> {
        let dir = data_dir.path.join(DIR);
        let world =
            World { files: Arc::new(ServerDisk), clock: Arc::new(BootClock), ..World::real() };
        let mut node_settings = node::NodeSettings::new(dir.clone(), world);
        node_settings.sync = !data_dir.is_temporary();
        let MetastoreSettings { cluster, quota, retention, backup, slow_request, .. } =
            settings.metastore.clone();
        let (url, peers) = (settings.metastore.url.clone(), settings.metastore.peers.clone());
        node_settings.backup = backup;
        node_settings.open_location = open_location;
        node_settings.slow_request = slow_request;
        node_settings.cluster_id = cluster.map(|id| id.0);
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        let client_urls = vec![url.unwrap_or(format!("{scheme}://{}", reachable(address)))];
        if let Some(peers) = &peers {
            peers.join(&mut node_settings, client_urls.clone()).await?;
        }
        node_settings.quota_bytes = i64::try_from(quota.0).unwrap_or(i64::MAX);
        node_settings.retention = retention;
        let shares = Shares::of(settings);
        let memory = &mut node_settings.machine.engine.memory;
        memory.cache_bytes = shares.metastore_cache;
        memory.budget_bytes = usize::try_from(shares.metastore_cells).unwrap_or(usize::MAX);
        let changes = usize::try_from(shares.metastore_changes).unwrap_or(usize::MAX);
        let ring = &mut node_settings.machine.ring_bytes_max;
        *ring = changes.min(*ring);
        let node = Node::open(node_settings)
            .await
            .with_context(|| format!("opening the metastore in {}", dir.display()))?;
        let node = Arc::new(node);
        let options = etcd::Options {
            client_urls,
            name: peers.as_ref().map_or("default", Peers::name).to_string(),
            peer_urls: peers.iter().map(Peers::url).collect(),
            response_bytes_max: usize::try_from(shares.metastore_ranges).unwrap_or(usize::MAX),
            process_numbers: metrics::process_numbers,
            certificate_users: settings.metastore.cert_users,
            ..etcd::Options::default()
        };
        let options = settings.metastore.options(options)?;
        let backups = Schedule::start(&node).context("--metastore-backup")?;
        Ok(Metastore { etcd: Etcd::new(node.clone(), options), node, backups })
    }

    /// Returns all gRPC services and their health reporter.
    pub async fn services(&self) -> (Services, Reporter) {
        let (health, service) = tonic_health::server::health_reporter();
        let health = Reporter::new(health, SERVICES).await;
        (Services::default().with(service).with_fallback(self.etcd.service()), health)
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Returns the pages of the metrics port.
    pub fn probes(&self) -> Router {
        let probe = |router: Router, path| router.route_service(path, self.etcd.service());
        PROBES.into_iter().fold(Router::new(), probe)
    }

    /// Returns the routes that are not gRPC.
    pub fn pages(&self) -> Router {
        let pages = Router::new().fallback_service(self.etcd.service());
        pages.layer(middleware::from_fn(reject_grpc))
    }

    /// Flushes everything to disk. Everything acknowledged is durable already.
    pub async fn close(self) -> anyhow::Result<()> {
        let Metastore { mut node, etcd, backups } = self;
        drop((etcd, backups));
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        loop {
            match Arc::try_unwrap(node) {
                Ok(last) => return close(last).await,
                // An unfinished call still holds the node. That is safe: the log is
                // durable.
                Err(_) if Instant::now() >= deadline => {
                    tracing::warn!(
                        "metastore not closed: a call still uses it; the next start replays its \
                         log"
                    );
                    return Ok(());
                }
                Err(shared) => node = shared,
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Closes the node. Everything is flushed before it waits for a purge whose caller has
/// gone.
async fn close(node: Node) -> anyhow::Result<()> {
    match timeout(PURGE_WAIT, node.close()).await {
        Ok(closed) => closed.context("closing the metastore"),
        Err(_) => {
            tracing::warn!("interrupted a purge of the metastore; compact again to free its space");
            Ok(())
        }
    }
}

/// Rejects gRPC calls over HTTP/1.
async fn reject_grpc(request: Request, next: Next) -> Response {
    if is_grpc(request.headers()) {
        return (StatusCode::HTTP_VERSION_NOT_SUPPORTED, "gRPC calls need HTTP/2\n")
            .into_response();
    }
    next.run(request).await
}

/// Routes gRPC calls to one side and everything else to the other.
#[derive(Clone)]
pub struct Both {
    pub calls: Calls,
    pub pages: Pages,
}

impl Service<http::Request<Incoming>> for Both {
    type Response = http::Response<EitherBody>;
    type Error = Infallible;
    type Future = EitherFuture;

    fn call(&self, request: http::Request<Incoming>) -> EitherFuture {
        if is_grpc(request.headers()) && request.version() == http::Version::HTTP_2 {
            return EitherFuture::Call { call: self.calls.call(request) };
        }
        EitherFuture::Page { page: self.pages.call(request) }
    }
}

pin_project! {
    /// The pending response of either side.
    #[project = ProjectedFuture]
    pub enum EitherFuture {
        Call { #[pin] call: Call },
        Page { #[pin] page: RouteFuture<Infallible> },
    }
}

impl Future for EitherFuture {
    type Output = Result<http::Response<EitherBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            ProjectedFuture::Call { call } => {
                call.poll(context).map_ok(|answer| answer.map(|body| EitherBody::Call { body }))
            }
            ProjectedFuture::Page { page } => {
                page.poll(context).map_ok(|answer| answer.map(|body| EitherBody::Page { body }))
            }
        }
    }
}

pin_project! {
    /// The response body of either side.
    #[project = ProjectedBody]
    pub enum EitherBody {
        Call { #[pin] body: ResponseBody },
        Page { #[pin] body: axum::body::Body },
    }
}

impl Body for EitherBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.project() {
            ProjectedBody::Call { body } => {
                body.poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            ProjectedBody::Page { body } => {
                body.poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            EitherBody::Call { body } => body.is_end_stream(),
            EitherBody::Page { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            EitherBody::Call { body } => body.size_hint(),
            EitherBody::Page { body } => body.size_hint(),
        }
    }
}
