//! The body of a streamed response whose messages are already in wire form.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tonic::Status;

/// Gives framed messages one by one; asked for the next only when the client
/// has room for it.
pub trait Messages: Send + Unpin + 'static {
    type Error: Into<Status>;

    fn next(&mut self) -> Result<Option<Bytes>, Self::Error>;
}

/// Messages given in one go before other tasks get their turn.
const TURN_MESSAGES: u32 = 8;

/// Messages, then the status of the call.
pub struct MessageBody<M> {
    messages: Option<M>,
    turn: u32,
}

impl<M: Messages> MessageBody<M> {
    /// The response that streams `messages`.
    pub fn response(messages: M) -> http::Response<tonic::body::Body> {
        let body = MessageBody { messages: Some(messages), turn: 0 };
        let mut response = http::Response::new(tonic::body::Body::new(body));
        let grpc = http::HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
        response
    }
}

impl<I: Iterator<Item = Bytes> + Send + Unpin + 'static> MessageBody<Each<I>> {
    /// The response of messages that are there already.
    pub fn of(messages: impl IntoIterator<IntoIter = I>) -> http::Response<tonic::body::Body> {
        MessageBody::response(Each(messages.into_iter()))
    }
}

/// Messages that are there already.
pub struct Each<I>(I);

impl<I: Iterator<Item = Bytes> + Send + Unpin + 'static> Messages for Each<I> {
    type Error = Status;

    fn next(&mut self) -> Result<Option<Bytes>, Status> {
        Ok(self.0.next())
    }
}

impl<M: Messages> http_body::Body for MessageBody<M> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let Some(messages) = &mut this.messages else { return Poll::Ready(None) };
        if this.turn == TURN_MESSAGES {
            this.turn = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.turn += 1;
        let status = match messages.next() {
            Ok(Some(message)) => return Poll::Ready(Some(Ok(Frame::data(message)))),
            Ok(None) => Status::ok(""),
            Err(error) => error.into(),
        };
        this.messages = None;
        let mut trailers = http::HeaderMap::with_capacity(2);
        let added = status.add_header(&mut trailers);
        Poll::Ready(Some(added.map(|()| Frame::trailers(trailers))))
    }
}
