//! The gRPC services of a port. A call is dispatched to the service named in its
//! path; dispatching does not allocate. Requests that are not gRPC calls are
//! rejected here: the content type and the exact form of the path are checked, so
//! a service can rely on its path being `/service/method`.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower_service::Service;

use crate::handler::{Handler, ResponseFuture, respond_now};
use crate::method_path::MethodPath;

/// The services of a port. Cheap to clone.
#[derive(Clone, Default)]
pub struct Services(Arc<Table>);

#[derive(Clone, Default)]
struct Table {
    named: Vec<(&'static str, Arc<dyn SharedService>)>,
    /// Handles calls whose service is not in `named`.
    fallback: Option<Arc<dyn SharedService>>,
    /// Sees every call first.
    intercept: Option<Arc<dyn Intercept>>,
}

/// Intercepts calls between a port and its services.
pub trait Intercept: Send + Sync {
    /// Answers a call or passes it to `next`. Its path is known to be
    /// `/service/method`.
    fn intercept(&self, request: http::Request<Body>, next: Dispatch) -> ResponseFuture;
}

/// The services behind an [`Intercept`].
pub struct Dispatch(Services);

impl Dispatch {
    pub fn call(&self, request: http::Request<Body>) -> ResponseFuture {
        let service = MethodPath::of(request.uri()).map_or("", |path| path.service);
        match self.0.find(service) {
            Ok(service) => service.call(request),
            Err(status) => respond_now(status.into_http()),
        }
    }
}

/// A service shared by all calls.
trait SharedService: Send + Sync {
    fn call(&self, request: http::Request<Body>) -> ResponseFuture;
}

impl<S> SharedService for S
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S: Service<http::Request<Body>, Future = ResponseFuture> + Clone + Send + Sync,
{
    fn call(&self, request: http::Request<Body>) -> ResponseFuture {
        Service::call(&mut self.clone(), request)
    }
}

/// A hand-written service.
struct Handled<H>(H);

impl<H: Handler> SharedService for Handled<H> {
    fn call(&self, request: http::Request<Body>) -> ResponseFuture {
        self.0.handle(request)
    }
}

impl Services {
    /// Adds a generated service. Generated services are always ready.
    pub fn with<S>(mut self, service: S) -> Services
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
        S: Service<http::Request<Body>, Future = ResponseFuture> + Clone + Send + Sync + 'static,
        S: NamedService,
    {
        Arc::make_mut(&mut self.0).named.push((S::NAME, Arc::new(service)));
        self
    }

    /// Adds a service that handles its calls itself.
    pub fn with_handler<H: Handler>(mut self, handler: H) -> Services {
        Arc::make_mut(&mut self.0).named.push((H::NAME, Arc::new(Handled(handler))));
        self
    }

    /// Sets the service that handles calls of all other names.
    pub fn with_fallback<S>(mut self, service: S) -> Services
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
        S: Service<http::Request<Body>, Future = ResponseFuture> + Clone + Send + Sync + 'static,
    {
        Arc::make_mut(&mut self.0).fallback = Some(Arc::new(service));
        self
    }

    /// Sets an interceptor that sees every call first.
    pub fn with_intercept(mut self, intercept: Arc<dyn Intercept>) -> Services {
        Arc::make_mut(&mut self.0).intercept = Some(intercept);
        self
    }

    /// Converts the services to tonic's own router, as its servers and clients
    /// expect.
    pub fn into_routes(self) -> Routes {
        let mut routes = Routes::default();
        let router = std::mem::take(routes.axum_router_mut());
        *routes.axum_router_mut() = router.fallback_service(self);
        routes
    }

    /// Handles a call. A path other than `/service/method` is answered with
    /// UNIMPLEMENTED, a request with another content type with HTTP status 415.
    pub fn call(&self, request: http::Request<Body>) -> ResponseFuture {
        if !is_grpc(request.headers()) {
            return respond_now(unsupported_media_type());
        }
        let Some(path) = MethodPath::of(request.uri()) else {
            let path = excerpt(request.uri().path());
            let status =
                Status::unimplemented(format!("invalid path {path:?}: expected /service/method"));
            return respond_now(status.into_http());
        };
        match &self.0.intercept {
            None => match self.find(path.service) {
                Ok(service) => service.call(request),
                Err(status) => respond_now(status.into_http()),
            },
            Some(intercept) => intercept.intercept(request, Dispatch(self.clone())),
        }
    }

