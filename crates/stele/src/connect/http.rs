//! The HTTP port of a server, for commands that use its API.

use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use http::{Method, Request, Uri, header};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::{HTTP, with_scheme};
use super::runtime;
use super::tls::TlsFiles;

/// The maximum size of a response.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

#[derive(Args)]
pub struct HttpServer {
    /// HTTP address of the server: host:port, or https://host:port.
    #[arg(long, value_name = "HOST:PORT", env = "STELE_HTTP", default_value = HTTP)]
    http: String,
    #[command(flatten)]
    tls: TlsFiles,
}

impl HttpServer {
    /// Sends one request and returns the body of its response.
    pub fn request(&self, method: Method, path: &str, body: String) -> anyhow::Result<Bytes> {
        runtime::run(self.send(method, path, body))
    }

    async fn send(&self, method: Method, path: &str, body: String) -> anyhow::Result<Bytes> {
        let address = with_scheme(&self.http, false);
        let uri: Uri = format!("{}{path}", address.trim_end_matches('/'))
            .parse()
            .with_context(|| format!("--http {}", self.http))?;
        let secure = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_string();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, authority)
            .body(body)?;
        let stream = TcpStream::connect((&*bare, port)).await.with_context(|| {
            format!(
                "cannot reach {}: start a server with `stele serve`, or pass its address with --http",
                self.http
            )
        })?;
        if !secure {
            return exchange(stream, request).await;
        }
        let connector = TlsConnector::from(Arc::new(self.tls_config()?));
        let name = ServerName::try_from(bare).with_context(|| format!("--http {}", self.http))?;
        exchange(connector.connect(name, stream).await?, request).await
    }

    fn tls_config(&self) -> anyhow::Result<ClientConfig> {
        let files = self.tls.read()?;
        let ca = files.ca.context("pass the certificate authority of the server with --tls-ca")?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&ca) {
            roots.add(authority.context("--tls-ca")?).context("--tls-ca")?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let Some((certificate, key)) = files.identity else {
            return Ok(config.with_no_client_auth());
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
        let key = PrivateKeyDer::from_pem_slice(key.expose()).context("--tls-key")?;
        Ok(config.with_client_auth_cert(chain.context("--tls-cert")?, key)?)
    }
}

/// Sends one request and reads the response.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<String>,
) -> anyhow::Result<Bytes> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = read(response.into_body()).await?;
    if !status.is_success() {
        bail!("{}", String::from_utf8_lossy(&body).trim());
    }
    Ok(body)
}

async fn read(mut body: Incoming) -> anyhow::Result<Bytes> {
    let mut received = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            received.extend_from_slice(&data);
        }
        if received.len() > RESPONSE_BYTES_MAX {
            bail!("the response of the server is too large");
        }
    }
    Ok(received.into())
}
