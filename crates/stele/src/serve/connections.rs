//! Accepts connections and serves each in its own task until it ends or the server shuts
//! down.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::routing::future::RouteFuture;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

use super::auth::Guard;
use super::call::Calls;
use super::gather::{Gather, PollCount};
use super::listen;
use super::metastore::Both;
use super::metrics::{Connections, Metrics};
use super::monitored_io::{Activity, MonitoredIo};
use super::shutdown::Phases;
use super::stream::Streams;
use super::timeouts::timeouts;
use super::upload;

/// Pause before the next accept when the system is out of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How much a client may send before its request is read. Together with the number of
/// connections, this bounds the unread bytes in memory.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
const FRAME_BYTES_MAX: u32 = 64 << 10;
const STREAMS_MAX: u32 = 1024;
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// How far a response may run ahead of its connection.
const SEND_BUFFER_BYTES: usize = 512 << 10;

/// The first byte of a TLS connection, which no HTTP connection starts with.
const TLS_HANDSHAKE: u8 = 0x16;
/// The first byte of a GET over HTTP/1.1, which no HTTP/2 connection starts with.
const HTTP1_GET: u8 = b'G';

/// The protocol of a port's connections.
#[derive(Clone)]
pub enum Protocol {
    Grpc(Calls),
    Http(Pages),
    /// gRPC and HTTP on one port.
    Both(Both),
}

/// Plain HTTP pages as one connection requests them.
#[derive(Clone)]
pub struct Pages {
    pub router: Router,
    pub metrics: &'static Metrics,
    /// Identifies callers, if they are checked.
    pub guard: Option<Guard>,
}

impl Pages {
    fn with_peer(mut self, client: SocketAddr) -> Pages {
        self.guard = self.guard.map(|guard| guard.with_peer(client));
        self
    }

    fn with_certificate(mut self, certificate: Option<CertificateDer<'static>>) -> Pages {
        self.guard = self.guard.map(|guard| guard.with_certificate(certificate));
        self
    }
}

impl Service<http::Request<Incoming>> for Pages {
    type Response = axum::response::Response;
    type Error = Infallible;
    type Future = RouteFuture<Infallible>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let mut request = upload::monitor(request, &self.metrics.memory);
        if let Some(guard) = &self.guard {
            request.extensions_mut().insert(guard.clone());
        }
        tower_service::Service::call(&mut self.router.clone(), request)
    }
}

/// A service that records that its connection has sent a request.
struct Recorded<S> {
    service: S,
    activity: Activity,
}

impl<S: Service<R>, R> Service<R> for Recorded<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, request: R) -> S::Future {
        self.activity.record_request();
        self.service.call(request)
    }
}

impl Protocol {
    /// Attaches the certificate that this connection's client presented.
    fn with_certificate(self, certificate: Option<CertificateDer<'static>>) -> Protocol {
        match self {
            Protocol::Grpc(calls) => Protocol::Grpc(calls.with_certificate(certificate)),
            Protocol::Both(Both { calls, pages }) => {
                let pages = pages.with_certificate(certificate.clone());
                Protocol::Both(Both { calls: calls.with_certificate(certificate), pages })
            }
            Protocol::Http(pages) => Protocol::Http(pages.with_certificate(certificate)),
        }
    }

    /// Replaces gRPC by the pages for HTTP/1.1 if the client speaks that.
    fn or_http1(self, pages: Option<Pages>, speaks_http1: bool) -> Protocol {
        match (self, pages.filter(|_| speaks_http1)) {
            (Protocol::Grpc(_), Some(pages)) => Protocol::Http(pages),
            (protocol, _) => protocol,
        }
    }

    /// Attaches the client's address, for the pages and calls that need it.
    fn with_peer(self, address: SocketAddr) -> Protocol {
        match self {
            Protocol::Http(mut pages) => {
                pages.router = pages.router.layer(Extension(Peer(address)));
                Protocol::Http(pages.with_peer(address))
            }
            Protocol::Grpc(calls) => Protocol::Grpc(calls.with_peer(address)),
            Protocol::Both(Both { calls, pages }) => {
                let (calls, pages) = (calls.with_peer(address), pages.with_peer(address));
                Protocol::Both(Both { calls, pages })
            }
        }
    }
}

/// The address of a client, as an extension of HTTP requests.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// A listening port and everything needed to serve its connections.
pub struct Acceptor {
    pub listener: TcpListener,
    pub tls: Option<TlsAcceptor>,
    /// Whether connections without TLS are accepted beside those with it.
    pub plain_text: bool,
    pub protocol: Protocol,
    /// What a port for gRPC answers to HTTP/1.1.
    pub http1: Option<Pages>,
    pub counters: &'static Connections,
    pub metrics: &'static Metrics,
    pub phases: &'static Phases,
    /// One permit per open connection.
    pub permits: Arc<Semaphore>,
    pub tasks: TaskTracker,
}

impl Acceptor {
    /// Accepts connections until the server drains.
    pub async fn run(self) {
        while let Some((connection, permit)) = self.next().await {
            let open = self.counters.open();
            let (protocol, plain_text) = (self.protocol.clone(), self.plain_text);
            let http1 = self.http1.clone();
            let tls = self.tls.clone();
            let shared = Shared { phases: self.phases, streams: Streams { metrics: self.metrics } };
            self.tasks.spawn(async move {
                let served = serve(connection, protocol, http1, tls, plain_text, shared);
                let served = shared.phases.closing.run_until_cancelled(served);
                if let Some(Err(error)) = served.await {
                    // Clients disconnect all the time, so this is logged only at debug
                    // level.
                    tracing::debug!(%error, "connection closed");
                }
                drop((open, permit));
            });
        }
    }

