//! The HTTP API and the web page. `stele serve` and `stele traces serve` mount `router`
//! at /traces; web/openapi.json describes the API.
//!
//! `request` parses parameters and bodies, `tables` opens the named table; `results`
//! and `labels` write, `query` and `analyses` read, and `answer` encodes results and
//! errors as JSON.

mod analyses;
mod answer;
mod labels;
mod page;
mod query;
mod request;
mod results;
mod tables;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use stele_bigtable_client::Client;
pub use tables::Tables;

use crate::error::Error;
use crate::memory::Memory;
use answer::Answer;

/// The project of the tables that `stele serve` serves.
pub const PROJECT: &str = "stele";
pub const INSTANCE: &str = "traces";

/// The memory limit of a server that serves only traces.
const MEMORY_BYTES: u64 = 768 << 20;

/// Returns the routes below /traces, over the tables of one client.
pub fn router(client: Client) -> Router {
    router_within(client, MEMORY_BYTES)
}

/// Does the same as [`router`], with a limit on the memory that requests use.
pub fn router_within(client: Client, memory_bytes: u64) -> Router {
    let table = Router::new()
        .route("/", get(tables::show))
        .route("/commits", get(results::commits).post(results::register))
        .route("/results", axum::routing::post(results::put))
        .route("/query", get(query::grid))
        .route("/tiles/{tile}", get(query::tile))
        .route("/trace", get(query::trace))
        .route("/params", get(query::params))
        .route("/diff", get(analyses::diff))
        .route("/bisect", get(analyses::bisect))
        .route("/steps", get(analyses::steps))
        .route("/blame", get(analyses::blame))
        .route("/labels", get(labels::show).post(labels::change));
    let api = Router::new()
        .route("/", get(page::html))
        .route("/style.css", get(page::style))
        .route("/{script}", get(page::script))
        .route("/openapi.json", get(page::openapi))
        .route("/v1/tables", get(tables::list).post(tables::init))
        .nest("/v1/tables/{table}", table)
        .fallback(nothing)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Tables::new(client, Memory::new(memory_bytes)));
    Router::new()
        .route("/traces/", get(|| async { Redirect::permanent("/traces") }))
        .nest("/traces", api)
}

async fn nothing() -> Answer {
    Answer::from(Error::NotFound("page not found: see /traces/openapi.json for all pages".into()))
}

async fn wrong_method() -> Answer {
    Answer::wrong_method()
}
