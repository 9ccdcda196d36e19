//! Taking the ports. Done before the data is opened, so that a mistake in an
//! address is told at once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket, lookup_host};
use tokio_rustls::TlsAcceptor;

use super::settings::{Port, Settings};
use super::tls;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: u32 = 4096;
/// A peer that answers nothing for about two minutes is gone. The kernel
/// keeps watch, so an idle connection costs this process nothing.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// Files that the store and the process itself may need beside connections.
const FILES_RESERVED: u64 = 512;

/// The ports of a server; those that are off are missing.
pub struct Ports {
    pub grpc: Option<ListeningPort>,
    pub http: Option<ListeningPort>,
    pub metastore: Option<ListeningPort>,
    pub tls: bool,
}

pub struct ListeningPort {
    pub listener: TcpListener,
    pub tls: Option<TlsAcceptor>,
}

impl Ports {
    pub async fn take(settings: &Settings) -> anyhow::Result<Ports> {
        let grpc = take(settings, settings.grpc_port, "--grpc-port", &[b"h2"]).await?;
        let http = take(settings, settings.http_port, "--http-port", &[b"http/1.1"]).await?;
        let either: [&[u8]; 2] = [b"h2", b"http/1.1"];
        let metastore =
            take(settings, settings.metastore_port, "--metastore-port", &either).await?;
        if grpc.is_none() && http.is_none() && metastore.is_none() {
            bail!(
                "--grpc-port, --http-port and --metastore-port are all off: nothing would listen"
            );
        }
        Ok(Ports { grpc, http, metastore, tls: settings.tls.is_some() })
    }
}

/// Listens on a port, unless it is off. `flag` is what moves it.
async fn take(
    settings: &Settings,
    port: Port,
    flag: &str,
    alpn: &[&[u8]],
) -> anyhow::Result<Option<ListeningPort>> {
    let Port::Number(port) = port else { return Ok(None) };
    let tls = settings.tls.as_ref().map(|tls| tls::acceptor(tls, alpn)).transpose()?;
    let host = &settings.listen;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = lookup_host((bare, port))
        .await
        .with_context(|| format!("--listen {host}"))?
        .next()
        .ok_or_else(|| anyhow!("--listen {host} is no address of this machine"))?;
    let listener = listen(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "port {port} of {host} is in use by another process: choose another with {flag} PORT \
             (0 is any free one) or turn it off with {flag} off"
        ),
        io::ErrorKind::AddrNotAvailable => {
            anyhow!("--listen {host} is no address of this machine")
        }
        io::ErrorKind::PermissionDenied => {
            anyhow!(
                "port {port} needs more rights than this process has: choose another with {flag}"
            )
        }
        _ => anyhow!(error).context(format!("listening on {address} ({flag})")),
    })?;
    Ok(Some(ListeningPort { listener, tls }))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted server must not wait for the old connections' last packets.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Prepares a connection that was accepted.
pub fn prepare(connection: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&connection, true)?;
    sockopt::set_socket_keepalive(&connection, true)?;
    sockopt::set_tcp_keepidle(&connection, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&connection, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&connection, KEEPALIVE_PROBES)?;
    Ok(())
}

/// Asks for as many open files as this process may have. Returns how many of
/// them connections may take.
pub fn connections_max() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::debug!(%error, "the number of open files stays as it is");
            limit.current
        }
    };
    let files = files.unwrap_or(u64::MAX);
    let connections = files.saturating_sub(FILES_RESERVED).max(files / 2).max(1);
    usize::try_from(connections).unwrap_or(usize::MAX).min(tokio::sync::Semaphore::MAX_PERMITS)
}
