//! Responses whose messages are already encoded.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use tonic::Status;

/// Produces framed messages one by one. Called only when the client has capacity
/// for the next one.
pub trait Messages: Send + Unpin + 'static {
    type Error: Into<Status>;

    /// Does a bounded amount of work, about a millisecond, towards the next
    /// message.
    fn next(&mut self) -> Result<Next, Self::Error>;
}

/// The result of a call of [`Messages::next`].
pub enum Next {
    Message(Bytes),
    /// No message yet: call again after other tasks have run.
    Yield,
    /// Call again when the future is ready. Its error ends the stream.
    Wait(Wait),
    /// There are no more messages.
    End,
}

/// A resource that a stream must wait for before it can continue, such as memory.
pub type Wait = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

impl From<Option<Bytes>> for Next {
    fn from(message: Option<Bytes>) -> Next {
        message.map_or(Next::End, Next::Message)
    }
}

/// Limits on the messages and bytes sent before yielding to other tasks.
const TURN_MESSAGES: u32 = 8;
const TURN_BYTES: usize = 256 << 10;

/// A response body: messages, then the status of the call as trailers.
pub struct MessageBody<M> {
    messages: Option<M>,
    wait: Option<Wait>,
    turn: Turn,
}

/// What has been sent since the last yield.
#[derive(Default)]
struct Turn {
    messages: u32,
    bytes: usize,
}

impl Turn {
    fn is_over(&self) -> bool {
        self.messages >= TURN_MESSAGES || self.bytes >= TURN_BYTES
    }

    fn add(&mut self, message: &Bytes) {
        self.messages += 1;
        self.bytes += message.len();
    }
}

impl<M: Messages> MessageBody<M> {
    /// Returns a response that streams `messages`.
    pub fn response(messages: M) -> http::Response<tonic::body::Body> {
        let body = MessageBody { messages: Some(messages), wait: None, turn: Turn::default() };
        response(body)
    }

    /// Returns the next message, or the status that ends the stream.
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, Status>> {
        let Some(messages) = &mut self.messages else {
            return Poll::Ready(Err(Status::internal("polled after the end")));
        };
        loop {
            if let Some(wait) = &mut self.wait {
                let waited = ready!(wait.as_mut().poll(context));
                self.wait = None;
                if let Err(status) = waited {
                    return Poll::Ready(Err(status));
                }
            }
            if !self.turn.is_over() {
                match messages.next() {
                    Ok(Next::Message(message)) => {
                        self.turn.add(&message);
                        return Poll::Ready(Ok(message));
                    }
                    Ok(Next::Yield) => {}
                    Ok(Next::Wait(wait)) => {
                        self.wait = Some(wait);
                        continue;
                    }
                    Ok(Next::End) => return Poll::Ready(Err(Status::ok(""))),
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            }
            self.turn = Turn::default();
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
    }
}

impl<I: Iterator<Item = Bytes> + Send + Unpin + 'static> MessageBody<Each<I>> {
    /// Returns a response with messages that already exist.
    pub fn of(messages: impl IntoIterator<IntoIter = I>) -> http::Response<tonic::body::Body> {
        MessageBody::response(Each(messages.into_iter()))
    }
}

/// An iterator over existing messages.
pub struct Each<I>(I);

impl<I: Iterator<Item = Bytes> + Send + Unpin + 'static> Messages for Each<I> {
    type Error = Status;

    fn next(&mut self) -> Result<Next, Status> {
        Ok(self.0.next().into())
    }
}

impl<M: Messages> http_body::Body for MessageBody<M> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.messages.is_none() {
            return Poll::Ready(None);
        }
        let status = match ready!(self.poll_message(context)) {
            Ok(message) => return Poll::Ready(Some(Ok(Frame::data(message)))),
            Err(status) => status,
        };
        self.messages = None;
        Poll::Ready(Some(trailers(&status)))
    }
}

/// Returns a response with a body of framed messages and trailers.
pub fn response<B>(body: B) -> http::Response<tonic::body::Body>
where
    B: http_body::Body<Data = Bytes, Error: Into<tonic::codegen::StdError>> + Send + 'static,
{
    let mut response = http::Response::new(tonic::body::Body::new(body));
    let grpc = http::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
    response
}

/// Returns the last frame of a body: the status of the call.
pub fn trailers(status: &Status) -> Result<Frame<Bytes>, Status> {
    let mut trailers = http::HeaderMap::with_capacity(2);
    status.add_header(&mut trailers)?;
    Ok(Frame::trailers(trailers))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use http_body::Body;

    use super::*;

    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Script(Vec<Next>);

    impl Messages for Script {
        type Error = Status;

        fn next(&mut self) -> Result<Next, Status> {
            Ok(if self.0.is_empty() { Next::End } else { self.0.remove(0) })
        }
    }

    /// Polls the body to its end and returns what it produced: `.` for a yield,
    /// the length of a message, or the status.
    fn polled(script: Vec<Next>) -> Vec<String> {
        let wakes = Arc::new(Wakes(AtomicUsize::new(0)));
        let waker = Waker::from(wakes.clone());
        let mut context = Context::from_waker(&waker);
        let (_, mut body) = MessageBody::response(Script(script)).into_parts();
        let mut seen = Vec::new();
        loop {
            match Pin::new(&mut body).poll_frame(&mut context) {
                Poll::Pending => {
                    assert_eq!(wakes.0.swap(0, Ordering::Relaxed), 1, "woken for the next turn");
                    seen.push(".".into());
                }
                Poll::Ready(None) => return seen,
                Poll::Ready(Some(frame)) => seen.push(match frame.unwrap().into_data() {
                    Ok(data) => data.len().to_string(),
                    Err(frame) => {
                        let trailers = frame.into_trailers().ok().unwrap();
                        trailers["grpc-status"].to_str().unwrap().to_string()
                    }
                }),
            }
        }
    }

    fn message(bytes: usize) -> Next {
        Next::Message(vec![0; bytes].into())
    }

    #[test]
    fn others_have_their_turn_after_work_without_a_message_and_after_large_ones() {
        let script = vec![Next::Yield, message(7), Next::Yield, Next::Yield, message(1 << 20)];
        assert_eq!(polled(script), [".", "7", ".", ".", "1048576", ".", "0"]);
        let small = (0..10).map(|_| message(3)).collect();
        let seen = polled(small);
        assert_eq!(seen.iter().filter(|seen| *seen == ".").count(), 1);
        assert_eq!(seen.len(), 12);
    }

    #[test]
    fn a_stream_goes_on_when_what_it_waits_for_is_there_or_fails_with_it() {
        let ready = || Next::Wait(Box::pin(async { Ok(()) }));
        assert_eq!(polled(vec![ready(), message(2)]), ["2", "0"]);
        let refused = Box::pin(async { Err(Status::resource_exhausted("no memory")) });
        assert_eq!(polled(vec![message(2), Next::Wait(refused), message(9)]), ["2", "8"]);
    }
}
