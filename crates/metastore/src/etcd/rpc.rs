//! The bodies of gRPC calls: takes messages from the body of a request, and
//! builds the body of a response from framed messages.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame};
use stele_grpc::body;
use stele_grpc::frame::{PREFIX_BYTES, Prefix};
use tokio_stream::Stream;
use tonic::Status;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The default maximum size of a request that is proposed.
pub const REQUEST_BYTES_MAX: usize = 1536 << 10;
/// How much larger than a request a client's message may be.
pub const MESSAGE_OVERHEAD: usize = 512 << 10;

/// A stream of messages, or of pieces of one.
pub type MessageStream = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// The response to a call: framed messages, then the status OK.
pub enum FramedResponse {
    One(Bytes),
    Many(MessageStream),
}

impl FramedResponse {
    pub fn into_http(self) -> http::Response<tonic::body::Body> {
        body::response(ResponseBody(match self {
            FramedResponse::One(message) => Rest::One(message),
            FramedResponse::Many(messages) => Rest::Many(messages),
        }))
    }
}

/// The messages of a request's body, without their prefixes.
pub struct RequestMessages<B> {
    body: B,
    /// Received and not parsed yet.
    received: Bytes,
    /// A message with its prefix that arrives in several pieces.
    partial: BytesMut,
    /// The maximum size of a message.
    bytes_max: usize,
}

impl<B> RequestMessages<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    pub fn new(body: B, bytes_max: usize) -> RequestMessages<B> {
        RequestMessages { body, received: Bytes::new(), partial: BytesMut::new(), bytes_max }
    }

    /// Returns the message of a unary call.
    pub async fn one(mut self) -> Result<Bytes, Status> {
        let message = std::future::poll_fn(|context| self.poll_message(context)).await;
        message.unwrap_or_else(|| Err(Status::internal("the request has no message")))
    }

    pub fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Status>>> {
        loop {
            match self.take_message() {
                Ok(Some(message)) => return Poll::Ready(Some(Ok(message))),
                Ok(None) => {}
                Err(status) => return Poll::Ready(Some(Err(status))),
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.received = data;
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(interrupted(error.into())))),
                None if self.partial.is_empty() => return Poll::Ready(None),
                None => return Poll::Ready(Some(Err(disconnected()))),
            }
        }
    }

    /// Takes a message that has been received completely. If there is none, all
    /// received bytes are kept.
    fn take_message(&mut self) -> Result<Option<Bytes>, Status> {
        if self.partial.is_empty()
            && let Some(bytes) = message_bytes(&self.received, self.bytes_max)?
            && self.received.len() >= PREFIX_BYTES + bytes
        {
            let mut message = self.received.split_to(PREFIX_BYTES + bytes);
            message.advance(PREFIX_BYTES);
            return Ok(Some(message));
        }
        if !self.fill_partial(PREFIX_BYTES) {
            return Ok(None);
        }
        let bytes = message_bytes(&self.partial, self.bytes_max)?.unwrap_or(0);
        if !self.fill_partial(PREFIX_BYTES + bytes) {
            return Ok(None);
        }
        let mut message = std::mem::take(&mut self.partial).freeze();
        message.advance(PREFIX_BYTES);
        Ok(Some(message))
    }

    /// Moves received bytes to `partial` until it has `bytes`. Returns whether
    /// there were enough.
    fn fill_partial(&mut self, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(self.partial.len());
        let taken = self.received.split_to(missing.min(self.received.len()));
        self.partial.reserve(missing);
        self.partial.extend_from_slice(&taken);
        taken.len() == missing
    }
}

/// Returns the length of the next message, once its prefix has been received.
fn message_bytes(framed: &[u8], bytes_max: usize) -> Result<Option<usize>, Status> {
    let Some(Prefix { flag, message_bytes: bytes }) = Prefix::parse(framed) else {
        return Ok(None);
    };
    if flag != 0 {
        return Err(Status::unimplemented("compressed messages are not supported"));
    }
    if bytes > bytes_max {
        return Err(Status::resource_exhausted(format!(
            "grpc: received message larger than max ({bytes} vs. {bytes_max})"
        )));
    }
    Ok(Some(bytes))
}

