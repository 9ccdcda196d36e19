//! The body of a response: it fails if its next piece does not arrive in time, and
//! releases its connection at its end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use object_store::client::HttpError;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use super::pool::Lent;
use super::{interrupted, timed_out};

pin_project! {
    pub struct Body {
        #[pin]
        incoming: Incoming,
        connection: Lent,
        timeout: Duration,
        #[pin]
        timer: Sleep,
    }
}

impl Body {
    pub fn new(incoming: Incoming, connection: Lent, timeout: Duration) -> Body {
        if incoming.is_end_stream() {
            connection.release();
        }
        Body { incoming, connection, timeout, timer: tokio::time::sleep(timeout) }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let mut this = self.project();
        let Poll::Ready(frame) = this.incoming.as_mut().poll_frame(context) else {
            ready!(this.timer.as_mut().poll(context));
            return Poll::Ready(Some(Err(timed_out(*this.timeout))));
        };
        this.timer.reset(Instant::now() + *this.timeout);
        if frame.is_none() || this.incoming.is_end_stream() {
            this.connection.release();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(interrupted)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
