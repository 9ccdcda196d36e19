//! `stele serve`: one process that serves a store.
//!
//! Startup: flags, environment and file are resolved (`settings`), the ports are bound
//! (`listen`), and the store is opened (`home`) on a disk that notifies the runtime
//! before it blocks (`disk`). Once connections are accepted (`connections`), the `banner`
//! is printed. A call: its bytes are charged to the request memory as they arrive
//! (`request`), it is counted and bounded (`call`, `limits`, `metrics`), and one of the
//! `services` answers it. Shutdown (`shutdown`): calls finish and the store is closed.

mod banner;
mod call;
mod connections;
mod disk;
pub mod emulator;
mod gather;
mod health;
mod home;
mod http;
pub mod inject;
mod json_call;
mod limits;
mod listen;
mod logs;
mod metastore;
mod metrics;
pub mod names;
mod outgoing;
mod pace;
mod request;
mod services;
mod settings;
mod shares;
mod shutdown;
mod sites;
mod status;
mod stream;
mod times;
mod tls;
mod upload;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::middleware::from_fn_with_state;
use stele_bigtable::Api;
use stele_catalogue::{Catalogues, Collector};
use stele_engine::Store;
use stele_grpc::memory::CallPools;
use stele_grpc::{Services, offload};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use self::banner::Reader;
use self::call::Calls;
use self::connections::{Acceptor, Pages, Protocol};
use self::health::{Parts, Reporters};
use self::home::Home;
use self::http::Shown;
use self::inject::Injector;
use self::json_call::JsonCalls;
use self::listen::Ports;
pub use self::metastore::DIR as METASTORE_DIR;
use self::metastore::{Both, Metastore};
use self::metrics::Metrics;
use self::names::DnsPort;
use self::settings::Settings;
pub use self::settings::{ClusterId, Flags};
use self::shares::Shares;
use self::shutdown::{Phases, Signals};
pub use self::sites::Sites;
use self::status::Place;
use crate::{Outcome, private};

/// How long to wait for the remaining threads after everything else has finished.
const THREADS_WAIT: Duration = Duration::from_secs(1);

pub fn run(flags: Flags) -> anyhow::Result<Outcome> {
    start(&Settings::resolve(flags)?, Reader::Everybody)
}

fn start(settings: &Settings, reader: Reader) -> anyhow::Result<Outcome> {
    logs::start(settings.log.as_deref(), settings.log_format)?;
    private::harden_process();
    tls::install_provider();
    refuse_huge_pages();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("stele-serve")
        .max_blocking_threads(offload::BLOCKING_THREADS_MAX)
        .build()
        .context("starting threads")?;
    let served = runtime.block_on(serve(settings, reader));
    runtime.shutdown_timeout(THREADS_WAIT);
    served.map(|()| Outcome::Sound)
}

/// Disables huge pages. Memory is allocated and freed in pieces of some hundred KiB; with
/// huge pages the kernel would clear 2 MiB for each, which took a third of the time of a
/// bulk load.
fn refuse_huge_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "huge pages are left on");
    }
}

async fn serve(settings: &Settings, reader: Reader) -> anyhow::Result<()> {
    // First, so that no signal arrives while the process is only half prepared.
    let signals = Signals::listen().context("listening for signals")?;
    let ports = Ports::take(settings).await?;
    let injector = settings.injector()?;
    let dns = DnsPort::take(&settings.names, &settings.listen).await?;
    let home = Home::prepare(&settings.data)?;
    let store = Arc::new(home.open_store(settings)?);
    let place = Place {
        dns: dns.address(),
        client_certificates: settings.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()),
        injects: injector.as_ref().map(|injector| injector.rules().rules.len()),
        ..Place::new(&ports, &home)?
    };
    let place = Arc::new(place);
    let metastore = match place.metastore {
        Some(address) => Some(Metastore::open(&home, settings, address).await?),
        None => None,
    };
    let server =
        Server::start(settings, store, metastore, ports, dns, place.clone(), injector).await?;
    banner::say_ready(reader, &place, settings.memory);
    let signal = signals.first(&home).await;
    tracing::info!(signal, "shutting down");
    server.shut_down(settings.shutdown_grace).await?;
    home.leave()
}

/// Opens the catalogues of the store and starts a thread that removes deleted ones.
fn open_catalogues(store: &Arc<Store>) -> anyhow::Result<Arc<Catalogues>> {
    let catalogues = Arc::new(Catalogues::open(store.clone()).context("opening the catalogues")?);
    Collector::start(&catalogues).context("starting a thread")?;
    Ok(catalogues)
}

/// A running server.
struct Server {
    store: Arc<Store>,
    metastore: Option<Metastore>,
    health: Reporters,
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
        injector: Option<Arc<Injector>>,
    ) -> anyhow::Result<Server> {
        let api = Api::new(store.clone())?;
        // Leaked on purpose: tasks share these for the life of the process without
        // reference counting.
        let shares = Shares::of(settings);
        let memory = CallPools::new(shares.requests, shares.responses, settings.request_wait);
        let metrics: &'static Metrics = Box::leak(Box::new(Metrics::new(memory)));
        let phases: &'static Phases = Box::leak(Box::default());
        let tasks = TaskTracker::new();
        let names = names::start(&settings.names, &api, dns, phases, &tasks).await?;
        let catalogues = settings.catalogue.then(|| open_catalogues(&store)).transpose()?;
        let (grpc, tables) = services::grpc(&api, catalogues, names).await?;
        let node = metastore.as_ref().map(|metastore| metastore.node().clone());
        let parts = Parts { store: store.clone(), metastore: node, phases };
        let shown = Shown { parts: parts.clone(), metrics, place, injector: injector.clone() };
        let intercepted = |services: Services| match injector.clone() {
            Some(injector) => services.with_intercept(injector),
            None => services,
        };
        let grpc = Protocol::Grpc(Calls::new(intercepted(grpc), metrics, phases));
        let sites = Arc::new(settings.sites()?);
        let router = http::router(shown).merge(inject::router(injector.clone()));
        let router = sites.guard(router.merge(services::traces(&api, shares.traces)));
        let http = Protocol::Http(Pages { router, metrics });
        let permits = Arc::new(Semaphore::new(listen::connections_max()));
        let mut served = vec![(ports.grpc, grpc, &metrics.grpc), (ports.http, http, &metrics.http)];
        let mut health = Reporters { tables, metastore: None };
        if let Some(metastore) = &metastore {
            let (services, reporter) = metastore.services().await;
            health.metastore = Some(reporter);
            let calls = Calls::new(intercepted(services), metrics, phases);
            let json = JsonCalls { metrics, phases };
            let router = metastore.pages().layer(from_fn_with_state(json, json_call::serve));
            let pages = Pages { router: sites.guard(router), metrics };
            let both = Protocol::Both(Both { calls, pages });
            served.push((ports.metastore, both, &metrics.metastore));
        }
        tasks.spawn(health.clone().follow(parts));
        for (port, protocol, counters) in served {
            let Some(port) = port else { continue };
            for listener in port.listeners {
                let acceptor = Acceptor {
                    listener,
                    tls: port.tls.clone(),
                    protocol: protocol.clone(),
                    counters,
                    metrics,
                    phases,
                    permits: permits.clone(),
                    tasks: tasks.clone(),
                };
                tasks.spawn(acceptor.run());
            }
        }
        Ok(Server { store, metastore, health, metrics, phases, tasks })
    }
}
