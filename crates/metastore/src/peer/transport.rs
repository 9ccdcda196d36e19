//! The transport over TCP.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_engine::fatal::Mutex;
use stele_grpc::Pending;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::connection::Connection;
use super::handshake::{self, Hello};
use super::roster::{PeerUrl, Roster};
use super::server::PeerServer;
use crate::consensus::{Inbox, Lane, Transport, Unreached};

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
    peers: BTreeMap<u64, Arc<Peer>>,
    serving: Mutex<Option<JoinHandle<()>>>,
}

/// Another member and the connections to it, one for each lane.
struct Peer {
    url: PeerUrl,
    lanes: [tokio::sync::Mutex<Option<Arc<Connection>>>; 3],
}

impl PeerTransport {
    /// Creates the transport of a member that listens on `listener`.
    pub fn new(roster: &Roster, listener: TcpListener, tls: Option<PeerTls>) -> PeerTransport {
        let peer = |(id, url): (u64, &PeerUrl)| {
            (id, Arc::new(Peer { url: url.clone(), lanes: Default::default() }))
        };
        PeerTransport {
            cluster: roster.cluster_id(),
            member: roster.member_id(),
            listener: Arc::new(listener),
            tls,
            peers: roster.others().map(peer).collect(),
            serving: Mutex::new(None),
        }
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
        let (peer, tls) = (self.peers.get(&to).cloned(), self.tls.clone());
        Box::pin(async move {
            let Some(peer) = peer else {
                return Err(Unreached::NotSent(format!("{to:x} is not a member")));
            };
            let connection = peer.connection(lane, hello, tls.as_ref()).await;
            let connection = connection.map_err(|error| {
                Unreached::NotSent(format!("connecting to {}: {error}", peer.url))
            })?;
            let closed = |what: &str| format!("the connection to {} was closed {what}", peer.url);
            let Some(response) = connection.call(request) else {
                return Err(Unreached::NotSent(closed("before the request was sent")));
            };
            response.await.map_err(|_| Unreached::Unknown(closed("before a response arrived")))
        })
    }

    fn serve(&self, inbox: Arc<dyn Inbox>) {
        let mut members: Vec<u64> = self.peers.keys().copied().collect();
        members.push(self.member);
        let server = Arc::new(PeerServer {
            cluster: self.cluster,
            member: self.member,
            members,
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
    /// Returns the open connection of a lane, or opens one.
    async fn connection(
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

    async fn connect(&self, hello: Hello, tls: Option<&PeerTls>) -> io::Result<Connection> {
        let mut stream = TcpStream::connect((self.url.host.as_str(), self.url.port)).await?;
        stream.set_nodelay(true)?;
        match tls {
            None => {
                handshake::introduce(&mut stream, hello).await?;
                Ok(Connection::start(stream))
            }
            Some(tls) => {
                let name = ServerName::try_from(self.url.host.clone()).map_err(io::Error::other)?;
                let mut stream = tls.connector.connect(name, stream).await?;
                handshake::introduce(&mut stream, hello).await?;
                Ok(Connection::start(stream))
            }
        }
    }
}
