//! The transport over TCP.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_engine::fatal::Mutex;
use stele_grpc::Pending;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::connection::Connection;
use super::handshake::{self, Hello};
use super::roster::PeerUrl;
use super::server::PeerServer;
use crate::consensus::{Inbox, Lane, Member, Transport, Unreached};

/// How long connecting may take.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The TLS settings of both sides of a connection; each shows a certificate.
#[derive(Clone)]
pub struct PeerTls {
    pub connector: TlsConnector,
    pub acceptor: TlsAcceptor,
}

/// The network of a member over TCP.
pub struct PeerTransport {
    cluster: u64,
    member: u64,
    listener: Arc<TcpListener>,
    tls: Option<PeerTls>,
    peers: Mutex<BTreeMap<u64, Arc<Peer>>>,
    serving: Mutex<Option<JoinHandle<()>>>,
}

/// Another member and the connections to it, one for each lane.
struct Peer {
    urls: Vec<PeerUrl>,
    lanes: [tokio::sync::Mutex<Option<Arc<Connection>>>; Lane::COUNT],
}

impl PeerTransport {
    /// Creates the transport of a member that listens on `listener`. It reaches no
    /// others until they are set.
    pub fn new(
        cluster: u64,
        member: u64,
        listener: TcpListener,
        tls: Option<PeerTls>,
    ) -> PeerTransport {
        let (listener, peers) = (Arc::new(listener), Mutex::default());
        PeerTransport { cluster, member, listener, tls, peers, serving: Mutex::new(None) }
    }
}

impl Transport for PeerTransport {
    fn call(
        &self,
        to: u64,
        lane: Lane,
        request: Bytes,
    ) -> Pending<'static, Result<Bytes, Unreached>> {
        let hello = Hello { cluster: self.cluster, from: self.member, to };
        let (peer, tls) = (self.peers.lock().get(&to).cloned(), self.tls.clone());
        Box::pin(async move {
            let Some(peer) = peer else {
                return Err(Unreached::NotSent(format!("{to:x} is not a member")));
            };
            let connection = peer.connection(lane, hello, tls).await;
            let connection = connection.map_err(|error| {
                Unreached::NotSent(format!("connecting to {}: {error}", peer.name()))
            })?;
            let closed =
                |what: &str| format!("the connection to {} was closed {what}", peer.name());
            let Some(response) = connection.call(request) else {
                return Err(Unreached::NotSent(closed("before the request was sent")));
            };
            response.await.map_err(|_| Unreached::Unknown(closed("before a response arrived")))
        })
    }

    /// Keeps the connections to members whose addresses have not changed.
    fn set_members(&self, members: &[Member]) {
        let others = members.iter().filter(|member| member.id != self.member);
        let mut peers = self.peers.lock();
        let mut next = BTreeMap::new();
        for Member { id, record, .. } in others {
            let urls: Vec<PeerUrl> =
                record.peer_urls.iter().filter_map(|url| PeerUrl::parse(url).ok()).collect();
            let known = peers.get(id).filter(|peer| peer.urls == urls).cloned();
            let new = || Arc::new(Peer { urls, lanes: Default::default() });
            next.insert(*id, known.unwrap_or_else(new));
        }
        *peers = next;
    }

    fn serve(&self, inbox: Arc<dyn Inbox>) {
        let server = Arc::new(PeerServer {
            cluster: self.cluster,
            member: self.member,
            tls: self.tls.clone(),
            inbox,
        });
        let serving = tokio::spawn(server.run(self.listener.clone()));
        if let Some(before) = self.serving.lock().replace(serving) {
            before.abort();
        }
    }

    fn close(&self) {
        if let Some(serving) = self.serving.lock().take() {
            serving.abort();
        }
    }
}

impl Peer {
    /// Returns the open connection of a lane, or opens one. A caller that gives up
    /// does not interrupt that: heartbeats wait less than a connection may take.
    async fn connection(
        self: &Arc<Self>,
        lane: Lane,
        hello: Hello,
        tls: Option<PeerTls>,
    ) -> io::Result<Arc<Connection>> {
        if let Ok(open) = self.lanes[lane as usize].try_lock()
            && let Some(connection) = open.as_ref().filter(|connection| connection.is_open())
        {
            return Ok(connection.clone());
        }
        let peer = self.clone();
        let opening = async move { peer.open_connection(lane, hello, tls.as_ref()).await };
        tokio::spawn(opening).await.map_err(io::Error::other)?
    }

    async fn open_connection(
        &self,
        lane: Lane,
        hello: Hello,
        tls: Option<&PeerTls>,
    ) -> io::Result<Arc<Connection>> {
        let mut open = self.lanes[lane as usize].lock().await;
        if let Some(connection) = open.as_ref().filter(|connection| connection.is_open()) {
            return Ok(connection.clone());
        }
        let connected = tokio::time::timeout(CONNECT_MAX, self.connect(hello, tls)).await;
        let connection =
            Arc::new(connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??);
        *open = Some(connection.clone());
        Ok(connection)
    }

    /// Connects to the first address that works.
    async fn connect(&self, hello: Hello, tls: Option<&PeerTls>) -> io::Result<Connection> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "it has no address");
        for url in &self.urls {
            let connected = async {
                let mut stream = open(url, tls).await?;
                handshake::introduce(&mut stream, hello).await?;
                io::Result::Ok(Connection::start(stream))
            };
            match connected.await {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Returns the addresses, for messages.
    fn name(&self) -> String {
        self.urls.iter().map(PeerUrl::to_string).collect::<Vec<_>>().join(" or ")
    }
}

/// A connection before it is known what is spoken on it.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens a connection to an address.
pub async fn open(url: &PeerUrl, tls: Option<&PeerTls>) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect((url.host.as_str(), url.port)).await?;
    stream.set_nodelay(true)?;
    match tls {
        None => Ok(Box::new(stream)),
        Some(tls) => {
            let name = ServerName::try_from(url.host.clone()).map_err(io::Error::other)?;
            Ok(Box::new(tls.connector.connect(name, stream).await?))
        }
    }
}
