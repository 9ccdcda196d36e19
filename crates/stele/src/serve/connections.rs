//! Accepting connections and serving each in a task of its own until it ends,
//! or until the server does.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::call::Calls;
use super::gather::{Gather, Turns};
use super::listen::{self, ListeningPort};
use super::metastore::Both;
use super::metrics::Connections;
use super::shutdown::Phases;

/// A connection must say something within this time, and finish the handshake
/// of TLS. Clients that were heard may be silent for as long as they like.
const FIRST_BYTES_WAIT: Duration = Duration::from_secs(60);
const HANDSHAKE_WAIT: Duration = Duration::from_secs(20);
/// The head of an HTTP/1 request must be there within this time.
const HEAD_WAIT: Duration = Duration::from_secs(30);
/// How long to rest when the system has no more files or memory for us.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a client may send before its request is read. Together with the
/// number of connections this bounds what lies unread in memory.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
const FRAME_BYTES_MAX: u32 = 64 << 10;
const STREAMS_MAX: u32 = 1024;
const HEADERS_BYTES_MAX: u32 = 64 << 10;
/// What a response may run ahead of its connection.
const SEND_BUFFER_BYTES: usize = 512 << 10;

/// What connections of a port speak.
#[derive(Clone)]
pub enum Protocol {
    Grpc(Calls),
    Http(Router),
    /// gRPC and HTTP on one port.
    Both(Both),
}

impl Protocol {
    /// With the certificate that the client of this connection has shown.
    fn shown(self, certificate: Option<CertificateDer<'static>>) -> Protocol {
        match self {
            Protocol::Grpc(calls) => Protocol::Grpc(calls.shown(certificate)),
            http => http,
        }
    }
}

/// A port and what it needs to serve connections.
pub struct Acceptor {
    pub port: ListeningPort,
    pub protocol: Protocol,
    pub counters: &'static Connections,
    pub phases: &'static Phases,
    /// One for every connection that may be open.
    pub permits: Arc<Semaphore>,
    pub tasks: TaskTracker,
}

impl Acceptor {
    /// Accepts until the server drains.
    pub async fn run(self) {
        while let Some((connection, permit)) = self.next().await {
            let counted = self.counters.open();
            let (protocol, tls, phases) =
                (self.protocol.clone(), self.port.tls.clone(), self.phases);
            self.tasks.spawn(async move {
                let served =
                    phases.closing.run_until_cancelled(serve(connection, protocol, tls, phases));
                if let Some(Err(error)) = served.await {
                    // Clients come and go; only whoever looks for it cares.
                    tracing::debug!(%error, "a connection ended");
                }
                drop((counted, permit));
            });
        }
    }

    async fn next(&self) -> Option<(TcpStream, OwnedSemaphorePermit)> {
        let accepting = async {
            loop {
                let permit = self.permits.clone().acquire_owned().await.ok()?;
                match self.port.listener.accept().await {
                    Ok((connection, _)) => return Some((connection, permit)),
                    Err(error) if is_of_connection(&error) => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept connections now");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        self.phases.draining.run_until_cancelled(accepting).await?
    }
}

/// True for errors of a connection that ended before it was accepted.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

type Served = Result<(), Box<dyn std::error::Error + Send + Sync>>;

async fn serve(
    connection: TcpStream,
    protocol: Protocol,
    tls: Option<TlsAcceptor>,
    phases: &'static Phases,
) -> Served {
    listen::prepare(&connection)?;
    // Nothing is made for a connection that nobody uses.
    let mut first = [0];
    let heard = timeout(FIRST_BYTES_WAIT, connection.peek(&mut first));
    let heard = phases.draining.run_until_cancelled(heard).await;
    if heard.transpose()?.transpose()?.is_none_or(|bytes| bytes == 0) {
        return Ok(());
    }
    match tls {
        None => serve_plain(TokioIo::new(connection), protocol, phases).await,
        Some(tls) => {
            let handshake = Box::pin(timeout(HANDSHAKE_WAIT, tls.accept(connection)));
            let secured = handshake.await??;
            let shown = secured.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let protocol = protocol.shown(shown.cloned());
            serve_plain(TokioIo::new(secured), protocol, phases).await
        }
    }
}

/// Boxed, as every large part of a connection is: one that is idle should
/// cost what it needs, not what every other kind might need.
fn serve_plain<I>(
    io: I,
    protocol: Protocol,
    phases: &'static Phases,
) -> Pin<Box<dyn Future<Output = Served> + Send>>
where
    I: Read + Write + Unpin + Send + 'static,
{
    match protocol {
        Protocol::Grpc(calls) => {
            let turns = Turns::default();
            let io = Gather::new(io, turns.clone());
            let connection = Box::pin(grpc_builder().serve_connection(io, calls));
            let served = until_drained(connection, |it| it.graceful_shutdown(), phases);
            Box::pin(turns.of(Box::pin(served)))
        }
        Protocol::Http(router) => {
            let service = TowerToHyperService::new(router);
            let connection = Box::pin(http_builder().serve_connection(io, service));
            Box::pin(until_drained(connection, |it| it.graceful_shutdown(), phases))
        }
        Protocol::Both(both) => Box::pin(async move {
            let (builder, turns) = (either_builder(), Turns::default());
            let io = Gather::new(io, turns.clone());
            let connection = Box::pin(builder.serve_connection(io, both));
            let served = until_drained(connection, |it| it.graceful_shutdown(), phases);
            turns.of(Box::pin(served)).await
        }),
    }
}

fn grpc_builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .auto_date_header(false);
    builder
}

/// The first bytes of a connection tell which of the two it is.
fn either_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .auto_date_header(false);
    builder
}

fn http_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT);
    builder
}

/// Serves until the client leaves, or asks it to leave when the server drains.
async fn until_drained<C, E>(
    mut connection: Pin<Box<C>>,
    shut_down: impl FnOnce(Pin<&mut C>),
    phases: &'static Phases,
) -> Served
where
    C: Future<Output = Result<(), E>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if let Some(ended) = phases.draining.run_until_cancelled(connection.as_mut()).await {
        return ended.map_err(Into::into);
    }
    shut_down(connection.as_mut());
    connection.await.map_err(Into::into)
}
