//! The HTTP port: health and metrics. The `console` and the traces join it in `server`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::auth::Gate;
use super::health::{Components, Failure};
use super::inject::Injector;
use super::metrics::{self, Metrics};
use super::status::ServerInfo;

/// The state that the pages show.
#[derive(Clone)]
pub struct PageState {
    pub components: Components,
    pub metrics: &'static Metrics,
    pub info: Arc<ServerInfo>,
    pub injector: Option<Arc<Injector>>,
    /// Set if callers are checked.
    pub gate: Option<Arc<Gate>>,
}

pub fn router(state: PageState) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics_page))
        .with_state(state)
}

async fn health(State(state): State<PageState>) -> impl IntoResponse {
    let draining = state.components.phases.draining.is_cancelled();
    health_response(draining, &state.components.failures(), &state.components.warnings())
}

/// Returns the response of /health: the reason of every component that does not serve,
/// then the warnings.
fn health_response(
    draining: bool,
    failures: &[Failure],
    warnings: &[String],
) -> (StatusCode, String) {
    let mut text = String::new();
    for Failure { component, reason } in failures {
        text += &format!("{component}: {reason}\n");
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

async fn metrics_page(State(state): State<PageState>) -> impl IntoResponse {
    let health = state.components.all();
    let injected = state.injector.as_ref().map(|injector| injector.totals());
    let failing = state.components.failing_work();
    let stats = state.components.store.stats();
    let tables = state.components.store.tablet_summaries();
    let mut text = metrics::render(state.metrics, &stats, &tables, &health, &failing, injected);
    if let Some(objects) = &state.components.objects {
        let mut of_objects = stele_metrics::Text::with_capacity(4 << 10);
        objects.write_metrics(&mut of_objects);
        text += &of_objects.into_string();
    }
    if let Some(gate) = &state.gate {
        let mut of_gate = stele_metrics::Text::with_capacity(1 << 10);
        gate.write_metrics(&mut of_gate);
        text += &of_gate.into_string();
    }
    ([(header::CONTENT_TYPE, stele_metrics::CONTENT_TYPE)], text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_or_cannot_write_is_not_healthy() {
        assert_eq!(health_response(false, &[], &[]), (StatusCode::OK, "ok\n".into()));
        assert_eq!(health_response(true, &[], &[]).0, StatusCode::SERVICE_UNAVAILABLE);
        let warned = health_response(false, &[], &["a file is damaged".into()]);
        assert_eq!(warned, (StatusCode::OK, "ok\nwarning: a file is damaged\n".into()));
        let failure = |component| Failure { component, reason: "the disk is gone".into() };
        let (status, text) =
            health_response(false, &[failure("tables"), failure("metastore")], &[]);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "tables: the disk is gone\nmetastore: the disk is gone\n");
    }
}
