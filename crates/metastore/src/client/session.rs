//! A session that is kept alive in the background and reports its loss. The
//! holder of a lock must stop when its session is lost. The server may notice
//! the loss later than the client, but never before the TTL has passed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_grpc::Pending;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::{Client, Error, Result};
use crate::proto::native as proto;

/// Renewals per TTL: two may fail before it expires.
const RENEWALS_PER_TTL: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Shared,
    Exclusive,
}

/// A session. Clones share it; dropping the last one stops its renewal.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    id: i64,
    ttl: Duration,
    /// The reason for the loss, once the session is lost.
    lost: watch::Receiver<Option<String>>,
    renewal: JoinHandle<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

/// A lock that a session holds.
#[derive(Clone)]
pub struct HeldLock {
    session: Session,
    key: Bytes,
    token: i64,
}

impl Session {
    pub(super) async fn open(client: Client, ttl_seconds: i64) -> Result<Session> {
        let sent = Instant::now();
        let (id, ttl_seconds) = client.grant(ttl_seconds).await?;
        let ttl = Duration::from_secs(u64::try_from(ttl_seconds).unwrap_or(0));
        let (report, lost) = watch::channel(None);
        let renewal = tokio::spawn(renew(client.clone(), id, ttl, sent, report));
        Ok(Session { inner: Arc::new(Inner { client, id, ttl, lost, renewal }) })
    }

    pub fn id(&self) -> i64 {
        self.inner.id
    }

    pub fn ttl(&self) -> Duration {
        self.inner.ttl
    }

    pub fn is_lost(&self) -> bool {
        self.inner.lost.borrow().is_some()
    }

    /// Waits until the session is lost. Returns the reason.
    pub async fn lost(&self) -> String {
        let mut lost = self.inner.lost.clone();
        let reason = lost.wait_for(Option::is_some).await;
        reason.ok().and_then(|why| why.clone()).unwrap_or_else(|| "its renewal stopped".to_string())
    }

    /// Acquires a lock, waiting in order of arrival.
    pub fn acquire(&self, key: impl Into<Bytes>, mode: Mode) -> Pending<'_, Result<HeldLock>> {
        let key = key.into();
        Box::pin(self.wait_for_lock(key, mode))
    }

    async fn wait_for_lock(&self, key: Bytes, mode: Mode) -> Result<HeldLock> {
        let acquiring = self.send_acquire(key, mode, false);
        let refused = || Error::SessionLost("the server did not grant the lock".to_string());
        tokio::select! {
            held = acquiring => held?.ok_or_else(refused),
            why = self.lost() => Err(Error::SessionLost(why)),
        }
    }

    /// Acquires a lock if it is free.
    pub fn try_acquire(
        &self,
        key: impl Into<Bytes>,
        mode: Mode,
    ) -> Pending<'_, Result<Option<HeldLock>>> {
        let key = key.into();
        Box::pin(self.send_acquire(key, mode, true))
    }

    async fn send_acquire(
        &self,
        key: Bytes,
        mode: Mode,
        no_wait: bool,
    ) -> Result<Option<HeldLock>> {
        let request = proto::AcquireRequest {
            key: key.clone(),
            client_id: self.id(),
            shared: mode == Mode::Shared,
            no_wait,
        };
        let answer = self.inner.client.api().acquire(request).await?.into_inner();
        let held = || HeldLock { session: self.clone(), key, token: answer.token };
        Ok(answer.granted.then(held))
    }

    /// Closes the session and releases all that belongs to it.
    pub fn close(self) -> Pending<'static, Result<()>> {
        Box::pin(async move { self.inner.client.revoke(self.id()).await })
    }
}

impl HeldLock {
    /// Returns the fencing token, which rises with every grant of the lock.
    pub fn token(&self) -> i64 {
        self.token
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn release(self) -> Pending<'static, Result<()>> {
        Box::pin(async move {
            self.session.inner.client.release(self.key.clone(), self.session.id()).await
        })
    }

    pub(super) fn proof(&self) -> proto::HeldLock {
        let (key, client_id) = (self.key.clone(), self.session.id());
        proto::HeldLock { key, client_id, token: self.token }
    }
}

/// Renews the session until it is lost: the server does not know it, or no
/// renewal succeeded within its TTL. `renewed_at` is when the last
/// successful renewal was sent.
async fn renew(
    client: Client,
    id: i64,
    ttl: Duration,
    mut renewed_at: Instant,
    report: watch::Sender<Option<String>>,
) {
    let pause = ttl / RENEWALS_PER_TTL;
    let why = loop {
        sleep_until((renewed_at + pause).max(Instant::now() + pause / 4)).await;
        let sent = Instant::now();
        let deadline = renewed_at + ttl;
        let renewed = tokio::time::timeout_at(deadline, client.keep_alive(id)).await;
        match renewed {
            Ok(Ok(_)) => renewed_at = sent,
            Ok(Err(Error::SessionLost(why))) => break why,
            Ok(Err(error)) if Instant::now() >= deadline => {
                break format!("it was not renewed within its TTL: {error}");
            }
            Ok(Err(_)) => {}
            Err(_) => break "it was not renewed within its TTL".to_string(),
        }
    };
    report.send_replace(Some(why));
}
