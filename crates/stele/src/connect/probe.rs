//! Asks a port which server it belongs to. Every port of Stele answers a GET of
//! [`PATH`] over HTTP/1.1, also the one for gRPC.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde::Deserialize;

use super::address::{Address, Service};

/// The page on which a server describes its ports.
pub const PATH: &str = "/.well-known/stele";

/// How long the whole probe may take.
const LIMIT: Duration = Duration::from_secs(1);
const ANSWER_BYTES_MAX: u64 = 16 << 10;

/// What listens at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Stele(Ports),
    /// Another HTTP/1.1 server.
    OtherHttp,
    /// A server that does not answer HTTP/1.1, such as one that speaks only gRPC.
    Other,
    Unreachable(String),
}

/// The ports of a server of Stele, as it describes itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Ports {
    /// The version of the server.
    pub stele: String,
    /// The port that answered.
    pub this: String,
    pub grpc: Option<u16>,
    pub http: Option<u16>,
    pub metastore: Option<u16>,
}

impl Ports {
    pub fn of(&self, service: Service) -> Option<u16> {
        match service {
            Service::Grpc => self.grpc,
            Service::Http => self.http,
            Service::Metastore => self.metastore,
        }
    }

    /// Returns the service whose port answered.
    pub fn answered(&self) -> Option<Service> {
        Service::ALL.into_iter().find(|service| service.key() == self.this)
    }
}

/// Asks what listens at an address. `tls` is needed for https.
pub fn probe(address: &Address, port: u16, tls: Option<Arc<ClientConfig>>) -> Found {
    let deadline = Instant::now() + LIMIT;
    let stream = match connect(address, port, deadline) {
        Ok(stream) => stream,
        Err(error) => return Found::Unreachable(error.to_string()),
    };
    let request = format!(
        "GET {PATH} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        address.authority(port)
    );
    let answer = match (address.secure, tls) {
        (false, _) => exchange(stream, &request, deadline),
        (true, Some(tls)) => {
            secured(address, stream, tls).and_then(|stream| exchange(stream, &request, deadline))
        }
        (true, None) => return Found::Other,
    };
    answer.map_or(Found::Other, |answer| classify(&answer))
}

fn connect(address: &Address, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for at in (&*address.host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&at, left) {
            Ok(stream) => {
                stream.set_read_timeout(Some(left))?;
                stream.set_write_timeout(Some(left))?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn secured(
    address: &Address,
    stream: TcpStream,
    tls: Arc<ClientConfig>,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
    let connection = ClientConnection::new(tls, name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, stream))
}

/// Sends the request and reads what arrives before the end, the limit or the deadline.
fn exchange(
    mut stream: impl Read + Write,
    request: &str,
    deadline: Instant,
) -> io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while Instant::now() < deadline && (answer.len() as u64) < ANSWER_BYTES_MAX {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            // Servers may close without TLS's goodbye, and keep connections open.
            Err(_) if !answer.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

fn classify(answer: &[u8]) -> Found {
    let text = String::from_utf8_lossy(answer);
    if !text.starts_with("HTTP/1.") {
        return Found::Other;
    }
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    match serde_json::from_str(body) {
        Ok(ports) => Found::Stele(ports),
        Err(_) => Found::OtherHttp,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Returns what is found at a server that sends this answer.
    fn found(answer: &'static [u8]) -> Found {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 8];
            stream.read_exact(&mut head).unwrap();
            assert_eq!(&head, b"GET /.we");
            stream.write_all(answer).unwrap();
        });
        let found = probe(&Address::parse("127.0.0.1").unwrap(), port, None);
        server.join().unwrap();
        found
    }

    #[test]
    fn a_port_is_known_by_its_answer() {
        let stele =
            b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"stele\":\"0.1.0\",\"this\":\"http\",\"grpc\":7}";
        let Found::Stele(ports) = found(stele) else { panic!("not recognised") };
        assert_eq!((ports.answered(), ports.grpc), (Some(Service::Http), Some(7)));
        assert_eq!(ports.of(Service::Metastore), None);
        assert_eq!(found(b"HTTP/1.1 404 Not Found\r\n\r\nno"), Found::OtherHttp);
        assert_eq!(found(b"\0\0\x06\x04\0\0\0\0\0"), Found::Other);
        assert_eq!(found(b""), Found::Other);
    }

    #[test]
    fn a_port_without_a_server_is_unreachable() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let found = probe(&Address::parse("127.0.0.1").unwrap(), port, None);
        assert!(matches!(found, Found::Unreachable(_)), "{found:?}");
    }
}