/// Returns why a body ended early: the status with which the server refused the
/// rest, or that the client disconnected.
fn interrupted(error: BoxError) -> Status {
    error.downcast::<Status>().map_or_else(|_| disconnected(), |status| *status)
}

fn disconnected() -> Status {
    Status::cancelled("the client disconnected")
}

impl<B> Stream for RequestMessages<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_message(context)
    }
}

/// A body of framed messages, then trailers.
struct ResponseBody(Rest);

enum Rest {
    One(Bytes),
    Many(MessageStream),
    Trailers(Status),
    Nothing,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            match std::mem::replace(&mut self.0, Rest::Nothing) {
                Rest::One(message) => {
                    self.0 = Rest::Trailers(Status::ok(""));
                    return Poll::Ready(Some(Ok(Frame::data(message))));
                }
                Rest::Many(mut messages) => match messages.as_mut().poll_next(context) {
                    Poll::Ready(Some(Ok(message))) => {
                        self.0 = Rest::Many(messages);
                        return Poll::Ready(Some(Ok(Frame::data(message))));
                    }
                    Poll::Ready(Some(Err(status))) => self.0 = Rest::Trailers(status),
                    Poll::Ready(None) => self.0 = Rest::Trailers(Status::ok("")),
                    Poll::Pending => {
                        self.0 = Rest::Many(messages);
                        return Poll::Pending;
                    }
                },
                Rest::Trailers(status) => return Poll::Ready(Some(body::trailers(&status))),
                Rest::Nothing => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};

    use stele_grpc::frame;

    use super::*;

    async fn messages(stream: &[u8], cut: usize) -> Result<Vec<Bytes>, Status> {
        let frames: Vec<_> = stream
            .chunks(cut)
            .map(|piece| Ok::<_, Status>(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        let body = StreamBody::new(tokio_stream::iter(frames));
        let mut requests = RequestMessages::new(body, 2 << 20);
        let mut all = Vec::new();
        while let Some(message) = std::future::poll_fn(|cx| requests.poll_message(cx)).await {
            all.push(message?);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn messages_are_found_however_the_bytes_are_cut() {
        let sent: Vec<Vec<u8>> = [3usize, 0, 300, 1].iter().map(|&bytes| vec![7; bytes]).collect();
        let mut stream = Vec::new();
        for message in &sent {
            let mut framed = frame::begin(0);
            framed.extend_from_slice(message);
            stream.extend_from_slice(&frame::finish(framed));
        }
        for cut in 1..=stream.len() {
            assert_eq!(messages(&stream, cut).await.unwrap(), sent, "cut by {cut}");
        }
        let torn = messages(&stream[..stream.len() - 1], 9).await.unwrap_err();
        assert_eq!(torn.code(), tonic::Code::Cancelled);
    }

    #[tokio::test]
    async fn a_message_that_is_too_large_is_refused_before_it_is_read() {
        let error = messages(&[0, 0, 0x20, 0, 1], 2).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::ResourceExhausted);
        let error = messages(&[1, 0, 0, 0, 0], 5).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::Unimplemented);
    }

    #[tokio::test]
    async fn a_response_ends_with_its_status() {
        let pieces =
            tokio_stream::iter([Ok(Bytes::from_static(b"a")), Ok(Bytes::from_static(b"b"))]);
        let body =
            FramedResponse::Many(Box::pin(pieces)).into_http().into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(body.to_bytes(), "ab");
        let failing = tokio_stream::iter([Err(Status::aborted("no"))]);
        let body = FramedResponse::Many(Box::pin(failing)).into_http().into_body();
        let trailers = body.collect().await.unwrap();
        assert_eq!(trailers.trailers().unwrap()["grpc-status"], "10");
    }
}
