//! Applies the rules to the calls of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use stele_grpc::{Dispatch, Intercept, MethodPath, ResponseFuture};
use tonic::body::Body;

use super::{Rule, Rules, peek};

/// The rules of a server, which may change at run time.
pub struct Injector {
    rules: RwLock<Arc<Rules>>,
    totals: Arc<Totals>,
}

/// Calls affected since the server was started.
#[derive(Debug, Default)]
pub struct Totals {
    pub delayed: AtomicU64,
    pub failed: AtomicU64,
}

impl Injector {
    pub fn new(rules: Rules) -> Injector {
        Injector { rules: RwLock::new(Arc::new(rules)), totals: Arc::default() }
    }

    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    pub fn rules(&self) -> Arc<Rules> {
        self.rules.read().clone()
    }

    /// Replaces all rules and resets their counters.
    pub fn set(&self, rules: Rules) {
        tracing::warn!(rules = rules.rules.len(), "replaced the fault injection rules");
        *self.rules.write() = Arc::new(rules);
    }
}

impl Intercept for Injector {
    fn intercept(&self, request: http::Request<Body>, next: Dispatch) -> ResponseFuture {
        let (rules, totals) = (self.rules(), self.totals.clone());
        let Some(path) = MethodPath::of(request.uri()) else { return next.call(request) };
        let mut covering = rules.rules.iter().filter(|rule| rule.covers(path)).peekable();
        if covering.peek().is_none() {
            return next.call(request);
        }
        let needs_table = covering.any(Rule::is_for_table);
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let (table, body) = match needs_table {
                true => peek::table(body).await,
                false => (None, body),
            };
            // The path was valid when it was checked above.
            let path = MethodPath::of(&head.uri);
            let (latency, answer) =
                path.map_or((Duration::ZERO, None), |path| rules.draw(path, table.as_deref()));
            if !latency.is_zero() {
                totals.delayed.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(latency).await;
            }
            match answer {
                Some(status) => {
                    totals.failed.fetch_add(1, Ordering::Relaxed);
                    Ok(status.into_http())
                }
                None => next.call(http::Request::from_parts(head, body)).await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_grpc::Services;
    use tokio::time::Instant;
    use tonic::Status;

    fn services(rules: &[&str]) -> (Services, Arc<Injector>) {
        let texts: Vec<_> = rules.iter().map(|rule| rule.to_string()).collect();
        let injector = Arc::new(Injector::new(Rules::parse(&texts, 3).unwrap()));
        (Services::default().with_intercept(injector.clone()), injector)
    }

    async fn called(services: &Services, path: &str) -> http::Response<Body> {
        let request = http::Request::builder().uri(path).header("content-type", "application/grpc");
        services.call(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    fn message(response: &http::Response<Body>) -> String {
        Status::from_header_map(response.headers()).unwrap().message().to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn latencies_add_up_and_the_first_error_is_answered() {
        let rules = ["*:latency=2s", "A:latency=3s;B:aborted=100%", "B:internal=100%,latency=1h"];
        assert!(Rules::parse(&rules.map(String::from), 0).is_err(), "an hour is too long");
        let (services, injector) =
            services(&["*:latency=2s", "A:latency=3s;B:aborted=100%", "B:internal=100%"]);
        let started = Instant::now();
        // There is no service behind the injector, so calls passed on are UNIMPLEMENTED.
        assert!(message(&called(&services, "/s/A").await).contains("unknown service"));
        assert_eq!(started.elapsed(), Duration::from_secs(5));
        let started = Instant::now();
        let answer = called(&services, "/s/B").await;
        assert_eq!(started.elapsed(), Duration::from_secs(2));
        assert_eq!(answer.headers()["grpc-status"], "10");
        assert!(message(&answer).contains("injected fault"), "{answer:?}");
        injector.set(Rules::default());
        let started = Instant::now();
        assert!(message(&called(&services, "/s/B").await).contains("unknown service"));
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
