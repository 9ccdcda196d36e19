//! The HTTP port of a server, for commands that use its API.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use http::{HeaderValue, Method, Request, Uri, header};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use stele_grpc::keeps_secrets;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::Service;
use super::runtime;
use super::server::{ServerArgs, Target};
use super::tls::TlsFiles;
use crate::private::read_secret_text;

/// The maximum size of a response.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub struct HttpServer {
    /// File that contains a token of `stele auth token create`.
    #[arg(long, value_name = "FILE", env = "STELE_TOKEN_FILE", hide_env_values = true)]
    token_file: Option<PathBuf>,
    /// Send the token in plain text to other hosts too.
    #[arg(long)]
    insecure_token: bool,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub tls: TlsFiles,
}

impl HttpServer {
    /// Finds the HTTP port.
    pub fn target(&self) -> anyhow::Result<Target> {
        let chosen = self.server.choose(&["STELE_HTTP"])?;
        self.server.find(&chosen, Service::Http, &self.tls.or(chosen.context.as_ref()))
    }

    /// Sends one request and returns the body of its response.
    pub fn request(&self, method: Method, path: &str, body: String) -> anyhow::Result<Bytes> {
        let chosen = self.server.choose(&["STELE_HTTP"])?;
        let tls = self.tls.or(chosen.context.as_ref());
        let target = self.server.find(&chosen, Service::Http, &tls)?;
        let token = self.bearer(&target)?;
        runtime::run(send(&target, &tls, token, method, path, body))
    }

    /// Returns the header with the token, if there is one that may be sent to the server.
    fn bearer(&self, target: &Target) -> anyhow::Result<Option<HeaderValue>> {
        let Some(file) = &self.token_file else { return Ok(None) };
        if !self.insecure_token && !keeps_secrets(&target.url()) {
            bail!(
                "the token would travel in plain text to {}: use https://, or pass \
                 --insecure-token",
                target.endpoint()
            );
        }
        let token = read_secret_text(file)?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {}", token.expose()))
            .with_context(|| format!("{} contains no token", file.display()))?;
        bearer.set_sensitive(true);
        Ok(Some(bearer))
    }
}

async fn send(
    target: &Target,
    tls: &TlsFiles,
    token: Option<HeaderValue>,
    method: Method,
    path: &str,
    body: String,
) -> anyhow::Result<Bytes> {
    let uri: Uri = format!("{}{path}", target.url()).parse().context("invalid address")?;
    let host = uri.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']').to_string();
    let port = uri.port_u16().unwrap_or(Service::Http.default_port());
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, &target.authority)
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, token);
    }
    let request = request.body(body)?;
    let stream = TcpStream::connect((&*bare, port)).await.with_context(|| {
        format!(
            "cannot reach {}: start a server with `stele serve`, or pass its address with --server",
            target.endpoint()
        )
    })?;
    if !target.secure {
        return exchange(stream, request).await;
    }
    let connector = TlsConnector::from(Arc::new(tls.client_config()?));
    let name = ServerName::try_from(bare).context("invalid host name")?;
    exchange(connector.connect(name, stream).await?, request).await
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
