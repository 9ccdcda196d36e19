//! `stele name serve`: a standalone name server on the rows of any Bigtable.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use serde_json::json;
use stele_mounttable::access::AccessList;
use stele_mounttable::dns::{Sockets, Zone};
use stele_mounttable::identity::Tokens;
use stele_mounttable::rows::Limits;
use stele_mounttable::{FirstNodes, Options, Server};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::rows::Rows;
use crate::Outcome;
use crate::connect::{read, threads};
use crate::private::{harden_process, read_secret, read_secret_text};

/// Serve names from the rows of a Bigtable. Any number of servers may share them.
#[derive(Args)]
#[command(after_help = "\
Example:
  stele name serve --bigtable bigtable.example.com:8086 --project p --instance i \\
      --listen 0.0.0.0:8087")]
pub struct Serve {
    #[command(flatten)]
    rows: Rows,
    /// Address to listen on for gRPC.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8087")]
    listen: SocketAddr,
    /// Address to listen on for DNS, UDP and TCP; no DNS if omitted.
    #[arg(long, value_name = "HOST:PORT")]
    dns: Option<SocketAddr>,
    /// Zone that DNS answers for.
    #[arg(long, value_name = "ZONE", default_value = "stele", value_parser = Zone::new)]
    dns_zone: Zone,
    /// Name or IP address of this server in the zone's NS record [default: where DNS
    /// listens].
    #[arg(long, value_name = "HOST")]
    dns_host: Option<String>,
    /// JSON file with nodes and their permissions; missing nodes are created.
    #[arg(long, value_name = "FILE")]
    permissions: Option<PathBuf>,
    /// File with one token and its blessings per line.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Patterns of callers with full access.
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    admin: Vec<String>,
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    max_nodes_per_user: i64,
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    max_servers_per_user: i64,
    /// Seconds to keep empty nodes.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    grace: u64,
    /// Seconds between sweeps for garbage that no operation visits; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    sweep: u64,
    /// Certificate chain (PEM) to present; without it, plain text is used.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Accept client certificates signed by these authorities (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
}

impl Serve {
    pub fn run(self) -> anyhow::Result<Outcome> {
        harden_process();
        let _ = rustls::crypto::ring::default_provider().install_default();
        threads(None)?.block_on(self.serve())?;
        Ok(Outcome::Sound)
    }

    async fn serve(self) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let tokens = tokens(self.tokens.as_deref())?;
        let table = self.rows.mounttable(self.options()?).await?;
        table.ready().await.context("creating the tables")?;
        let listener = TcpListener::bind(self.listen)
            .await
            .with_context(|| format!("listening on {}", self.listen))?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let mut dns_address = None;
        if let Some(at) = self.dns {
            let sockets =
                Sockets::take(at).await.with_context(|| format!("listening on {at} for DNS"))?;
            dns_address = Some(sockets.address()?.to_string());
            let stopped = stop.clone().cancelled_owned();
            tokio::spawn(sockets.serve(table.clone(), self.zone()?, stopped));
        }
        if self.sweep > 0 {
            tokio::spawn(table.clone().sweep_forever(Duration::from_secs(self.sweep)));
        }
        let mut builder = tonic::transport::Server::builder();
        if let Some(tls) = self.tls()? {
            builder = builder.tls_config(tls)?;
        }
        let (health, health_service) = tonic_health::server::health_reporter();
        health
            .set_serving::<stele_mounttable::proto::mounttable_server::MounttableServer<Server>>()
            .await;
        let serving = builder
            .add_service(Server::new(table, tokens).service())
            .add_service(health_service)
            .serve_with_incoming_shutdown(
                TcpIncoming::from(listener).with_nodelay(Some(true)),
                stop.clone().cancelled_owned(),
            );
        let ready = json!({
            "ready": true,
            "grpc": address.to_string(),
            "dns": dns_address,
            "pid": std::process::id(),
        });
        println!("{ready}");
        let mut serving = tokio::spawn(serving);
        tokio::select! {
            ended = &mut serving => return ended?.context("serving"),
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
        // Watches are endless.
        let _ = tokio::time::timeout(Duration::from_secs(5), serving).await;
        Ok(())
    }

    fn zone(&self) -> anyhow::Result<Zone> {
        let zone = self.dns_zone.clone();
        match &self.dns_host {
            Some(host) => zone.served_at(host).map_err(|error| anyhow!("--dns-host {error}")),
            None => Ok(zone),
        }
    }

    fn options(&self) -> anyhow::Result<Options> {
        Ok(Options {
            first_nodes: first_nodes(self.permissions.as_deref())?,
            superusers: AccessList::of(self.admin.iter().cloned()),
            limits: Limits {
                nodes_per_user: self.max_nodes_per_user,
                servers_per_user: self.max_servers_per_user,
            },
            grace: Duration::from_secs(self.grace),
            ..Options::default()
        })
    }

    fn tls(&self) -> anyhow::Result<Option<ServerTlsConfig>> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let identity = Identity::from_pem(read(certificate)?, read_secret(key)?.expose());
        let mut config = ServerTlsConfig::new().identity(identity);
        if let Some(ca) = &self.tls_client_ca {
            config =
                config.client_ca_root(Certificate::from_pem(read(ca)?)).client_auth_optional(true);
        }
        Ok(Some(config))
    }
}

/// Reads the tokens of a file; empty without one.
pub fn tokens(path: Option<&std::path::Path>) -> anyhow::Result<Tokens> {
    let Some(path) = path else { return Ok(Tokens::default()) };
    let text = read_secret_text(path)?;
    Tokens::parse(text.expose()).map_err(|error| anyhow!("{}: {error}", path.display()))
}

/// Reads the initial nodes of a file. Without a file everyone has full access.
pub fn first_nodes(path: Option<&std::path::Path>) -> anyhow::Result<FirstNodes> {
    let Some(path) = path else { return Ok(FirstNodes::default()) };
    FirstNodes::from_json(&read(path)?).with_context(|| path.display().to_string())
}
