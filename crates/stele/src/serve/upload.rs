//! An HTTP request body being received: charged to the request memory as it arrives, and
//! ended when it stops arriving.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use stele_grpc::Wait;
use stele_grpc::memory::{CallMemory, CallPools};

use super::min_rate::MinRate;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub struct Upload<B = Incoming> {
    inner: B,
    memory: CallMemory,
    arrived: usize,
    rate: MinRate,
    /// Whether the client may be silent between messages for any length of time.
    is_endless: bool,
    /// Bytes held until their memory is granted.
    held_back: Option<(Bytes, Wait)>,
}

impl<B> Upload<B> {
    pub fn new(inner: B, memory: CallMemory, is_endless: bool) -> Upload<B> {
        Upload { inner, memory, arrived: 0, rate: MinRate::default(), is_endless, held_back: None }
    }
}

/// Wraps the request so that its body is monitored, and attaches the memory of its call.
pub fn monitor(
    request: http::Request<Incoming>,
    pools: &'static CallPools,
) -> http::Request<Upload> {
    let memory = CallMemory::new(pools);
    let is_endless = stele_metastore::etcd::is_endless(request.uri().path());
    let mut request = request.map(|body| Upload::new(body, memory.clone(), is_endless));
    request.extensions_mut().insert(memory);
    request
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for Upload<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            if let Some((_, memory)) = &mut this.held_back {
                let granted = ready!(memory.as_mut().poll(cx));
                let held_back = this.held_back.take();
                this.rate.restart();
                return Poll::Ready(match granted {
                    Ok(()) => held_back.map(|(data, _)| Ok(Frame::data(data))),
                    Err(status) => Some(Err(status.into())),
                });
            }
            let memory = &this.memory;
            let frame = match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending if this.is_endless && !memory.delays_others() => {
                    return Poll::Pending;
                }
                Poll::Pending => {
                    let delays = || memory.delays_others();
                    ready!(this.rate.poll_overdue(cx, this.arrived, delays));
                    return Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())));
                }
            };
            let data = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => return Poll::Ready(None),
            };
            memory.note_received(data.len());
            this.arrived += data.len();
            match memory.charge_arrived(this.arrived, this.arrived) {
                None => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(waiting) => this.held_back = Some((data, waiting)),
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
