//! The API as a tower service. Dispatches gRPC calls to their methods or the
//! native API, and everything else to pages and the JSON gateway.

use std::convert::Infallible;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use stele_grpc::{ResponseFuture, is_grpc, respond, respond_now, unsupported_media_type};
use tokio_stream::StreamExt;
use tonic::Status;

use super::methods::Method;
use super::rpc::{FramedResponse, RequestMessages};
use super::{Etcd, gateway, leader, metrics, pages};
use crate::error::Error;
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

    /// Calls the native API. While callers are checked, the request carries its
    /// caller as an extension.
    fn call_native<B>(&mut self, mut request: Request<B>) -> ResponseFuture
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        if !self.etcd.node().auth().is_enabled() {
            return tower_service::Service::call(&mut self.native, request);
        }
        let (etcd, mut native) = (self.etcd.clone(), self.native.clone());
        let credential = etcd.credential(request.headers(), request.extensions());
        Box::pin(async move {
            match etcd.identify(&credential).await {
                Ok(caller) => {
                    if let Some(caller) = caller {
                        request.extensions_mut().insert(caller);
                    }
                    tower_service::Service::call(&mut native, request).await
                }
                Err(error) => Ok(Status::from(error).into_http()),
            }
        })
    }
}

/// Returns whether the path is that of a gRPC method, which serves nothing
/// else.
fn is_method(path: &str) -> bool {
    Method::of_path(path).is_some() || path.starts_with(native::PATH)
}

/// Returns whether calls of this path run until they are cancelled.
pub fn is_endless(path: &str) -> bool {
    let by_json = || pages::gateway_path(path).and_then(gateway::method);
    Method::of_path(path).or_else(by_json).is_some_and(Method::is_endless)
        || native::is_endless(path)
}

/// Returns the path of the gRPC method that a page of the JSON gateway calls; `None` if
/// the path is not one of the gateway's methods.
pub fn json_method(path: &str) -> Option<&'static str> {
    static PATHS: LazyLock<Vec<(Method, String)>> = LazyLock::new(|| {
        let path = |method: Method| {
            let (service, name) = method.names();
            (method, format!("/{service}/{name}"))
        };
        Method::all().map(path).collect()
    });
    let method = pages::gateway_path(path).and_then(gateway::method)?;
    PATHS.iter().find(|(known, _)| *known == method).map(|(_, path)| path.as_str())
}

/// Returns whether the path is one of the JSON gateway.
pub fn is_gateway(path: &str) -> bool {
    pages::gateway_path(path).is_some()
}

impl<B> tower_service::Service<Request<B>> for Service
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
{
    type Response = Response<PageBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        let etcd = self.etcd.clone();
        if !is_grpc(request.headers()) {
            if is_method(request.uri().path()) {
                return respond_now(unsupported_media_type());
            }
            return Box::pin(async move { Ok(pages::page(&etcd, request).await) });
        }
        if request.uri().path().starts_with(native::PATH) {
            if etcd.node().is_learner() && !native::is_for_learners(request.uri().path()) {
                return respond_now(Status::from(Error::NotForLearner).into_http());
            }
            return self.call_native(request);
        }
        respond(async move { Ok(call(&etcd, request).await?.into_http()) })
    }
}

async fn call<B>(etcd: &Etcd, request: Request<B>) -> Result<FramedResponse, Status>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let Some(method) = Method::of_path(head.uri.path()) else {
        let path = head.uri.path();
        return Err(Status::unimplemented(format!("{path} is not supported")));
    };
    let needs_leader = leader::is_required(&head.headers);
    if needs_leader {
        leader::check(etcd)?;
    }
    let calls = &etcd.counters().calls;
    calls.started(method);
    let credential = etcd.credential(&head.headers, &head.extensions);
    let requests = RequestMessages::new(body, etcd.options().message_bytes_max());
    let executed = if method.is_client_streaming() {
        let counting = etcd.clone();
        let requests = requests.map(move |message| {
            let calls = &counting.counters().calls;
            message.inspect(|message| calls.received(method, message.len()))
        });
        etcd.stream(method, credential, Box::pin(requests))
    } else {
        match requests.one().await {
            Ok(message) => {
                calls.received(method, message.len());
                etcd.unary(method, &credential, message).await
            }
            Err(status) => Err(status),
        }
    };
    match executed {
        Ok(response) if needs_leader => {
            let response = leader::ending_without(etcd, response);
            Ok(metrics::counted(etcd, method, response))
        }
        Ok(response) => Ok(metrics::counted(etcd, method, response)),
        Err(status) => {
            calls.handled(method, status.code());
            Err(status)
        }
    }
}
