//! Open connections, kept for the next request to the same server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Response;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpRequestBody};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{interrupted, tls};

/// Servers close idle connections after some seconds; older ones are not tried.
const IDLE: Duration = Duration::from_secs(15);
/// Idle connections that are kept for one server.
const IDLE_MAX: usize = 64;

/// A server to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub secure: bool,
    pub host: String,
    pub port: u16,
}

type Sender = SendRequest<HttpRequestBody>;

pub struct Pool {
    idle: Mutex<HashMap<Origin, Vec<(Sender, Instant)>>>,
    /// Loaded at the first secure connection.
    tls: Mutex<Option<Arc<ClientConfig>>>,
}

/// A connection that carries a response. It returns to its pool when the response has
/// been read.
pub struct Lent {
    pool: Arc<Pool>,
    origin: Origin,
    /// Locked only so that a response may be shared between threads.
    sender: Mutex<Option<Sender>>,
}

impl Pool {
    pub fn new() -> Pool {
        Pool { idle: Mutex::default(), tls: Mutex::default() }
    }

    /// Sends a request over an idle connection or over a new one. A connection that was
    /// closed before anything was sent is replaced.
    pub async fn send(
        self: &Arc<Pool>,
        origin: &Origin,
        mut request: HttpRequest,
    ) -> Result<(Response<Incoming>, Lent), HttpError> {
        while let Some(mut sender) = self.take(origin) {
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, self.lend(origin, sender))),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(interrupted(error.into_error())),
                },
            }
        }
        let mut sender = self.connect(origin).await?;
        let response = sender.send_request(request).await.map_err(interrupted)?;
        Ok((response, self.lend(origin, sender)))
    }

    fn lend(self: &Arc<Pool>, origin: &Origin, sender: Sender) -> Lent {
        let sender = Mutex::new(Some(sender));
        Lent { pool: self.clone(), origin: origin.clone(), sender }
    }

    fn take(&self, origin: &Origin) -> Option<Sender> {
        let mut idle = self.idle.lock();
        let senders = idle.get_mut(origin)?;
        while let Some((sender, since)) = senders.pop() {
            if since.elapsed() < IDLE && !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    async fn connect(&self, origin: &Origin) -> Result<Sender, HttpError> {
        let stream = TcpStream::connect((origin.host.as_str(), origin.port))
            .await
            .map_err(connect_failed)?;
        stream.set_nodelay(true).map_err(connect_failed)?;
        if !origin.secure {
            return handshake(stream).await;
        }
        let name = ServerName::try_from(origin.host.clone())
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let connector = TlsConnector::from(self.tls().map_err(connect_failed)?);
        handshake(connector.connect(name, stream).await.map_err(connect_failed)?).await
    }

    fn tls(&self) -> std::io::Result<Arc<ClientConfig>> {
        let mut tls = self.tls.lock();
        if let Some(config) = &*tls {
            return Ok(config.clone());
        }
        Ok(tls.insert(tls::config()?).clone())
    }
}

impl Lent {
    /// Returns the connection to the pool.
    pub fn release(&self) {
        let Some(sender) = self.sender.lock().take().filter(|sender| !sender.is_closed()) else {
            return;
        };
        let mut idle = self.pool.idle.lock();
        let senders = idle.entry(self.origin.clone()).or_default();
        if senders.len() < IDLE_MAX {
            senders.push((sender, Instant::now()));
        }
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Sender, HttpError> {
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(connect_failed)?;
    // Ends when the sender is dropped or the server closes the connection.
    tokio::spawn(connection);
    Ok(sender)
}

fn connect_failed(error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Connect, error)
}
