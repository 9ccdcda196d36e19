//! `stele inject`: lists and replaces the fault injection rules of a running server.

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::{Args, Subcommand};
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

use crate::Outcome;
use crate::output::{count, json_line, table};
use crate::reach::{self, TlsFiles};
use crate::serve::inject::{PATH, Shown, Wanted};

/// The maximum size of a response, which is a list of rules.
const ANSWER_BYTES_MAX: usize = 1 << 20;

#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  stele serve --ephemeral --inject '' &
  stele inject set 'ReadRows:latency=10ms..80ms,unavailable=1%' 'MutateRow@users:aborted=5%'
  stele inject list
  stele inject clear

The server must have been started with --inject and be on this machine.")]
pub enum Command {
    /// Show the rules and how many calls they have affected.
    List(Server),
    /// Replace all rules.
    Set {
        /// METHOD[@TABLE]:EFFECTS, where METHOD may be SERVICE/METHOD or *, and EFFECTS
        /// are latency=TIME, latency=TIME..TIME and CODE=PERCENT%, separated by commas.
        #[arg(required = true, value_name = "RULE")]
        rules: Vec<String>,
        /// Seed that selects the affected calls; the same seed selects the same calls.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        #[command(flatten)]
        server: Server,
    },
    /// Remove all rules.
    Clear(Server),
}

#[derive(Args)]
pub struct Server {
    /// HTTP address of the server: host:port, or https://host:port.
    #[arg(long, value_name = "HOST:PORT", env = "STELE_HTTP", default_value = "127.0.0.1:8080")]
    http: String,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: TlsFiles,
}

pub fn run(command: Command) -> anyhow::Result<Outcome> {
    let (method, body, server) = match command {
        Command::List(server) => (Method::GET, Bytes::new(), server),
        Command::Clear(server) => (Method::DELETE, Bytes::new(), server),
        Command::Set { rules, seed, server } => {
            (Method::PUT, serde_json::to_vec(&Wanted { rules, seed })?.into(), server)
        }
    };
    let answer = reach::run(server.ask(method, body))?;
    server.show(&serde_json::from_slice(&answer).context("the answer of the server")?)?;
    Ok(Outcome::Sound)
}

impl Server {
    async fn ask(&self, method: Method, body: Bytes) -> anyhow::Result<Bytes> {
        let address = match self.http.contains("://") {
            true => self.http.clone(),
            false => format!("http://{}", self.http),
        };
        let uri: Uri = format!("{}{PATH}", address.trim_end_matches('/'))
            .parse()
            .with_context(|| format!("--http {}", self.http))?;
        let secure = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_string();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(PATH)
            .header(header::HOST, authority)
            .body(String::from_utf8(body.to_vec())?)?;
        let stream = TcpStream::connect((&*bare, port)).await.with_context(|| {
            format!("cannot reach {}: start a server with `stele serve`, or see --http", self.http)
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
        let ca = files.ca.context("give the server's authority with --tls-ca")?;
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

    fn show(&self, rules: &Shown) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            return Ok(json_line(&mut out, &serde_json::to_value(rules)?)?);
        }
        if rules.rules.is_empty() {
            writeln!(out, "no rules")?;
            return Ok(());
        }
        let mut shown = table(&["rule", "calls", "failed"], 1);
        for rule in &rules.rules {
            shown.add_row([rule.rule.clone(), count(rule.matched), count(rule.failed)]);
        }
        writeln!(out, "{shown}")?;
        Ok(())
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
    let answer = read(response.into_body()).await?;
    if !status.is_success() {
        bail!("{}", String::from_utf8_lossy(&answer).trim());
    }
    Ok(answer)
}

async fn read(mut body: Incoming) -> anyhow::Result<Bytes> {
    let mut answer = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            answer.extend_from_slice(&data);
        }
        if answer.len() > ANSWER_BYTES_MAX {
            bail!("the answer of the server is too large");
        }
    }
    Ok(answer.into())
}
