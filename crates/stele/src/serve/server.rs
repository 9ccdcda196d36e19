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

use super::auth::{self, Gate, Guard, IamStore, PortName};
use super::call::Calls;
use super::cluster::Member;
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
use super::services::{self, Parts};
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

/// What is opened before the services start.
pub struct Opened {
    pub store: Arc<Store>,
    pub objects: Option<Arc<ObjectStore>>,
    /// Set in a cluster.
    pub member: Option<Arc<Member>>,
}

/// Creates the Bigtable API, over this server's own tables or over those of a cluster.
async fn parts(
    settings: &EffectiveSettings,
    store: &Arc<Store>,
    member: Option<&Arc<Member>>,
    phases: &'static Phases,
    tasks: &TaskTracker,
) -> anyhow::Result<Parts> {
    let Some(member) = member else {
        let tables = Tables::new(store.clone()).keeping_deleted(settings.keep_deleted);
        let api = Api::new(tables.clone())?.strict(settings.strict);
        return Ok(Parts { bigtable: api.services(), api, relay: None, tables });
    };
    member.keep_lease(phases);
    let tables = member.server().tables().clone();
    let started = member.start(phases, tasks).await?;
    Ok(Parts { api: started.api, bigtable: started.data, relay: Some(started.relay), tables })
}

/// Reads the policies of Bigtable resources, and follows changes of all that decisions are
/// based on.
async fn prepare(
    gate: &Arc<Gate>,
    parts: &Parts,
    metastore: Option<&Metastore>,
    phases: &'static Phases,
    tasks: &TaskTracker,
) -> anyhow::Result<()> {
    let policies = IamStore::new(parts.bigtable.clone(), parts.api.tables().clone());
    let policies = Arc::new(policies);
    gate.replace_iam(policies.all().await.context("reading the IAM policies")?);
    gate.set_iam_store(policies.clone());
    tasks.spawn(auth::follow_policies(gate.clone(), policies, phases));
    tasks.spawn(auth::follow_files(gate.clone(), phases));
    if let Some(node) = metastore.map(|metastore| metastore.node().clone()) {
        gate.set_metastore_users(node);
    }
    Ok(())
}

/// A running server.
pub struct Server {
    pub(super) store: Arc<Store>,
    pub(super) metastore: Option<Metastore>,
    /// Set in a cluster.
    pub(super) member: Option<Arc<Member>>,
    pub(super) health: Reporters,
    pub(super) metrics: &'static Metrics,
    pub(super) phases: &'static Phases,
    pub(super) tasks: TaskTracker,
}

impl Server {
    pub async fn start(
        settings: &EffectiveSettings,
        Opened { store, objects, member }: Opened,
        metastore: Option<Metastore>,
        ports: Ports,
        dns: DnsPort,
        info: Arc<ServerInfo>,
        (injector, gate): (Option<Arc<Injector>>, Option<Arc<Gate>>),
    ) -> anyhow::Result<Server> {
        // Leaked on purpose: tasks share these for the life of the process without
        // reference counting.
        let shares = Shares::of(settings);
        let memory = CallPools::new(shares.requests, shares.responses, settings.request_wait);
        let metrics: &'static Metrics = Box::leak(Box::new(Metrics::new(memory)));
        let phases: &'static Phases = Box::leak(Box::default());
        let tasks = TaskTracker::new();
        let parts = parts(settings, &store, member.as_ref(), phases, &tasks).await?;
        let (bigtable, tables) = (parts.bigtable.clone(), parts.tables.clone());
        let names =
            names::start(&settings.names, bigtable.clone(), dns, phases, &tasks, gate.is_some())
                .await?;
        let mut catalogues = None;
        if member.is_none() {
            catalogues = settings.catalogue.then(|| open_catalogues(&tables)).transpose()?;
            tasks.spawn(expiry::sweep(tables, phases));
            tasks.spawn(schema_check::check(parts.api.tables().clone(), phases));
        }
        if let Some(gate) = &gate {
            prepare(gate, &parts, metastore.as_ref(), phases, &tasks).await?;
        }
        let guard = |port| gate.clone().map(|gate| Guard::new(gate, port));
        let (grpc, reporter) = services::grpc(parts, catalogues, names).await?;
        let node = metastore.as_ref().map(|metastore| metastore.node().clone());
        let components = Components { store: store.clone(), metastore: node, objects, phases };
        // Only a server that is alone knows all files that are in use.
        if member.is_none()
            && let Some(objects) = components.objects.clone()
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
            gate: gate.clone(),
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
        let grpc =
            Protocol::Grpc(Calls::new(with_faults(grpc), metrics, phases, guard(PortName::Grpc)));
        let sites = Arc::new(settings.sites()?);
        let router = sites.guard(ports_page::of_grpc(&info));
        let http1 = Pages { router, metrics, guard: None };
        let router = http::router(state).merge(inject::router(injector.clone()));
        let router = router.merge(describe("http")).merge(console.unwrap_or_default());
        let router = router.merge(services::traces(bigtable, shares.traces));
        let router = router.merge(auth::router(gate.clone()));
        let router = sites.guard(auth::guard_pages(router, gate.as_ref(), PortName::Http));
        let http = Protocol::Http(Pages { router, metrics, guard: guard(PortName::Http) });
        let permits = Arc::new(Semaphore::new(listen::connections_max()));
        let mut served = vec![(ports.grpc, grpc, &metrics.grpc), (ports.http, http, &metrics.http)];
        let mut health = Reporters { tables: reporter, metastore: None };
        if let Some(metastore) = &metastore
            && let Some((services, reporter)) = metastore_services
        {
            health.metastore = Some(reporter);
            let guard = guard(PortName::Metastore);
            let calls = Calls::new(with_faults(services), metrics, phases, guard.clone());
            let json = JsonCalls { metrics, phases };
            let router = metastore.pages().layer(from_fn_with_state(json, json_call::serve));
            let router = describe("metastore").merge(router);
            let router = auth::guard_pages(router, gate.as_ref(), PortName::Metastore);
            let pages = Pages { router: sites.guard(router), metrics, guard };
            let both = Protocol::Both(Both { calls, pages });
            served.push((ports.metastore, both, &metrics.metastore));
            // A port of its own for probes and metrics, which need no credential.
            let probes = Pages { router: sites.guard(metastore.probes()), metrics, guard: None };
            served.push((ports.metastore_metrics, Protocol::Http(probes), &metrics.http));
        }
        tasks.spawn(health.clone().follow(components));
        let server = Server { store, metastore, member, health, metrics, phases, tasks };
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
