//! The API as a tower service: gRPC to its methods, those of the native API to
//! that, everything else to pages and the JSON gateway.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio_stream::StreamExt;
use tonic::Status;

use super::methods::Method;
use super::rpc::{Answer, Requests};
use super::{Etcd, metrics, pages};
use crate::native;

/// The body of every response.
pub type PageBody = tonic::body::Body;

/// Serves an [`Etcd`].
#[derive(Clone)]
pub struct Service {
    etcd: Etcd,
    native: native::Service,
}

impl Service {
    pub(super) fn new(etcd: Etcd) -> Service {
        let native = native::Native::new(etcd.node().clone()).service();
        Service { etcd, native }
    }
}

/// Whether a request is a gRPC call.
pub fn is_grpc(headers: &http::HeaderMap) -> bool {
    let kind = headers.get(http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Whether the calls of this path end only when somebody ends them.
pub fn is_endless(path: &str) -> bool {
    Method::of_path(path).is_some_and(Method::asks_many) || native::is_endless(path)
}

impl<B> tower_service::Service<Request<B>> for Service
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    type Response = Response<PageBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<PageBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.uri().path().starts_with(native::PATH) {
            return tower_service::Service::call(&mut self.native, request);
        }
        let etcd = self.etcd.clone();
        Box::pin(async move {
            if !is_grpc(request.headers()) {
                return Ok(pages::page(&etcd, request).await);
            }
            let answered = call(&etcd, request).await;
            Ok(answered.map_or_else(Status::into_http, Answer::into_response))
        })
    }
}

async fn call<B>(etcd: &Etcd, request: Request<B>) -> Result<Answer, Status>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    let (head, body) = request.into_parts();
    let Some(method) = Method::of_path(head.uri.path()) else {
        let path = head.uri.path();
        return Err(Status::unimplemented(format!("{path} is not supported")));
    };
    let calls = &etcd.counters().calls;
    calls.started(method);
    let requests = Requests::new(body);
    let answered = if method.asks_many() {
        let counting = etcd.clone();
        let requests = requests.map(move |message| {
            let calls = &counting.counters().calls;
            message.inspect(|message| calls.received(method, message.len()))
        });
        etcd.stream(method, Box::pin(requests))
    } else {
        match requests.one().await {
            Ok(message) => {
                calls.received(method, message.len());
                etcd.unary(method, message).await
            }
            Err(status) => Err(status),
        }
    };
    match answered {
        Ok(answer) => Ok(metrics::counted(etcd, method, answer)),
        Err(status) => {
            calls.handled(method, status.code());
            Err(status)
        }
    }
}
