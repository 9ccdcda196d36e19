//! `stele traces serve`: the page and the API alone, over tables that are stored
//! elsewhere.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use clap::Args;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use stele_bigtable_client::Client;
use stele_traces::http::{INSTANCE, router};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Outcome;
use crate::connect::{BigtableServer, with_hint};
use crate::private::harden_process;
use crate::serve::Sites;

/// How long a client may take to send the head of a request.
const HEAD_WAIT: Duration = Duration::from_secs(30);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long requests may continue after a stop signal.
const GRACE: Duration = Duration::from_secs(5);

/// Serve the traces of another Bigtable over HTTP.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele traces serve --bigtable 10.0.0.7:8086
  stele traces serve --bigtable google --project p --instance i")]
pub struct Serve {
    /// Address to listen on; port 0 for any free port.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Bigtable that stores the tables; overrides --endpoint.
    #[arg(long, value_name = "ENDPOINT")]
    bigtable: Option<String>,
    /// More host names to accept in requests, separated by commas.
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    allowed_host: Vec<String>,
    /// Web origins whose pages may use this server, such as https://host, separated by
    /// commas.
    #[arg(long, value_name = "ORIGINS", value_delimiter = ',')]
    cors_origin: Vec<String>,
    #[command(flatten)]
    connection: BigtableServer,
}

impl Serve {
    pub fn run(self) -> anyhow::Result<Outcome> {
        harden_process();
        let mut options = self.connection.clone().within(INSTANCE).options()?;
        if let Some(endpoint) = &self.bigtable {
            options.endpoint = endpoint.clone();
        }
        let sites = Arc::new(Sites::new(self.allowed_host.clone(), self.cors_origin.clone())?);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        runtime.context("starting threads")?.block_on(async {
            // First, so that no signal arrives while the process is only half prepared.
            let mut terminate = signal(SignalKind::terminate()).context("listening for signals")?;
            let mut interrupt = signal(SignalKind::interrupt()).context("listening for signals")?;
            let client = Client::connect(options).await.map_err(with_hint)?;
            let listener = TcpListener::bind(self.listen).await;
            let listener = listener.with_context(|| format!("listening on {}", self.listen))?;
            println!("traces at http://{}/traces", listener.local_addr()?);
            let connections = Connections::default();
            // There is no console here for the link to it.
            let front = get(async || Redirect::temporary("/traces"));
            let pages = sites.guard(router(client).route("/", front));
            tokio::select! {
                () = connections.accept(listener, pages) => {}
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            connections.finish().await;
            Ok(Outcome::Sound)
        })
    }
}

/// The connections of the server, which close once their requests are answered.
#[derive(Default)]
struct Connections {
    tasks: TaskTracker,
    ending: CancellationToken,
}

impl Connections {
    async fn accept(&self, listener: TcpListener, pages: Router) {
        loop {
            let Ok((connection, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let service = TowerToHyperService::new(pages.clone());
            let ending = self.ending.clone();
            self.tasks.spawn(async move {
                let mut builder = http1::Builder::new();
                builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT);
                let mut served =
                    std::pin::pin!(builder.serve_connection(TokioIo::new(connection), service));
                let ended = match ending.run_until_cancelled(served.as_mut()).await {
                    Some(ended) => ended,
                    None => {
                        served.as_mut().graceful_shutdown();
                        served.await
                    }
                };
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended");
                }
            });
        }
    }

    /// Lets requests in progress finish.
    async fn finish(&self) {
        self.ending.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(GRACE, self.tasks.wait()).await;
    }
}
