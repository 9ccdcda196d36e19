//! The body of a request on its way in: lets a message pass only when the
//! intake has room for all of it, and does not wait for ever for its bytes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use stele_bigtable::MESSAGE_BYTES_MAX;
use tokio::time::{Instant, Sleep};
use tonic::Status;

use super::framing::{Framing, Start};
use super::intake::Hold;
use super::settings::Size;

/// How long a message that has begun may take, and the slowest rate at which
/// a large one may come beyond that.
const MESSAGE_TIME_MIN: Duration = Duration::from_secs(30);
const MESSAGE_BYTES_PER_SECOND_MIN: u64 = 256 << 10;

pub struct RequestBody {
    inner: Incoming,
    hold: Arc<Hold>,
    framing: Framing,
    /// Bytes that were received but may not pass before there is room.
    held_back: Option<HeldBack>,
    /// When the message that is being received must be complete.
    overdue: Option<Pin<Box<Sleep>>>,
    message_bytes: usize,
}

struct HeldBack {
    data: Bytes,
    room: Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>,
}

impl RequestBody {
    pub fn new(inner: Incoming, hold: Arc<Hold>) -> RequestBody {
        RequestBody {
            inner,
            hold,
            framing: Framing::default(),
            held_back: None,
            overdue: None,
            message_bytes: 0,
        }
    }

    /// Looks at bytes as they come. Gives them back if they may pass.
    fn admit(&mut self, data: Bytes) -> Result<Option<Bytes>, Status> {
        self.hold.received.fetch_add(data.len() as u64, Ordering::Relaxed);
        let Some(start) = self.framing.advance(&data) else { return Ok(Some(data)) };
        check(start)?;
        self.overdue = None;
        self.message_bytes = start.bytes;
        if self.hold.try_take(start.bytes) {
            return Ok(Some(data));
        }
        let room = Box::pin(self.hold.clone().take(start.bytes));
        self.held_back = Some(HeldBack { data, room });
        Ok(None)
    }

    /// Keeps the time of a message that does not go on.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if !self.framing.within_message() {
            return Poll::Pending;
        }
        let bytes = self.message_bytes as u64;
        let overdue = self.overdue.get_or_insert_with(|| {
            let extra = Duration::from_secs(bytes / MESSAGE_BYTES_PER_SECOND_MIN);
            Box::pin(tokio::time::sleep_until(Instant::now() + MESSAGE_TIME_MIN + extra))
        });
        ready!(overdue.as_mut().poll(cx));
        Poll::Ready(Status::deadline_exceeded(format!(
            "a message of {} did not arrive in time",
            Size(bytes)
        )))
    }
}

fn check(start: Start) -> Result<(), Status> {
    if start.flag > 1 {
        return Err(Status::invalid_argument(format!(
            "a message begins with the flag {}, which is none of gRPC's",
            start.flag
        )));
    }
    if start.bytes > MESSAGE_BYTES_MAX {
        return Err(Status::resource_exhausted(format!(
            "a message of {} is over the limit of {}",
            Size(start.bytes as u64),
            Size(MESSAGE_BYTES_MAX as u64),
        )));
    }
    Ok(())
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        loop {
            if let Some(held_back) = &mut this.held_back {
                let room = ready!(held_back.room.as_mut().poll(cx));
                let data = this.held_back.take().map(|held_back| held_back.data);
                return Poll::Ready(match room {
                    Ok(()) => data.map(|data| Ok(Frame::data(data))),
                    Err(status) => Some(Err(status)),
                });
            }
            let frame = match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => return this.poll_overdue(cx).map(|status| Some(Err(status))),
            };
            let data = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                // The client has gone away.
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(Status::from_error(error.into()))));
                }
                None => return Poll::Ready(None),
            };
            match this.admit(data) {
                Ok(Some(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(None) => {}
                Err(status) => return Poll::Ready(Some(Err(status))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held_back.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
