//! The paths of the API and of the web page.

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use stele_bigtable_client::Client;

use super::answer::Answer;
use super::{Tables, analyses, labels, page, query, results, tables};
use crate::error::Error;
use crate::memory::Memory;

/// The memory limit of a server that serves only traces.
const MEMORY_BYTES: u64 = 768 << 20;

/// Returns the routes below /traces, over the tables of one client.
pub fn router(client: Client) -> Router {
    router_within(client, MEMORY_BYTES)
}

/// Does the same as [`router`], with a limit on the memory that requests use.
pub fn router_within(client: Client, memory_bytes: u64) -> Router {
    let calls = calls()
        .into_iter()
        .fold(Router::new(), |calls, (path, methods)| calls.route(&format!("/v1{path}"), methods));
    let api = calls
        .route("/", get(page::html))
        .route("/style.css", get(page::style))
        .route("/{script}", get(page::script))
        .route("/openapi.json", get(page::openapi))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .with_state(Tables::new(client, Memory::new(memory_bytes)));
    Router::new()
        .route("/traces/", get(|| async { Redirect::permanent("/traces") }))
        .nest("/traces", api)
}

/// Returns the paths below /traces/v1 with their methods.
fn calls() -> [(&'static str, axum::routing::MethodRouter<Tables>); 13] {
    [
        ("/tables", get(tables::list).post(tables::init)),
        ("/tables/{table}", get(tables::show)),
        ("/tables/{table}/commits", get(results::commits).post(results::register)),
        ("/tables/{table}/results", axum::routing::post(results::put)),
        ("/tables/{table}/query", get(query::grid)),
        ("/tables/{table}/tiles/{tile}", get(query::tile)),
        ("/tables/{table}/trace", get(query::trace)),
        ("/tables/{table}/params", get(query::params)),
        ("/tables/{table}/diff", get(analyses::diff)),
        ("/tables/{table}/bisect", get(analyses::bisect)),
        ("/tables/{table}/steps", get(analyses::steps)),
        ("/tables/{table}/blame", get(analyses::blame)),
        ("/tables/{table}/labels", get(labels::show).post(labels::change)),
    ]
}

async fn not_found() -> Answer {
    Answer::from(Error::NotFound("page not found: see /traces/openapi.json for all pages".into()))
}

async fn wrong_method() -> Answer {
    Answer::wrong_method()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_described() {
        let document: serde_json::Value = serde_json::from_str(page::OPENAPI).unwrap();
        let described = document["paths"].as_object().unwrap();
        let described: BTreeSet<&str> = described.keys().map(String::as_str).collect();
        assert_eq!(calls().map(|(path, _)| path).into_iter().collect::<BTreeSet<_>>(), described);
    }
}
