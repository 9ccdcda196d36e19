//! The gRPC services of a port. The service in a call's path finds the one to
//! answer it, without anything being made for the way there.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower_service::Service;

type Answer = Result<http::Response<Body>, Infallible>;
/// A call that is being answered.
pub type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

#[derive(Clone, Default)]
pub struct Services(Arc<Table>);

#[derive(Clone, Default)]
struct Table {
    named: Vec<(&'static str, Arc<dyn Serves>)>,
    /// Answers what no other is there for.
    otherwise: Option<Arc<dyn Serves>>,
}

/// A service that is shared by all calls.
trait Serves: Send + Sync {
    fn call(&self, request: http::Request<Body>) -> Answering;
}

impl<S> Serves for S
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S: Service<http::Request<Body>, Future = Answering> + Clone + Send + Sync,
{
    fn call(&self, request: http::Request<Body>) -> Answering {
        Service::call(&mut self.clone(), request)
    }
}

impl Services {
    /// With one more service, as they are generated: always ready.
    pub fn with<S>(mut self, service: S) -> Services
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
        S: Service<http::Request<Body>, Future = Answering> + Clone + Send + Sync + 'static,
        S: NamedService,
    {
        Arc::make_mut(&mut self.0).named.push((S::NAME, Arc::new(service)));
        self
    }

    /// With one for all calls of other names.
    pub fn otherwise<S>(mut self, service: S) -> Services
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
        S: Service<http::Request<Body>, Future = Answering> + Clone + Send + Sync + 'static,
    {
        Arc::make_mut(&mut self.0).otherwise = Some(Arc::new(service));
        self
    }

    /// As the library's own servers and clients take them.
    pub fn into_routes(self) -> Routes {
        let mut routes = Routes::default();
        let router = std::mem::take(routes.axum_router_mut());
        *routes.axum_router_mut() = router.fallback_service(self);
        routes
    }

    pub fn call(&self, request: http::Request<Body>) -> Answering {
        let Table { named, otherwise } = &*self.0;
        let called = service_name(request.uri().path());
        let found = named.iter().find(|(name, _)| *name == called).map(|(_, service)| service);
        match found.or(otherwise.as_ref()) {
            Some(service) => service.call(request),
            None => {
                let status = Status::unimplemented(format!("there is no service {called:?}"));
                Box::pin(std::future::ready(Ok(status.into_http())))
            }
        }
    }
}

/// The library's own, which go their own way.
impl From<Routes> for Services {
    fn from(routes: Routes) -> Services {
        Services(Arc::new(Table { named: Vec::new(), otherwise: Some(Arc::new(Routed(routes))) }))
    }
}

struct Routed(Routes);

impl Serves for Routed {
    fn call(&self, request: http::Request<Body>) -> Answering {
        Box::pin(self.0.clone().call(request))
    }
}

/// The service of `/service/method`.
fn service_name(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split_once('/').map_or(path, |(service, _)| service)
}

impl<B> Service<http::Request<B>> for Services
where
    B: http_body::Body<Data = Bytes, Error: Into<StdError>> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Answering {
        Services::call(self, request.map(Body::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers with its own name.
    #[derive(Clone)]
    struct Named(&'static str);

    impl NamedService for Named {
        const NAME: &'static str = "a.B";
    }

    impl Service<http::Request<Body>> for Named {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = Answering;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: http::Request<Body>) -> Answering {
            let answer = http::Response::builder().header("who", self.0).body(Body::empty());
            Box::pin(std::future::ready(Ok(answer.expect("a name is a header's value"))))
        }
    }

    async fn asked(services: &Services, path: &str) -> http::Response<Body> {
        let request = http::Request::builder().uri(path).body(Body::empty()).unwrap();
        services.call(request).await.unwrap()
    }

    #[tokio::test]
    async fn a_call_reaches_the_service_of_its_path() {
        let services = Services::default().with(Named("a"));
        assert_eq!(asked(&services, "/a.B/C").await.headers()["who"], "a");
        for path in ["/a.B2/C", "/a/B/C", "/", "/a.", "*"] {
            let answer = asked(&services, path).await;
            assert_eq!(answer.headers()["grpc-status"], "12", "{path}");
        }
        let services = services.otherwise(Named("other"));
        assert_eq!(asked(&services, "/a.B/C").await.headers()["who"], "a");
        assert_eq!(asked(&services, "/b/C").await.headers()["who"], "other");
    }
}
