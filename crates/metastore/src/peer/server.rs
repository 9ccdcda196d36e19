//! Accepts the connections of other members and answers their requests.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

use super::connection::send_all;
use super::frame::{self, Frame};
use super::handshake::{self, Hello};
use super::transport::PeerTls;
use crate::consensus::Inbox;

/// How long a connection may take to introduce itself.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// The maximum number of requests in progress on one connection.
const REQUESTS_MAX: usize = 256;
/// The pause after a failure to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a member accepts.
pub struct PeerServer {
    pub cluster: u64,
    pub member: u64,
    pub tls: Option<PeerTls>,
    pub inbox: Arc<dyn Inbox>,
}

impl PeerServer {
    /// Accepts connections until it is aborted, which also ends them.
    pub async fn run(self: Arc<Self>, listener: Arc<TcpListener>) {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    let server = self.clone();
                    connections.spawn(async move {
                        if let Err(error) = server.serve(stream).await {
                            tracing::debug!(%address, %error, "a connection of a member ended");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection of a member");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
    }

    async fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        match &self.tls {
            None => self.serve_stream(stream).await,
            Some(tls) => {
                let accepted = tokio::time::timeout(HANDSHAKE_MAX, tls.acceptor.accept(stream));
                self.serve_stream(accepted.await??).await
            }
        }
    }

    async fn serve_stream<S>(&self, mut stream: S) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let greeting = async {
            let hello = handshake::read_hello(&mut stream).await?;
            let refusal = self.refusal(hello);
            handshake::reply(&mut stream, refusal.as_deref()).await?;
            match refusal {
                None if hello.is_joining() => {
                    handshake::send_ids(&mut stream, self.cluster, self.member).await?;
                    Ok(hello)
                }
                None => Ok(hello),
                Some(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why)),
            }
        };
        let hello = tokio::time::timeout(HANDSHAKE_MAX, greeting).await??;
        let (mut from, to) = tokio::io::split(stream);
        let (responses, mut queue) = mpsc::unbounded_channel();
        let reading = async {
            let slots = Arc::new(Semaphore::new(REQUESTS_MAX));
            while let Some(Frame { id, payload }) = frame::read(&mut from).await? {
                let slot = slots.clone().acquire_owned().await;
                let slot = slot.expect("the semaphore is never closed");
                let (responses, answer) =
                    (responses.clone(), self.inbox.receive(hello.from, payload));
                tokio::spawn(async move {
                    let payload = answer.await;
                    let _ = responses.send(Frame { id, payload });
                    drop(slot);
                });
            }
            io::Result::Ok(())
        };
        let ended = tokio::select! {
            read = reading => read,
            sent = send_all(to, &mut queue) => sent,
        };
        self.inbox.disconnected(hello.from);
        ended
    }

    /// Returns why a connection is refused.
    fn refusal(&self, hello: Hello) -> Option<String> {
        let Hello { cluster, from, to } = hello;
        if hello.is_joining() {
            return None;
        }
        if cluster != self.cluster {
            let mine = self.cluster;
            return Some(format!(
                "cluster ID mismatch: this member belongs to cluster {mine:x}, not {cluster:x}: \
                 check that all members have the same --initial-cluster"
            ));
        }
        if to != self.member {
            return Some(format!("this is member {:x}, not member {to:x}", self.member));
        }
        // Whether it is a member, the log knows.
        if from == 0 || from == self.member {
            return Some(format!("{from:x} is not another member of this cluster"));
        }
        None
    }
}
