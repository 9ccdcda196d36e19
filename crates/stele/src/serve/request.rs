//! A request body being received: its bytes are charged to the call's memory as they
//! arrive, and they must keep arriving.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use stele_bigtable::MESSAGE_BYTES_MAX;
use stele_grpc::Wait;
use stele_grpc::frame::{Prefix, Scanner};
use stele_grpc::memory::CallMemory;
use tonic::Status;

use super::min_rate::MinRate;
use super::settings::Size;

pub struct RequestBody<B = Incoming> {
    inner: B,
    memory: CallMemory,
    scanner: Scanner,
    /// The size of the message being received.
    announced: usize,
    /// Whether its memory is charged as it arrives.
    in_steps: bool,
    pace: MinRate,
    /// Received bytes that are held until their memory is granted.
    held_back: Option<HeldBack>,
}

struct HeldBack {
    data: Bytes,
    memory: Wait,
}

impl<B> RequestBody<B> {
    pub fn new(inner: B, memory: CallMemory) -> RequestBody<B> {
        RequestBody {
            inner,
            memory,
            scanner: Scanner::default(),
            announced: 0,
            in_steps: false,
            pace: MinRate::default(),
            held_back: None,
        }
    }

    /// Charges bytes as they arrive. Returns them if they may pass.
    fn admit(&mut self, data: Bytes) -> Result<Option<Bytes>, Status> {
        self.memory.note_received(data.len());
        if let Some(prefix) = self.scanner.advance(&data) {
            check(prefix)?;
            self.pace.restart();
            self.announced = prefix.message_bytes;
            self.in_steps = !self.memory.begin_message(prefix.message_bytes);
        }
        if !self.in_steps {
            return Ok(Some(data));
        }
        Ok(match self.memory.charge_arrived(self.arrived(), self.announced) {
            None => Some(data),
            Some(memory) => {
                self.held_back = Some(HeldBack { data, memory });
                None
            }
        })
    }

    /// Ends a message whose bytes stop arriving.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if !self.scanner.is_within_message() {
            self.pace.restart();
            self.memory.between_messages();
            return Poll::Pending;
        }
        let (arrived, memory) = (self.arrived(), &self.memory);
        let after = ready!(self.pace.poll_overdue(cx, arrived, || memory.delays_others()));
        Poll::Ready(Status::deadline_exceeded(format!(
            "only {arrived} bytes of a message of {} arrived within {:.1} s",
            Size(self.announced as u64),
            after.as_secs_f32(),
        )))
    }

    /// Returns the number of bytes of the message that have arrived.
    fn arrived(&self) -> usize {
        self.announced.saturating_sub(self.scanner.message_left())
    }
}

fn check(prefix: Prefix) -> Result<(), Status> {
    if prefix.flag > 1 {
        return Err(Status::invalid_argument(format!(
            "invalid gRPC frame: the compression flag is {}, expected 0 or 1",
            prefix.flag
        )));
    }
    if prefix.message_bytes > MESSAGE_BYTES_MAX {
        return Err(Status::resource_exhausted(format!(
            "a message of {} is over the limit of {}",
            Size(prefix.message_bytes as u64),
            Size(MESSAGE_BYTES_MAX as u64),
        )));
    }
    Ok(())
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        loop {
            if let Some(held_back) = &mut this.held_back {
                let granted = ready!(held_back.memory.as_mut().poll(cx));
                let data = this.held_back.take().map(|held_back| held_back.data);
                // Time in which the client could not send does not count.
                this.pace.restart();
                return Poll::Ready(match granted {
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
                // The client has disconnected.
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
