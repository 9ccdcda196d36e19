//! Shutdown: signals, requests in flight, the store.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use stele_engine::{Store, Txn};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;

use super::data_dir::DataDir;
use super::server::Server;

/// How often a draining server checks whether all calls have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long cancelled calls have to notify their clients, and then connections to close
/// cleanly.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The exit code when a second signal interrupts the shutdown.
const INTERRUPTED: i32 = 130;

/// The phases of shutdown: first nothing new is accepted, then running calls are ended,
/// then remaining connections are closed.
#[derive(Default)]
pub struct Phases {
    /// New connections and calls are rejected; running calls may finish.
    pub draining: CancellationToken,
    /// Running calls are answered with UNAVAILABLE.
    pub ending: CancellationToken,
    /// Connections are closed, whatever their state.
    pub closing: CancellationToken,
}

/// The signals that stop a server.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Waits for the first signal. From then on a second one ends the process at once;
    /// only temporary data is still removed.
    pub async fn first(mut self, data_dir: &DataDir) -> &'static str {
        let first = self.next().await;
        let temporary = data_dir.is_temporary().then(|| data_dir.path.clone());
        tokio::spawn(async move {
            let second = self.next().await;
            tracing::warn!(signal = second, "exiting immediately");
            if let Some(dir) = temporary {
                let _ = std::fs::remove_dir_all(dir);
            }
            std::process::exit(INTERRUPTED);
        });
        first
    }
}

impl Server {
    /// Lets requests finish, ends those that do not, and closes the store.
    pub async fn shut_down(self, grace: Duration) -> anyhow::Result<()> {
        self.health.set(ServingStatus::NotServing).await;
        self.phases.draining.cancel();
        self.tasks.close();
        let deadline = Instant::now() + grace;
        // Sleeps at least once, so that watchers of health are notified.
        sleep(POLL_INTERVAL).await;
        while self.in_flight() > 0 && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
        if self.in_flight() > 0 {
            tracing::warn!(calls = self.in_flight(), "cancelling unfinished calls");
        }
        self.phases.ending.cancel();
        if timeout(CLOSE_TIMEOUT, self.tasks.wait()).await.is_err() {
            self.phases.closing.cancel();
            let _ = timeout(CLOSE_TIMEOUT, self.tasks.wait()).await;
        }
        if let Some(metastore) = self.metastore {
            metastore.close().await?;
        }
        close(self.store).await
    }

    fn in_flight(&self) -> u64 {
        self.metrics.in_flight.load(Ordering::Relaxed)
    }
}

/// Closes the store. Everything acknowledged is durable already.
async fn close(mut store: Arc<Store>) -> anyhow::Result<()> {
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    let last = loop {
        match Arc::try_unwrap(store) {
            Ok(last) => break Ok(last),
            Err(shared) if Instant::now() >= deadline => break Err(shared),
            Err(shared) => store = shared,
        }
        sleep(POLL_INTERVAL).await;
    };
    let closed = tokio::task::spawn_blocking(move || match last {
        Ok(store) => store.close(),
        // An unfinished call still holds the store. Syncing the log is enough.
        Err(shared) => shared.sync(Txn::MAX).map(drop),
    });
    closed.await.context("closing the store")?.context("closing the store")
}
