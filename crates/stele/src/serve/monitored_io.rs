//! The byte stream of a connection, monitored: how much has been read, and whether the
//! client accepts what is written.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::timeouts::timeouts;

/// The length of the HTTP/2 connection preface.
const PREFACE_BYTES: u64 = 24;

/// What a connection has done so far.
#[derive(Clone, Default)]
pub struct Activity(Arc<ActivityState>);

#[derive(Default)]
struct ActivityState {
    read_bytes: AtomicU64,
    has_request: AtomicBool,
}

impl Activity {
    /// Records that a request has arrived.
    pub fn record_request(&self) {
        if !self.has_request() {
            self.0.has_request.store(true, Ordering::Relaxed);
        }
    }

    pub fn has_request(&self) -> bool {
        self.0.has_request.load(Ordering::Relaxed)
    }

    /// Returns when the client has not completed its preface in time.
    pub async fn preface_timeout(&self) {
        tokio::time::sleep(timeouts().preface).await;
        if self.0.read_bytes.load(Ordering::Relaxed) >= PREFACE_BYTES {
            std::future::pending().await
        }
    }

    /// Returns when no request has arrived in time.
    pub async fn request_timeout(&self) {
        tokio::time::sleep(timeouts().first_request).await;
        if self.has_request() {
            std::future::pending().await
        }
    }
}

pub struct MonitoredIo<I> {
    inner: I,
    activity: Activity,
    /// Whether enough was read to stop counting.
    has_preface: bool,
    /// Runs while the client accepts no bytes.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<I> MonitoredIo<I> {
    pub fn new(inner: I, activity: Activity) -> MonitoredIo<I> {
        MonitoredIo { inner, activity, has_preface: false, stalled: None }
    }

    /// Ends the connection when writing has been blocked for too long.
    fn check_stall<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| {
            Box::pin(tokio::time::sleep_until(Instant::now() + timeouts().stall))
        });
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for MonitoredIo<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.check_stall(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, pieces);
        self.check_stall(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.check_stall(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut_down = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.check_stall(cx, shut_down)
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for MonitoredIo<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, into);
        if !self.has_preface {
            let bytes = (into.filled().len() - before) as u64;
            let read_bytes = self.activity.0.read_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
            self.has_preface = read_bytes >= PREFACE_BYTES;
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_disconnected() {
        let (client, server) = duplex(10);
        let mut server = MonitoredIo::new(server, Activity::default());
        let started = Instant::now();
        let failed = server.write_all(&[0; 11]).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= timeouts().stall);
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_preface_is_noticed_and_a_whole_one_is_not() {
        let activity = Activity::default();
        let (mut client, server) = duplex(100);
        let mut server = MonitoredIo::new(server, activity.clone());
        client.write_all(&[0; 23]).await.unwrap();
        server.read_exact(&mut [0; 23]).await.unwrap();
        activity.preface_timeout().await;
        client.write_all(&[0; 1]).await.unwrap();
        server.read_exact(&mut [0; 1]).await.unwrap();
        let waited = tokio::time::timeout(10 * timeouts().preface, activity.preface_timeout());
        assert!(waited.await.is_err());
        activity.request_timeout().await;
        activity.record_request();
        let waited =
            tokio::time::timeout(10 * timeouts().first_request, activity.request_timeout());
        assert!(waited.await.is_err());
    }
}
