//! Services without generated code: each dispatches its calls by method and
//! encodes its own responses, so that data is copied once, from the store to the
//! wire.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tonic::Status;
use tonic::body::Body;

/// The response future of a call. It cannot fail: errors are responses.
pub type ResponseFuture =
    Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

/// A service that handles its calls itself. Added to a port with
/// [`Services::with_handler`](crate::Services::with_handler).
pub trait Handler: Send + Sync + 'static {
    /// The full name of the service, as in the paths of its methods.
    const NAME: &'static str;

    /// Handles a call, whose path is `/NAME/method`
    /// ([`MethodPath`](crate::MethodPath)).
    fn handle(&self, request: http::Request<Body>) -> ResponseFuture;
}

/// Returns the response future of a call that may fail with a status.
pub fn respond(
    call: impl Future<Output = Result<http::Response<Body>, Status>> + Send + 'static,
) -> ResponseFuture {
    Box::pin(Response { call })
}

pin_project! {
    /// Turns the error of a call into a response. An `async` block would keep room for the
    /// call twice and move it when it is polled first.
    struct Response<C> {
        #[pin]
        call: C,
    }
}

impl<C: Future<Output = Result<http::Response<Body>, Status>>> Future for Response<C> {
    type Output = Result<http::Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answered = ready!(self.project().call.poll(context));
        Poll::Ready(Ok(answered.unwrap_or_else(Status::into_http)))
    }
}

/// Returns the response future of a call that has been answered already.
pub fn respond_now(response: http::Response<Body>) -> ResponseFuture {
    Box::pin(std::future::ready(Ok(response)))
}
