//! `stele traces serve`: the page and the API alone, over tables that are
//! kept elsewhere.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use stele_bigtable::client::Client;
use stele_traces::http::{INSTANCE, router};
use tokio::net::TcpListener;

use crate::Outcome;
use crate::connection::{Connection, advise};

/// How long a client may take to say what it wants.
const HEAD_WAIT: Duration = Duration::from_secs(30);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serve the traces of another Bigtable over HTTP.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele traces serve --bigtable 10.0.0.7:8086
  stele traces serve --bigtable google --project p --instance i")]
pub struct Serve {
    /// The address to listen on; port 0 is any free one.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The Bigtable that keeps the tables; goes before --endpoint.
    #[arg(long, value_name = "ENDPOINT")]
    bigtable: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

impl Serve {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let mut options = self.connection.clone().within(INSTANCE).options()?;
        if let Some(endpoint) = &self.bigtable {
            options.endpoint = endpoint.clone();
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        runtime.context("starting threads")?.block_on(async {
            let client = Client::connect(options).await.map_err(advise)?;
            let listener = TcpListener::bind(self.listen).await;
            let listener = listener.with_context(|| format!("listening on {}", self.listen))?;
            println!("traces at http://{}/traces", listener.local_addr()?);
            tokio::select! {
                () = accept(listener, client) => {}
                stop = tokio::signal::ctrl_c() => stop.context("listening for signals")?,
            }
            Ok(Outcome::Sound)
        })
    }
}

async fn accept(listener: TcpListener, client: Client) {
    let pages = router(client);
    loop {
        let Ok((connection, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let service = TowerToHyperService::new(pages.clone());
        tokio::spawn(async move {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT);
            let served = builder.serve_connection(TokioIo::new(connection), service).await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
}
