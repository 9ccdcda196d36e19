//! Binds the ports. This happens before the data is opened, so that a wrong address is
//! reported at once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stele_engine::fragment::FileHandles;
use tokio::net::{TcpListener, TcpSocket, lookup_host};
use tokio_rustls::TlsAcceptor;

use super::settings::{EffectiveSettings, Port};
use super::tls;

/// The maximum number of connections that the kernel queues before they are accepted.
const BACKLOG: u32 = 4096;
/// With this, a peer that has not answered for about two minutes is considered gone. The
/// kernel sends the probes, so an idle connection costs this process nothing.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// File descriptors reserved for the logs and the process itself, in addition to those
/// of the fragments of each store.
const FILES_RESERVED: u64 = 512;
/// The tables and the metastore.
const STORES: u64 = 2;

/// The ports of a server. Ports that are off are `None`.
pub struct Ports {
    pub grpc: Option<ListeningPort>,
    pub http: Option<ListeningPort>,
    pub metastore: Option<ListeningPort>,
    pub metastore_metrics: Option<ListeningPort>,
    pub tls: bool,
}

/// One port, bound on every address of the host.
pub struct ListeningPort {
    pub listeners: Vec<TcpListener>,
    pub tls: Option<TlsAcceptor>,
    /// Whether connections without TLS are accepted beside those with it.
    pub plain_text: bool,
}

impl ListeningPort {
    /// Returns the address to display, preferring IPv4.
    pub fn address(&self) -> io::Result<SocketAddr> {
        match self.listeners.first() {
            Some(listener) => listener.local_addr(),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Ports {
    /// Returns whether only this machine reaches the ports. The port for metrics alone does
    /// not count.
    pub fn are_loopback(&self) -> bool {
        let ports = [&self.grpc, &self.http, &self.metastore].into_iter().flatten();
        let mut addresses = ports.flat_map(|port| &port.listeners).map(TcpListener::local_addr);
        addresses.all(|address| address.is_ok_and(|address| address.ip().is_loopback()))
    }

    pub async fn bind(settings: &EffectiveSettings) -> anyhow::Result<Ports> {
        let either: [&[u8]; 2] = [b"h2", b"http/1.1"];
        let grpc = bind(settings, settings.grpc_port, "--grpc-port", &either).await?;
        let http = bind(settings, settings.http_port, "--http-port", &[b"http/1.1"]).await?;
        let mut metastore =
            bind(settings, settings.metastore_port, "--metastore-port", &either).await?;
        if let Some(port) = &mut metastore {
            port.plain_text = settings.metastore.plain_text;
        }
        let flag = "--metastore-metrics-port";
        let mut metastore_metrics =
            bind(settings, settings.metastore.metrics_port, flag, &[b"http/1.1"]).await?;
        if let Some(port) = &mut metastore_metrics {
            port.tls = None;
            tracing::info!(address = %port.address()?, "metrics of the metastore");
        }
        if grpc.is_none() && http.is_none() && metastore.is_none() {
            bail!(
                "--grpc-port, --http-port and --metastore-port are all off: nothing would listen"
            );
        }
        Ok(Ports { grpc, http, metastore, metastore_metrics, tls: settings.tls.is_some() })
    }
}

/// Binds a port unless it is off. `flag` is the flag that changes it.
async fn bind(
    settings: &EffectiveSettings,
    port: Port,
    flag: &str,
    alpn: &[&[u8]],
) -> anyhow::Result<Option<ListeningPort>> {
    let Port::Number(port) = port else { return Ok(None) };
    let tls = settings.tls.as_ref().map(|tls| tls::acceptor(tls, alpn)).transpose()?;
    let listeners = listen_all(&settings.listen, port, flag).await?;
    Ok(Some(ListeningPort { listeners, tls, plain_text: false }))
}

/// Listens on every address that the host name resolves to. Skips addresses that this
/// machine does not have if it has at least one of them.
async fn listen_all(host: &str, port: u16, flag: &str) -> anyhow::Result<Vec<TcpListener>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = lookup_host((bare, port)).await.with_context(|| format!("--listen {host}"))?;
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.dedup();
    let mut listeners = Vec::new();
    let mut skipped = None;
    // Port 0 resolves to the same free port on all addresses.
    let mut chosen = port;
    for mut address in addresses {
        address.set_port(chosen);
        match listen(address) {
            Ok(listener) => {
                chosen = listener.local_addr()?.port();
                listeners.push(listener);
            }
            Err(error) if is_not_local(&error) => skipped = Some(error),
            Err(error) => return Err(bind_error(error, host, address, flag)),
        }
    }
    match (listeners.is_empty(), skipped) {
        (true, _) => Err(anyhow!("cannot bind {host} (--listen): not an address of this machine")),
        (false, None) => Ok(listeners),
        (false, Some(error)) => {
            tracing::debug!(%error, host, "skipped an address that this machine does not have");
            Ok(listeners)
        }
    }
}

/// Returns whether the machine lacks this address or its address family.
fn is_not_local(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

fn bind_error(error: io::Error, host: &str, address: SocketAddr, flag: &str) -> anyhow::Error {
    let port = address.port();
    match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "cannot bind port {port} of {host}: in use by another process; choose another with \
             {flag} PORT (0 for any free port), or disable it with {flag} off"
        ),
        io::ErrorKind::PermissionDenied => {
            anyhow!("cannot bind port {port}: permission denied; choose another with {flag} PORT")
        }
        _ => anyhow!(error).context(format!("listening on {address} ({flag})")),
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Lets a restarted server bind while old connections are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Sets the socket options of an accepted connection.
pub fn prepare(connection: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&connection, true)?;
    sockopt::set_socket_keepalive(&connection, true)?;
    sockopt::set_tcp_keepidle(&connection, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&connection, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&connection, KEEPALIVE_PROBES)?;
    Ok(())
}

/// Raises the limit of open files to the maximum.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
}

/// Returns how many open files connections may use.
pub fn connections_max() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let reserved = FILES_RESERVED + STORES * FileHandles::process_limit() as u64;
    let connections = files.saturating_sub(reserved).max(files / 2).max(1);
    usize::try_from(connections).unwrap_or(usize::MAX).min(tokio::sync::Semaphore::MAX_PERMITS)
}
