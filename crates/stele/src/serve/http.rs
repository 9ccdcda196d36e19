//! The HTTP port: health, metrics and a status page.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;

use super::health::{Failure, Parts};
use super::inject::Injector;
use super::metrics::{self, Metrics};
use super::status::{self, Place};

/// The state that the pages show.
#[derive(Clone)]
pub struct Shown {
    pub parts: Parts,
    pub metrics: &'static Metrics,
    pub place: Arc<Place>,
    pub injector: Option<Arc<Injector>>,
}

pub fn router(shown: Shown) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/health", get(health))
        .route("/metrics", get(numbers))
        .with_state(shown)
}

async fn health(State(shown): State<Shown>) -> impl IntoResponse {
    let draining = shown.parts.phases.draining.is_cancelled();
    described(draining, &shown.parts.failures(), &shown.parts.warnings())
}

/// Returns the response of /health: the reason of every component that does not serve,
/// then the warnings.
fn described(draining: bool, failures: &[Failure], warnings: &[String]) -> (StatusCode, String) {
    let mut text = String::new();
    for Failure { part, reason } in failures {
        text += &format!("{part}: {reason}\n");
    }
    if draining {
        text += "shutting down\n";
    }
    let status = match text.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    if status == StatusCode::OK {
        text += "ok\n";
    }
    for warning in warnings {
        text += &format!("warning: {warning}\n");
    }
    (status, text)
}

async fn numbers(State(shown): State<Shown>) -> impl IntoResponse {
    let health = shown.parts.all();
    let injected = shown.injector.as_ref().map(|injector| injector.totals());
    let failing = shown.parts.failing_work();
    let stats = shown.parts.store.stats();
    let text = metrics::render(shown.metrics, &stats, &health, &failing, injected);
    ([(header::CONTENT_TYPE, stele_metrics::CONTENT_TYPE)], text)
}

async fn page(State(shown): State<Shown>) -> impl IntoResponse {
    Html(status::page(&shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_or_cannot_write_is_not_healthy() {
        assert_eq!(described(false, &[], &[]), (StatusCode::OK, "ok\n".into()));
        assert_eq!(described(true, &[], &[]).0, StatusCode::SERVICE_UNAVAILABLE);
        let warned = described(false, &[], &["a file is damaged".into()]);
        assert_eq!(warned, (StatusCode::OK, "ok\nwarning: a file is damaged\n".into()));
        let failure = |part| Failure { part, reason: "the disk is gone".into() };
        let (status, text) = described(false, &[failure("tables"), failure("metastore")], &[]);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "tables: the disk is gone\nmetastore: the disk is gone\n");
    }
}
