//! The HTTP port: health, metrics, and a page for people.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use stele_engine::Store;

use super::metrics::{self, Metrics};
use super::shutdown::Phases;
use super::status::{self, Place};

/// What the pages tell about.
#[derive(Clone)]
pub struct Shown {
    pub store: Arc<Store>,
    pub metrics: &'static Metrics,
    pub phases: &'static Phases,
    pub place: Arc<Place>,
}

pub fn router(shown: Shown) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/health", get(health))
        .route("/metrics", get(numbers))
        .with_state(shown)
}

async fn health(State(shown): State<Shown>) -> impl IntoResponse {
    well(shown.phases.draining.is_cancelled(), shown.store.failure())
}

fn well(draining: bool, failure: Option<stele_engine::Error>) -> (StatusCode, String) {
    match failure {
        Some(failure) => (StatusCode::SERVICE_UNAVAILABLE, format!("{failure}\n")),
        None if draining => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n".to_string()),
        None => (StatusCode::OK, "ok\n".to_string()),
    }
}

async fn numbers(State(shown): State<Shown>) -> impl IntoResponse {
    let text = metrics::render(shown.metrics, &shown.store.stats());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

async fn page(State(shown): State<Shown>) -> impl IntoResponse {
    Html(status::page(&shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_or_cannot_write_is_not_well() {
        assert_eq!(well(false, None).0, StatusCode::OK);
        assert_eq!(well(true, None).0, StatusCode::SERVICE_UNAVAILABLE);
        let (status, told) = well(false, Some(stele_engine::Error::Closed));
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(told, format!("{}\n", stele_engine::Error::Closed));
    }
}
