//! `stele serve`: one process that serves a store.
//!
//! Follow a start: flags, environment and file become `settings`; the ports
//! are taken (`listen`), the store is opened (`home`) on a disk that tells the
//! runtime when it is slow (`disk`), and when connections are accepted
//! (`connections`) the `banner` says so. Follow a call: its bytes are let in
//! as there is room for them (`request`, `intake`), it is counted and bounded
//! (`call`, `limits`, `metrics`), and answered by one of the `services`. At
//! the end (`shutdown`) calls finish and the store is closed.

mod banner;
mod call;
mod connections;
mod disk;
pub mod emulator;
mod framing;
mod gather;
mod home;
mod http;
mod intake;
mod limits;
mod listen;
mod logs;
mod metastore;
mod metrics;
pub mod names;
mod request;
mod services;
mod settings;
mod shutdown;
mod status;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use stele_bigtable::Api;
use stele_catalogue::{Catalogues, Collector};
use stele_engine::Store;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tonic_health::server::HealthReporter;

use self::banner::Reader;
use self::call::Calls;
use self::connections::{Acceptor, Protocol};
use self::home::Home;
use self::http::Shown;
use self::intake::Intake;
use self::listen::Ports;
pub use self::metastore::DIR as METASTORE_DIR;
use self::metastore::{Both, Metastore};
use self::metrics::Metrics;
use self::names::DnsPort;
use self::settings::Settings;
pub use self::settings::{ClusterId, Flags};
use self::shutdown::{Phases, Signals};
use self::status::Place;
use crate::Outcome;

/// What threads that do not end are waited for when all else is done.
const THREADS_WAIT: Duration = Duration::from_secs(1);

pub fn run(flags: Flags) -> anyhow::Result<Outcome> {
    start(&Settings::resolve(flags)?, Reader::Everybody)
}

fn start(settings: &Settings, reader: Reader) -> anyhow::Result<Outcome> {
    logs::start(settings.log.as_deref(), settings.log_format)?;
    tls::install_provider();
    refuse_huge_pages();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("stele-serve")
        .build()
        .context("starting threads")?;
    let served = runtime.block_on(serve(settings, reader));
    runtime.shutdown_timeout(THREADS_WAIT);
    served.map(|()| Outcome::Sound)
}

/// Memory comes and goes in pieces of some hundred KiB. In huge pages the kernel
/// would clear 2 MiB for each, which took a third of the time of a bulk load.
fn refuse_huge_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages are left on");
    }
}

async fn serve(settings: &Settings, reader: Reader) -> anyhow::Result<()> {
    // First of all, so that no signal finds the process half prepared.
    let signals = Signals::listen().context("listening for signals")?;
    let ports = Ports::take(settings).await?;
    let dns = DnsPort::take(&settings.names, &settings.listen).await?;
    let home = Home::prepare(&settings.data)?;
    let store = Arc::new(home.open_store(settings)?);
    let place = Arc::new(Place { dns: dns.address(), ..Place::new(&ports, &home)? });
    let metastore = match place.metastore {
        Some(address) => Some(Metastore::open(&home, settings, address).await?),
        None => None,
    };
    let server = Server::start(settings, store, metastore, ports, dns, place.clone()).await?;
    banner::say_ready(reader, &place, settings.memory);
    let signal = signals.first(&home).await;
    tracing::info!(signal, "shutting down");
    server.shut_down(settings.shutdown_grace).await?;
    home.leave()
}

/// The catalogues of the store, and a thread that removes deleted ones.
fn open_catalogues(store: &Arc<Store>) -> anyhow::Result<Arc<Catalogues>> {
    let catalogues = Arc::new(Catalogues::open(store.clone()).context("opening the catalogues")?);
    Collector::start(&catalogues).context("starting a thread")?;
    Ok(catalogues)
}

/// A server that takes requests.
struct Server {
    store: Arc<Store>,
    metastore: Option<Metastore>,
    health: HealthReporter,
    metrics: &'static Metrics,
    phases: &'static Phases,
    tasks: TaskTracker,
}

impl Server {
    async fn start(
        settings: &Settings,
        store: Arc<Store>,
        metastore: Option<Metastore>,
        ports: Ports,
        dns: DnsPort,
        place: Arc<Place>,
    ) -> anyhow::Result<Server> {
        let api = Api::new(store.clone())?;
        // As long-lived as the process: every task uses them without counting.
        let intake = Intake::new(settings.request_memory, settings.request_wait);
        let metrics: &'static Metrics = Box::leak(Box::new(Metrics::new(intake)));
        let phases: &'static Phases = Box::leak(Box::default());
        let tasks = TaskTracker::new();
        let names = names::start(&settings.names, &api, dns, phases, &tasks).await?;
        let catalogues = settings.catalogue.then(|| open_catalogues(&store)).transpose()?;
        let (grpc, health) = services::grpc(&api, catalogues, names).await?;
        let shown = Shown { store: store.clone(), metrics, phases, place };
        let grpc = Protocol::Grpc(Calls::new(grpc, metrics, phases));
        let http = Protocol::Http(http::router(shown).merge(services::traces(&api)));
        let permits = Arc::new(Semaphore::new(listen::connections_max()));
        let mut served = vec![(ports.grpc, grpc, &metrics.grpc), (ports.http, http, &metrics.http)];
        if let Some(metastore) = &metastore {
            let calls = Calls::new(metastore.services().await, metrics, phases);
            let both = Protocol::Both(Both { calls, pages: metastore.pages() });
            served.push((ports.metastore, both, &metrics.metastore));
        }
        for (port, protocol, counters) in served {
            let Some(port) = port else { continue };
            let (permits, within) = (permits.clone(), tasks.clone());
            let acceptor = Acceptor { port, protocol, counters, phases, permits, tasks: within };
            tasks.spawn(acceptor.run());
        }
        Ok(Server { store, metastore, health, metrics, phases, tasks })
    }
}
