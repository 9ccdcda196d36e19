//! A running server: its services on their ports, and the tasks behind them.

use std::sync::Arc;

use anyhow::Context;
use axum::middleware::from_fn_with_state;
use stele_bigtable::Api;
use stele_catalogue::{Catalogues, Collector};
use stele_engine::Store;
use stele_grpc::Services;
use stele_grpc::memory::CallPools;
use stele_tables::Tables;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::call::Calls;
use super::connections::{Acceptor, Pages, Protocol};
use super::console;
use super::expiry;
use super::health::{Components, Reporters};
use super::http::{self, PageState};
use super::inject::{self, Injector};
use super::json_call::{self, JsonCalls};
use super::listen::{self, ListeningPort, Ports};
use super::metastore::{Both, Metastore};
use super::metrics::{Connections, Metrics};
use super::names::{self, DnsPort};
use super::object_store::ObjectStore;
use super::ports_page;
use super::schema_check;
use super::services;
use super::settings::EffectiveSettings;
use super::shares::Shares;
use super::shutdown::Phases;
use super::status::ServerInfo;

/// Opens the catalogues and starts a thread that removes deleted ones.
fn open_catalogues(tables: &Tables) -> anyhow::Result<Arc<Catalogues>> {
    let catalogues = Arc::new(Catalogues::open(tables.clone()).context("opening the catalogues")?);
    Collector::start(&catalogues).context("starting the thread that removes deleted catalogues")?;
    Ok(catalogues)
}

/// A running server.
pub struct Server {
    pub(super) store: Arc<Store>,
    pub(super) metastore: Option<Metastore>,
    pub(super) health: Reporters,
    pub(super) metrics: &'static Metrics,
    pub(super) phases: &'static Phases,
    pub(super) tasks: TaskTracker,
}

impl Server {
    pub async fn start(
        settings: &EffectiveSettings,
        (store, objects): (Arc<Store>, Option<Arc<ObjectStore>>),
        metastore: Option<Metastore>,
        ports: Ports,
        dns: DnsPort,
        info: Arc<ServerInfo>,
        injector: Option<Arc<Injector>>,
    ) -> anyhow::Result<Server> {
        let tables = Tables::new(store.clone()).keeping_deleted(settings.keep_deleted);
        let api = Api::new(tables.clone())?;
        // Leaked on purpose: tasks share these for the life of the process without
        // reference counting.
        let shares = Shares::of(settings);
        let memory = CallPools::new(shares.requests, shares.responses, settings.request_wait);
        let metrics: &'static Metrics = Box::leak(Box::new(Metrics::new(memory)));
        let phases: &'static Phases = Box::leak(Box::default());
        let tasks = TaskTracker::new();
        let names = names::start(&settings.names, &api, dns, phases, &tasks).await?;
        let catalogues = settings.catalogue.then(|| open_catalogues(&tables)).transpose()?;
        tasks.spawn(expiry::sweep(tables.clone(), phases));
        tasks.spawn(schema_check::check(api.tables().clone(), phases));
        let (grpc, reporter) = services::grpc(&api, tables, catalogues, names).await?;
        let node = metastore.as_ref().map(|metastore| metastore.node().clone());
        let components = Components { store: store.clone(), metastore: node, objects, phases };
        if let Some(objects) = components.objects.clone()
            && let Some(interval) = settings.store.as_ref().and_then(|store| store.gc)
        {
            tasks.spawn(objects.collect_every(interval, store.clone(), phases));
        }
        let describe = |this| ports_page::router(&info, this);
        let state = PageState {
            components: components.clone(),
            metrics,
            info: info.clone(),
            injector: injector.clone(),
        };
        let with_faults = |services: Services| match injector.clone() {
            Some(injector) => services.with_intercept(injector),
            None => services,
        };
        let metastore_services = match &metastore {
            Some(metastore) => Some(metastore.services().await),
            None => None,
        };
        let console = console::start(
            &state,
            settings.console,
            grpc.clone(),
            metastore_services.as_ref().map(|(services, _)| services.clone()),
            &tasks,
        );
        let grpc = Protocol::Grpc(Calls::new(with_faults(grpc), metrics, phases));
        let sites = Arc::new(settings.sites()?);
        let http1 = Pages { router: sites.guard(ports_page::of_grpc(&info)), metrics };
        let router = http::router(state).merge(inject::router(injector.clone()));
        let router = router.merge(describe("http")).merge(console.unwrap_or_default());
        let router = sites.guard(router.merge(services::traces(&api, shares.traces)));
        let http = Protocol::Http(Pages { router, metrics });
        let permits = Arc::new(Semaphore::new(listen::connections_max()));
        let mut served = vec![(ports.grpc, grpc, &metrics.grpc), (ports.http, http, &metrics.http)];
        let mut health = Reporters { tables: reporter, metastore: None };
        if let Some(metastore) = &metastore
            && let Some((services, reporter)) = metastore_services
        {
            health.metastore = Some(reporter);
            let calls = Calls::new(with_faults(services), metrics, phases);
            let json = JsonCalls { metrics, phases };
            let router = metastore.pages().layer(from_fn_with_state(json, json_call::serve));
            let router = describe("metastore").merge(router);
            let pages = Pages { router: sites.guard(router), metrics };
            let both = Protocol::Both(Both { calls, pages });
            served.push((ports.metastore, both, &metrics.metastore));
            let probes = Pages { router: sites.guard(metastore.probes()), metrics };
            served.push((ports.metastore_metrics, Protocol::Http(probes), &metrics.http));
        }
        tasks.spawn(health.clone().follow(components));
        let server = Server { store, metastore, health, metrics, phases, tasks };
        for (port, protocol, counters) in served {
            if let Some(port) = port {
                server.accept(port, (&protocol, &http1), counters, &permits);
            }
        }
        Ok(server)
    }

    /// Starts to accept connections on every address of a port.
    fn accept(
        &self,
        port: ListeningPort,
        (protocol, http1): (&Protocol, &Pages),
        counters: &'static Connections,
        permits: &Arc<Semaphore>,
    ) {
        for listener in port.listeners {
            let acceptor = Acceptor {
                listener,
                tls: port.tls.clone(),
                plain_text: port.plain_text,
                protocol: protocol.clone(),
                http1: Some(http1.clone()),
                counters,
                metrics: self.metrics,
                phases: self.phases,
                permits: permits.clone(),
                tasks: self.tasks.clone(),
            };
            self.tasks.spawn(acceptor.run());
        }
    }
}
