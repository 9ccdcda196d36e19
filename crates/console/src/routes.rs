//! The paths of the console, and what their handlers share.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get};
use serde_json::Value;
use stele_grpc::Services;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::answer::Failure;
use crate::calls::SlowCalls;
use crate::guard::{self, BODY_BYTES_MAX};
use crate::history::History;
use crate::host::Host;
use crate::{assets, calls, catalogues, events, metastore, names, overview, rows, tables};

/// How many requests may read much at the same time.
const HEAVY_MAX: usize = 4;
/// How long one of them waits for its turn.
const HEAVY_WAIT: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

/// Whether a console may change data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Write,
    Read,
}

/// The console of a server. Clones share everything.
#[derive(Clone)]
pub struct Console {
    pub(crate) host: Arc<dyn Host>,
    /// The services of the gRPC port.
    pub(crate) services: Services,
    /// The services of the metastore's port, if it is on.
    pub(crate) metastore: Option<Services>,
    pub(crate) mode: Mode,
    pub(crate) history: Arc<History>,
    pub(crate) slow_calls: Arc<SlowCalls>,
    /// The time of the newest sample.
    pub(crate) ticks: watch::Sender<u64>,
    pub(crate) streams: Arc<Semaphore>,
    heavy: Arc<Semaphore>,
    /// Streams end when the server drains.
    pub(crate) closing: CancellationToken,
    pub(crate) deadline: Duration,
}

impl Console {
    pub fn new(
        host: Arc<dyn Host>,
        services: Services,
        metastore: Option<Services>,
        mode: Mode,
        slow_calls: Arc<SlowCalls>,
        closing: CancellationToken,
    ) -> Console {
        Console {
            host,
            services,
            metastore,
            mode,
            history: Arc::default(),
            slow_calls,
            ticks: watch::Sender::new(0),
            streams: Arc::new(Semaphore::new(events::STREAMS_MAX)),
            heavy: Arc::new(Semaphore::new(HEAVY_MAX)),
            closing,
            deadline: DEADLINE,
        }
    }

    /// Takes a sample each second until the server drains.
    pub async fn observe(self) {
        let mut ticks = interval(SECOND);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.closing.run_until_cancelled(ticks.tick()).await.is_some() {
            let mut sample = self.host.sample();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            sample.at = now.as_secs();
            self.history.add(sample);
            self.ticks.send_replace(sample.at);
        }
    }

    /// Waits for the turn of a request that may read much.
    pub(crate) async fn heavy(&self) -> Result<SemaphorePermit<'_>, Failure> {
        match timeout(HEAVY_WAIT, self.heavy.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Failure::new(
                StatusCode::TOO_MANY_REQUESTS,
                "busy",
                "other pages are reading; try again",
            )),
        }
    }

    /// Records a change that was made here.
    pub(crate) fn audit(&self, what: &str, place: &str, key: &[u8]) {
        let key = key.escape_ascii().to_string();
        tracing::info!(target: "stele::audit", what, place, key, "changed in the console");
    }
}

/// Reads a body of JSON.
pub(crate) async fn body_json(body: Body) -> Result<Value, Failure> {
    let bytes = axum::body::to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
        let text =
            format!("the change is larger than {} MiB, or did not arrive", BODY_BYTES_MAX >> 20);
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid", text)
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Failure::invalid(format!("invalid JSON: {error}")))
}

/// Returns the paths below /console/v1.
fn calls() -> [(&'static str, MethodRouter<Console>); 15] {
    [
        ("/overview", get(overview::show)),
        ("/tables", get(tables::list)),
        ("/table", get(tables::describe)),
        ("/rows", get(rows::page)),
        ("/row", axum::routing::post(rows::change)),
        ("/value", get(rows::value)),
        ("/metastore", get(metastore::status)),
        ("/metastore/keys", get(metastore::keys)),
        ("/metastore/top", get(metastore::top)),
        ("/metastore/key", get(metastore::key).post(metastore::change)),
        ("/metastore/leases", get(metastore::leases)),
        ("/names", get(names::list)),
        ("/catalogues", get(catalogues::list)),
        ("/catalogue", get(catalogues::records)),
        ("/calls", get(calls::list)),
    ]
}

/// Returns the pages and the API of a console.
pub fn router(console: Console) -> Router {
    let api =
        calls().into_iter().fold(Router::new(), |api, (path, methods)| api.route(path, methods));
    let api = api
        .route("/events", get(events::stream))
        .fallback(async || Failure::not_found("no such page of the API"))
        .method_not_allowed_fallback(async || {
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method", "method not allowed")
        })
        .layer(from_fn_with_state(console.mode, guard::check))
        .with_state(console);
    assets::pages().nest("/console/v1", api)
}
