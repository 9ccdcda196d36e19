//! A minimal HTTP client for a single request to a token server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum size of a response; tokens are small.
const BODY_BYTES_MAX: usize = 256 << 10;

/// Sends a request and returns the body of a successful response.
pub async fn send(request: Request<Bytes>) -> Result<Bytes, String> {
    let uri = request.uri().clone();
    let failed = |why: String| format!("{uri}: {why}");
    let (status, body) = tokio::time::timeout(TIMEOUT, exchange(&uri, request))
        .await
        .map_err(|_| failed(format!("no response within {} s", TIMEOUT.as_secs())))?
        .map_err(failed)?;
    if status.is_success() {
        return Ok(body);
    }
    let excerpt = String::from_utf8_lossy(&body[..body.len().min(300)]).replace('\n', " ");
    Err(failed(format!("{status}: {excerpt}")))
}

async fn exchange(uri: &Uri, request: Request<Bytes>) -> Result<(StatusCode, Bytes), String> {
    let host = uri.host().ok_or("the address has no host")?;
    let secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err("the address must begin with https:// or http://".into()),
    };
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((name, port)).await.map_err(|error| error.to_string())?;
    let response = if secure {
        let name = ServerName::try_from(name.to_string()).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(tls()?);
        let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        exchange_over(stream, uri, request).await?
    } else {
        exchange_over(stream, uri, request).await?
    };
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
    Ok((parts.status, body.map_err(|error| error.to_string())?.to_bytes()))
}

/// Returns a configuration that trusts the system's certificates.
fn tls() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Sends the request over an open connection.
async fn exchange_over(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    uri: &Uri,
    request: Request<Bytes>,
) -> Result<Response<hyper::body::Incoming>, String> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    // Ends when the response has been read.
    tokio::spawn(connection);
    let (mut parts, body) = request.into_parts();
    let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
    let host = authority.parse().map_err(|_| "the address has no host")?;
    parts.headers.insert(header::HOST, host);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse().map_err(|_| "the address has no path")?;
    let request = Request::from_parts(parts, Full::new(body));
    sender.send_request(request).await.map_err(|error| error.to_string())
}
