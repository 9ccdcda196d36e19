//! Answers the methods of the admin services that are not supported with a sentence, which
//! the generated code would leave out.

use std::convert::Infallible;
use std::task::{Context, Poll};

use stele_grpc::{MethodPath, ResponseFuture, respond_now};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;

use crate::proto::ADMIN_METHODS;

/// A generated service, called only for the methods that it has.
#[derive(Clone)]
pub struct Supported<S>(pub S);

impl<S: NamedService> NamedService for Supported<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Supported<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S: Service<http::Request<Body>, Future = ResponseFuture>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> ResponseFuture {
        let path = request.uri().path().trim_start_matches('/');
        if ADMIN_METHODS.lines().any(|method| method == path) {
            return self.0.call(request);
        }
        let method = MethodPath::of(request.uri()).map_or("", |path| path.method);
        let method = &method[..method.floor_char_boundary(100)];
        respond_now(Status::unimplemented(format!("{method} is not supported")).into_http())
    }
}