    async fn next(&self) -> Option<(TcpStream, OwnedSemaphorePermit)> {
        let accepting = async {
            loop {
                let permit = self.permits.clone().acquire_owned().await.ok()?;
                match self.listener.accept().await {
                    Ok((connection, _)) => return Some((connection, permit)),
                    Err(error) if is_connection_error(&error) => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept connections; retrying");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        self.phases.draining.run_until_cancelled(accepting).await?
    }
}

/// Returns whether a connection failed before it was accepted.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

type ServeResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// State that all connections share.
#[derive(Clone, Copy)]
struct Shared {
    phases: &'static Phases,
    streams: Streams,
}

async fn serve(
    connection: TcpStream,
    protocol: Protocol,
    http1: Option<Pages>,
    tls: Option<TlsAcceptor>,
    plain_text: bool,
    shared: Shared,
) -> ServeResult {
    listen::prepare(&connection)?;
    let protocol = protocol.with_peer(connection.peer_addr()?);
    // Allocates nothing for a connection that sends no byte.
    let mut first = [0];
    let peeked = timeout(timeouts().first_byte, connection.peek(&mut first));
    let peeked = shared.phases.draining.run_until_cancelled(peeked).await;
    if peeked.transpose()?.transpose()?.is_none_or(|bytes| bytes == 0) {
        return Ok(());
    }
    match tls.filter(|_| !plain_text || first[0] == TLS_HANDSHAKE) {
        None => {
            let protocol = protocol.or_http1(http1, first[0] == HTTP1_GET);
            serve_plain(connection, protocol, shared).await
        }
        Some(tls) => {
            let handshake = Box::pin(timeout(timeouts().handshake, tls.accept(connection)));
            let secured = handshake.await??;
            let presented = secured.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let chosen = secured.get_ref().1.alpn_protocol() == Some(b"http/1.1");
            let protocol = protocol.with_certificate(presented.cloned());
            let protocol = protocol.or_http1(http1, chosen);
            serve_plain(secured, protocol, shared).await
        }
    }
}

/// Serves a connection. Boxed, as every large part of a connection is, so that an idle
/// connection takes only the memory of its own kind and not that of the largest.
fn serve_plain<I>(
    io: I,
    protocol: Protocol,
    shared: Shared,
) -> Pin<Box<dyn Future<Output = ServeResult> + Send>>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Activity::default();
    let io = TokioIo::new(MonitoredIo::new(io, activity.clone()));
    match protocol {
        Protocol::Grpc(service) => {
            let polls = PollCount::default();
            let io = Gather::new(io, polls.clone());
            let service = Recorded { service, activity: activity.clone() };
            let connection = Box::pin(grpc_builder(shared).serve_connection(io, service));
            let served = until_done(connection, |it| it.graceful_shutdown(), activity, shared);
            Box::pin(polls.count(Box::pin(served)))
        }
        Protocol::Http(service) => {
            let service = Recorded { service, activity: activity.clone() };
            let connection = Box::pin(http_builder().serve_connection(io, service));
            Box::pin(until_done(connection, |it| it.graceful_shutdown(), activity, shared))
        }
        Protocol::Both(service) => Box::pin(async move {
            let (builder, polls) = (either_builder(shared), PollCount::default());
            let io = Gather::new(io, polls.clone());
            let service = Recorded { service, activity: activity.clone() };
            let connection = Box::pin(builder.serve_connection(io, service));
            let served = until_done(connection, |it| it.graceful_shutdown(), activity, shared);
            polls.count(Box::pin(served)).await
        }),
    }
}

/// Configures HTTP/2 identically in both kinds of builders, which share no trait.
macro_rules! http2 {
    ($builder:expr) => {
        $builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES_MAX)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEADERS_BYTES_MAX)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .keep_alive_interval(timeouts().ping)
            .keep_alive_timeout(timeouts().ping_reply)
            .auto_date_header(false)
    };
}

fn grpc_builder(shared: Shared) -> http2::Builder<Streams> {
    let mut builder = http2::Builder::new(shared.streams);
    http2!(builder);
    builder
}

/// Builds connections whose first bytes select HTTP/1 or HTTP/2.
fn either_builder(shared: Shared) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(shared.streams);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(timeouts().head);
    http2!(builder.http2());
    builder
}

fn http_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(timeouts().head);
    builder
}

/// Serves until the client disconnects. Starts a graceful close when the server drains or
/// when the client sends no request in time; a client whose preface does not arrive in
/// time is disconnected immediately.
async fn until_done<C, E>(
    mut connection: Pin<Box<C>>,
    shut_down: impl FnOnce(Pin<&mut C>),
    activity: Activity,
    shared: Shared,
) -> ServeResult
where
    C: Future<Output = Result<(), E>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut timed_out = Box::pin(async {
        tokio::select! {
            () = activity.preface_timeout() => false,
            () = activity.request_timeout() => true,
        }
    });
    // Skips the timers once they are no longer needed, since this is polled on every poll
    // of the connection.
    let idle = poll_fn(|cx| match activity.has_request() {
        true => Poll::Pending,
        false => timed_out.as_mut().poll(cx),
    });
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended.map_err(Into::into),
        () = shared.phases.draining.cancelled() => {}
        has_preface = idle => match has_preface {
            true => tracing::debug!("closing a connection without a request"),
            false => return Err("timeout waiting for the HTTP/2 preface".into()),
        },
    }
    drop(timed_out);
    shut_down(connection.as_mut());
    connection.await.map_err(Into::into)
}
