//! The limits that end an unfinished call: the client's deadline and shutdown. They are
//! checked only when a call has to wait.

use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tonic::Status;

pin_project! {
    pub struct Limits {
        deadline: Option<Instant>,
        ending: &'static CancellationToken,
        #[pin]
        sleep: Option<Sleep>,
        #[pin]
        ended: Option<WaitForCancellationFuture<'static>>,
    }
}

impl Limits {
    pub fn new(deadline: Option<Instant>, ending: &'static CancellationToken) -> Limits {
        Limits { deadline, ending, sleep: None, ended: None }
    }

    /// Returns the same limits for the next stage of the call.
    pub fn next(&self) -> Limits {
        Limits::new(self.deadline, self.ending)
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns why an unfinished call must end now, if it must.
    pub fn reached(&self) -> Option<Status> {
        if self.ending.is_cancelled() {
            return Some(shutting_down());
        }
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline).then(late)
    }

    /// Completes when a limit is reached; wakes the waiting call.
    pub fn poll_reached(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Status> {
        let mut this = self.project();
        if this.ended.is_none() {
            this.ended.set(Some(this.ending.cancelled()));
        }
        if this.ended.as_pin_mut().is_some_and(|ended| ended.poll(cx).is_ready()) {
            return Poll::Ready(shutting_down());
        }
        let Some(deadline) = *this.deadline else { return Poll::Pending };
        if this.sleep.is_none() {
            this.sleep.set(Some(tokio::time::sleep_until(deadline)));
        }
        match this.sleep.as_pin_mut() {
            Some(sleep) => sleep.poll(cx).map(|()| late()),
            None => Poll::Pending,
        }
    }
}

fn late() -> Status {
    Status::deadline_exceeded("the deadline of the call has passed")
}

fn shutting_down() -> Status {
    Status::unavailable("the server is shutting down")
}
