//! The overview: how the server was started, its rates now and in the last 15 minutes,
//! what needs attention, and its methods.

use axum::extract::{RawQuery, State};
use serde_json::json;

use crate::answer::{Answer, Json};
use crate::args::Args;
use crate::routes::{Console, Mode};

/// Answers `GET overview`.
pub async fn show(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    let args = Args::parse(query.as_deref(), &["since"])?;
    let since = args.number("since", 0, 0, i64::MAX)? as u64;
    let attention = console.host.attention();
    Ok(Json(json!({
        "server": console.host.facts(),
        "attention": attention,
        "gauges": console.host.gauges(),
        "rates": console.history.since(since),
        "minute": console.history.over(60),
        "methods": console.host.methods(),
        "writes": console.mode == Mode::Write,
        "services": {"metastore": console.metastore.is_some()},
    })))
}