    /// Finds the service of this name.
    fn find(&self, name: &str) -> Result<&dyn SharedService, Status> {
        let Table { named, fallback, .. } = &*self.0;
        let found = named.iter().find(|(known, _)| *known == name).map(|(_, service)| service);
        match found.or(fallback.as_ref()) {
            Some(service) => Ok(service.as_ref()),
            None => Err(Status::unimplemented(format!("unknown service {:?}", excerpt(name)))),
        }
    }
}

/// Returns whether the content type of a request is gRPC's: `application/grpc`,
/// optionally followed by a codec (`+proto`) or parameters (`;`).
pub fn is_grpc(headers: &http::HeaderMap) -> bool {
    let kind = headers.get(http::header::CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// The response to a request that is not gRPC on a port that serves only gRPC.
pub fn unsupported_media_type() -> http::Response<Body> {
    let text = "gRPC calls need the content type application/grpc\n";
    let mut response = http::Response::new(Body::new(text.to_string()));
    *response.status_mut() = http::StatusCode::UNSUPPORTED_MEDIA_TYPE;
    let kind = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// Returns a prefix of client-supplied text, short enough for an error message.
fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(200)]
}

/// Delegates all calls to tonic's own router.
impl From<Routes> for Services {
    fn from(routes: Routes) -> Services {
        let fallback: Option<Arc<dyn SharedService>> = Some(Arc::new(Routed(routes)));
        Services(Arc::new(Table { fallback, ..Table::default() }))
    }
}

struct Routed(Routes);

impl SharedService for Routed {
    fn call(&self, request: http::Request<Body>) -> ResponseFuture {
        Box::pin(self.0.clone().call(request))
    }
}

impl<B> Service<http::Request<B>> for Services
where
    B: http_body::Body<Data = Bytes, Error: Into<StdError>> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> ResponseFuture {
        Services::call(self, request.map(Body::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Responds with its own name.
    #[derive(Clone)]
    struct Named(&'static str);

    impl NamedService for Named {
        const NAME: &'static str = "a.B";
    }

    impl Service<http::Request<Body>> for Named {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = ResponseFuture;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<Body>) -> ResponseFuture {
            let answer = http::Response::builder().header("who", self.0).body(Body::empty());
            Box::pin(std::future::ready(Ok(answer.expect("a name is a header's value"))))
        }
    }

    async fn call(services: &Services, path: &str) -> http::Response<Body> {
        call_as(services, path, Some("application/grpc")).await
    }

    async fn call_as(
        services: &Services,
        path: &str,
        content_type: Option<&str>,
    ) -> http::Response<Body> {
        let mut request = http::Request::builder().uri(path);
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        services.call(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_call_reaches_the_service_of_its_path() {
        let services = Services::default().with(Named("a"));
        assert_eq!(call(&services, "/a.B/C").await.headers()["who"], "a");
        for path in ["/a.B2/C", "/a/B/C", "/", "/a.", "*"] {
            let answer = call(&services, path).await;
            assert_eq!(answer.headers()["grpc-status"], "12", "{path}");
        }
        let services = services.with_fallback(Named("other"));
        assert_eq!(call(&services, "/a.B/C").await.headers()["who"], "a");
        assert_eq!(call(&services, "/b/C").await.headers()["who"], "other");
    }

    #[tokio::test]
    async fn only_the_exact_path_of_a_method_reaches_a_service() {
        let services = Services::default().with(Named("a")).with_fallback(Named("other"));
        for path in [
            "/a.B/x/C",
            "//C",
            "/a.B//C",
            "/a.B/",
            "/a.B",
            "/a.B/C/",
            "/a.B/C?x=1",
            "/a.B/C?",
            "//a.B/C",
            "http://host/a.B/x/C",
        ] {
            let answer = call(&services, path).await;
            assert_eq!(answer.headers()["grpc-status"], "12", "{path}");
        }
        // An absolute URI, as in HTTP/2 requests.
        assert_eq!(call(&services, "http://host/a.B/C").await.headers()["who"], "a");
    }

    #[tokio::test]
    async fn a_request_of_another_content_type_is_refused_with_415() {
        let services = Services::default().with(Named("a")).with_fallback(Named("other"));
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
            assert_eq!(call_as(&services, "/a.B/C", Some(kind)).await.headers()["who"], "a");
        }
        for kind in
            ["text/plain", "application/json", "application/grpc-web", "application/grpcx", ""]
        {
            let answer = call_as(&services, "/a.B/C", Some(kind)).await;
            assert_eq!(answer.status(), http::StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
        }
        let answer = call_as(&services, "/b/C", None).await;
        assert_eq!(answer.status(), http::StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
}
