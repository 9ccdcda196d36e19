//! `stele serve`: one process that serves a store.
//!
//! Follow a start: flags, environment and file become `settings`; the ports
//! are taken (`listen`), the store is opened on a disk that tells the runtime
//! when it is slow (`disk`), memory is shared out (`memory`), and when
//! connections are accepted (`connections`) the `banner` says so. Follow a
//! call: its bytes are let in as there is room for them (`request`, `intake`),
//! it is counted and bounded (`call`, `limits`, `metrics`), and answered by
//! one of the `services`. At the end (`shutdown`) the `phases` follow each
//! other and the store is closed.

mod banner;
mod call;
mod connections;
mod disk;
pub mod emulator;
mod framing;
mod http;
mod intake;
mod limits;
mod listen;
mod logs;
mod memory;
mod metrics;
mod phases;
mod request;
mod services;
mod settings;
mod shutdown;
mod status;
mod tls;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use stele_bigtable::Api;
use stele_engine::Store;
use stele_engine::world::World;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tonic_health::server::HealthReporter;

use self::banner::Reader;
use self::call::Calls;
use self::connections::{Acceptor, Protocol};
use self::disk::ServerDisk;
use self::http::Shown;
use self::intake::Intake;
use self::metrics::Metrics;
use self::phases::Phases;
pub use self::settings::Flags;
use self::settings::{Data, Settings};
use self::shutdown::Signals;
use self::status::Place;
use crate::Outcome;

pub fn run(flags: Flags) -> anyhow::Result<Outcome> {
    start(Settings::resolve(flags)?, Reader::Everybody)
}

fn start(settings: Settings, reader: Reader) -> anyhow::Result<Outcome> {
    logs::start(settings.log.as_deref(), settings.log_format)?;
    tls::install_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("stele-serve")
        .build()
        .context("starting threads")?;
    runtime.block_on(serve(settings, reader))?;
    Ok(Outcome::Sound)
}

/// A server that takes requests.
struct Server {
    store: Arc<Store>,
    health: HealthReporter,
    metrics: &'static Metrics,
    phases: &'static Phases,
    tasks: TaskTracker,
}

async fn serve(settings: Settings, reader: Reader) -> anyhow::Result<()> {
    // First of all, so that no signal finds the process half prepared.
    let signals = Signals::listen().context("listening for signals")?;
    let permits = Arc::new(Semaphore::new(listen::connections_max()));
    let grpc = listen::bind(&settings.listen, settings.grpc_port, "--grpc-port").await?;
    let http = listen::bind(&settings.listen, settings.http_port, "--http-port").await?;
    if grpc.is_none() && http.is_none() {
        bail!("--grpc-port and --http-port are both off: nothing would listen");
    }
    let home = Home::prepare(&settings.data)?;
    let store = Arc::new(open_store(&settings, &home)?);
    let api = Api::new(store.clone())?;
    let (routes, health) = services::router(&api).await?;

    // As long-lived as the process: every task may use them without counting.
    let intake = Intake::new(settings.request_memory, settings.request_wait);
    let metrics: &'static Metrics = Box::leak(Box::new(Metrics::new(intake)));
    let phases: &'static Phases = Box::leak(Box::default());
    let place = Arc::new(Place {
        grpc: local_address(grpc.as_ref())?,
        http: local_address(http.as_ref())?,
        data: home.dir.clone(),
        ephemeral: home.temporary.is_some(),
        tls: settings.tls.is_some(),
    });
    let server = Server { store, health, metrics, phases, tasks: TaskTracker::new() };
    let shown = Shown { store: server.store.clone(), metrics, phases, place: place.clone() };
    let ports = [
        (grpc, Protocol::Grpc(Calls::new(routes, metrics, phases)), &metrics.grpc, &b"h2"[..]),
        (http, Protocol::Http(http::router(shown)), &metrics.http, &b"http/1.1"[..]),
    ];
    for (listener, protocol, counters, alpn) in ports {
        let Some(listener) = listener else { continue };
        let tls = settings.tls.as_ref().map(|tls| tls::acceptor(tls, alpn)).transpose()?;
        let (permits, tasks) = (permits.clone(), server.tasks.clone());
        let acceptor = Acceptor { listener, protocol, tls, counters, phases, permits, tasks };
        server.tasks.spawn(acceptor.run());
    }
    banner::say_ready(reader, &place, settings.memory);

    let first = signals.first(&home).await;
    tracing::info!(signal = first, "shutting down");
    drop(api);
    server.shut_down(settings.shutdown_grace).await?;
    home.leave()
}

fn open_store(settings: &Settings, home: &Home) -> anyhow::Result<Store> {
    let mut options = memory::engine_options(settings);
    options.log.sync = home.temporary.is_none();
    let world = World { files: Arc::new(ServerDisk), ..World::real() };
    Store::open(&home.dir, options, world)
        .with_context(|| format!("opening the store in {}", home.dir.display()))
}

fn local_address(listener: Option<&TcpListener>) -> anyhow::Result<Option<std::net::SocketAddr>> {
    listener.map(TcpListener::local_addr).transpose().context("asking for a port's address")
}

/// The directory of the data.
struct Home {
    dir: PathBuf,
    temporary: Option<TempDir>,
}

impl Home {
    fn prepare(data: &Data) -> anyhow::Result<Home> {
        match data {
            Data::Dir(dir) => {
                let dir = std::path::absolute(dir)
                    .with_context(|| format!("--data {}", dir.display()))?;
                Ok(Home { dir, temporary: None })
            }
            Data::Ephemeral => {
                let temporary = tempfile::Builder::new()
                    .prefix("stele-")
                    .tempdir()
                    .context("making a temporary directory")?;
                Ok(Home { dir: temporary.path().to_path_buf(), temporary: Some(temporary) })
            }
        }
    }

    /// Removes what is not to be kept.
    fn leave(self) -> anyhow::Result<()> {
        match self.temporary {
            Some(temporary) => {
                temporary.close().with_context(|| format!("removing {}", self.dir.display()))
            }
            None => Ok(()),
        }
    }
}
