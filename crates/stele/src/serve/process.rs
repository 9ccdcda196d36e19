//! The life of the process: settings, runtime, ports, store, readiness, signals, shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use stele_grpc::offload;
use stele_metastore::Error;

use super::banner::{self, Audience};
use super::cluster::Member;
use super::data_dir::DataDir;
use super::listen::{self, Ports};
use super::metastore::Metastore;
use super::names::DnsPort;
use super::object_store::ObjectStore;
use super::server::{Opened, Server};
use super::settings::{EffectiveSettings, Flags};
use super::shutdown::Signals;
use super::status::ServerInfo;
use super::{auth, logs, resident, tls};
use crate::{Outcome, private};

/// How long to wait for the remaining threads after everything else has finished.
const THREADS_WAIT: Duration = Duration::from_secs(1);
/// How often the server checks whether it is still a member.
const REMOVAL_INTERVAL: Duration = Duration::from_millis(200);

pub fn run(flags: Flags) -> anyhow::Result<Outcome> {
    start(&EffectiveSettings::resolve(flags)?, Audience::Everybody)
}

pub fn start(settings: &EffectiveSettings, audience: Audience) -> anyhow::Result<Outcome> {
    logs::start(settings.log.as_deref(), settings.log_format)?;
    private::harden_process();
    tls::install_provider();
    disable_huge_pages();
    // Before a store is opened, which takes a share of them.
    listen::raise_open_files();
    resident::watch(settings.memory.0).context("watching the memory of the process")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("stele-serve")
        .max_blocking_threads(offload::BLOCKING_THREADS_MAX)
        .build()
        .context("starting threads")?;
    let served = runtime.block_on(serve(settings, audience));
    runtime.shutdown_timeout(THREADS_WAIT);
    served.map(|()| Outcome::Sound)
}

/// Disables huge pages. Memory is allocated and freed in pieces of some hundred KiB; with
/// huge pages the kernel would clear 2 MiB for each, which took a third of the time of a
/// bulk load.
fn disable_huge_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "cannot disable huge pages");
    }
}

/// Opens the store of a server that is alone.
fn open_alone(settings: &EffectiveSettings, data_dir: &DataDir) -> anyhow::Result<Opened> {
    let objects = ObjectStore::open(settings.store.as_ref(), data_dir)?;
    let store = Arc::new(data_dir.open_store(settings, objects.as_deref())?);
    Ok(Opened { store, objects, member: None })
}

/// Joins the cluster of the settings.
async fn join(
    settings: &EffectiveSettings,
    data_dir: &DataDir,
    metastore: Option<&Metastore>,
    grpc: Option<SocketAddr>,
) -> anyhow::Result<Opened> {
    let cluster = settings.cluster.as_ref().context("the server belongs to no cluster")?;
    let joining = Member::begin(settings, cluster, data_dir, metastore, grpc);
    let (member, objects) = joining.await?;
    let store = member.server().store().clone();
    Ok(Opened { store, objects: Some(objects), member: Some(member) })
}

async fn serve(settings: &EffectiveSettings, audience: Audience) -> anyhow::Result<()> {
    // First, so that no signal arrives while the process is only half prepared.
    let signals = Signals::listen().context("listening for signals")?;
    let ports = Ports::bind(settings).await?;
    let injector = settings.injector()?;
    let dns = DnsPort::bind(&settings.names, &settings.listen).await?;
    let data_dir = DataDir::prepare(&settings.data)?;
    let gate = auth::open(settings, &data_dir, &ports)?;
    let mut info = ServerInfo {
        dns: dns.address(),
        callers_are_checked: gate.is_some(),
        client_certificates: settings.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()),
        fault_rules: injector.as_ref().map(|injector| injector.rules().rules.len()),
        ..ServerInfo::new(&ports, &data_dir)?
    };
    // A server that is alone opens its store before its metastore, one of a cluster after it:
    // it may be the coordinator.
    let alone = match settings.cluster {
        None => Some(open_alone(settings, &data_dir)?),
        Some(_) => None,
    };
    let metastore = match info.metastore {
        Some(address) => Some(Metastore::open(&data_dir, settings, address).await?),
        None => None,
    };
    let opened = match alone {
        Some(alone) => alone,
        None => join(settings, &data_dir, metastore.as_ref(), info.grpc).await?,
    };
    info.store = opened.objects.as_ref().map(|objects| objects.address());
    let info = Arc::new(info);
    let server =
        Server::start(settings, opened, metastore, ports, dns, info.clone(), (injector, gate))
            .await?;
    banner::print_ready(audience, &info, settings.memory);
    let removed = tokio::select! {
        signal = signals.first(&data_dir) => {
            tracing::info!(signal, "shutting down");
            None
        }
        error = removal(&server, &info) => {
            tracing::error!(%error, "shutting down");
            Some(error)
        }
    };
    let closed = server.shut_down(settings.shutdown_grace).await;
    // The group has failed with it, too.
    removed.map_or(closed, |error| Err(error.into()))?;
    data_dir.remove_if_temporary()
}

/// Waits until a process that serves nothing but the metastore is no longer a member.
async fn removal(server: &Server, info: &ServerInfo) -> Error {
    loop {
        if info.grpc.is_none()
            && let Some(metastore) = &server.metastore
            && let Some(error @ Error::Removed { .. }) = metastore.node().group().failure()
        {
            return error;
        }
        tokio::time::sleep(REMOVAL_INTERVAL).await;
    }
}
