//! The task of one HTTP/2 stream, ended when its client does not read.
//!
//! While a stream has no flow-control window, hyper does not poll the response body: it
//! holds the last frame and waits. So the body cannot notice that its time is over, but
//! the task around it can. The body records when it handed over a frame; if it is not
//! polled for another in time, the task ends, which resets the stream and frees
//! everything it held.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use hyper::rt::Executor;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use super::metrics::Metrics;
use super::timeouts::timeouts;

/// Whether a response waits for its client.
#[derive(Clone, Copy, Default)]
pub struct Sending {
    /// Whether the body has returned a frame since the clock was last read.
    is_fresh: bool,
    /// When the body returned its last frame; `None` while waiting for the body itself.
    since: Option<Instant>,
    /// The deadline of the call.
    deadline: Option<Instant>,
    /// Whether the response holds memory that others may wait for.
    is_charged: bool,
}

thread_local! {
    /// The state of the stream that this thread polls.
    static SENDING: Cell<Sending> = const { Cell::new(Sending {
        is_fresh: false,
        since: None,
        deadline: None,
        is_charged: false,
    }) };
}

/// Records that the body of the stream being polled has returned a frame.
pub fn handed_over(deadline: Option<Instant>, is_charged: bool) {
    // The clock is read only if the stream then has to wait, which most do not.
    SENDING.set(Sending { is_fresh: true, since: None, deadline, is_charged });
}

/// Records that the body of the stream being polled has no frame ready.
pub fn not_ready() {
    SENDING.set(Sending::default());
}

/// Runs the streams of connections.
#[derive(Clone, Copy)]
pub struct Streams {
    pub metrics: &'static Metrics,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let sending = Sending::default();
        tokio::spawn(StreamTask { stream, sending, timer: None, metrics: self.metrics });
    }
}

pin_project! {
    struct StreamTask<F> {
        #[pin]
        stream: F,
        sending: Sending,
        // When to check next whether the client reads.
        timer: Option<Pin<Box<Sleep>>>,
        metrics: &'static Metrics,
    }
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        SENDING.set(*this.sending);
        let polled = this.stream.poll(cx);
        *this.sending = SENDING.take();
        if polled.is_pending() && std::mem::take(&mut this.sending.is_fresh) {
            this.sending.since = Some(Instant::now());
        }
        if polled.is_ready() || this.sending.since.is_none() {
            // A leftover timer wakes the task once for nothing, which is cheaper than a
            // new timer for every wait.
            return polled;
        }
        loop {
            let contended = {
                let memory = &this.metrics.memory;
                memory.responses().waiting() > 0 || memory.buffered_responses().waiting() > 0
            };
            let now = Instant::now();
            let Some(end) = this.sending.end(contended) else { return Poll::Pending };
            if now >= end {
                this.metrics.streams_stalled.fetch_add(1, Ordering::Relaxed);
                return Poll::Ready(());
            }
            // Others may start to wait in the meantime.
            let next = end.min(now + timeouts().stall_contended);
            let timer = match &mut *this.timer {
                Some(timer) if timer.deadline() <= next && !timer.is_elapsed() => timer,
                timer => timer.insert(Box::pin(tokio::time::sleep_until(next))),
            };
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Sending {
    /// Returns when to end the stream if its client does not read.
    fn end(&self, contended: bool) -> Option<Instant> {
        let stall = match contended && self.is_charged {
            true => timeouts().stall_contended,
            false => timeouts().stall,
        };
        let end = self.since? + stall;
        // A client that resumes reading just after the deadline still receives the
        // status.
        let deadline = self.deadline.map(|deadline| deadline + timeouts().deadline_grace);
        Some(deadline.map_or(end, |deadline| end.min(deadline)))
    }
}
