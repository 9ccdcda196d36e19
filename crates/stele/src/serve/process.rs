//! The life of the process: settings, runtime, ports, store, readiness, signals, shutdown.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use stele_grpc::offload;

use super::banner::{self, Audience};
use super::data_dir::DataDir;
use super::listen::{self, Ports};
use super::metastore::Metastore;
use super::names::DnsPort;
use super::object_store::ObjectStore;
use super::server::Server;
use super::settings::{EffectiveSettings, Flags};
use super::shutdown::Signals;
use super::status::ServerInfo;
use super::{logs, resident, tls};
use crate::{Outcome, private};

/// How long to wait for the remaining threads after everything else has finished.
const THREADS_WAIT: Duration = Duration::from_secs(1);

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

async fn serve(settings: &EffectiveSettings, audience: Audience) -> anyhow::Result<()> {
    // First, so that no signal arrives while the process is only half prepared.
    let signals = Signals::listen().context("listening for signals")?;
    let ports = Ports::bind(settings).await?;
    let injector = settings.injector()?;
    let dns = DnsPort::bind(&settings.names, &settings.listen).await?;
    let data_dir = DataDir::prepare(&settings.data)?;
    let objects = ObjectStore::open(settings.store.as_ref(), &data_dir)?;
    let store = Arc::new(data_dir.open_store(settings, objects.as_deref())?);
    let info = ServerInfo {
        dns: dns.address(),
        client_certificates: settings.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()),
        fault_rules: injector.as_ref().map(|injector| injector.rules().rules.len()),
        store: objects.as_ref().map(|objects| objects.address()),
        ..ServerInfo::new(&ports, &data_dir)?
    };
    let info = Arc::new(info);
    let metastore = match info.metastore {
        Some(address) => Some(Metastore::open(&data_dir, settings, address).await?),
        None => None,
    };
    let server =
        Server::start(settings, (store, objects), metastore, ports, dns, info.clone(), injector)
            .await?;
    banner::print_ready(audience, &info, settings.memory);
    let signal = signals.first(&data_dir).await;
    tracing::info!(signal, "shutting down");
    server.shut_down(settings.shutdown_grace).await?;
    data_dir.remove_if_temporary()
}
