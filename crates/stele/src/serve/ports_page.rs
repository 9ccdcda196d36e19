//! The description of a server's ports, which every port gives over HTTP/1.1, so that a
//! command that was given one port finds the others.

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use super::banner::reachable;
use super::status::ServerInfo;
use crate::connect::PORTS_PATH;

/// Returns the description as the port named `this` gives it.
pub fn router(info: &ServerInfo, this: &'static str) -> Router {
    let port = |address: Option<std::net::SocketAddr>| address.map(|address| address.port());
    let text = json!({
        "stele": env!("CARGO_PKG_VERSION"),
        "this": this,
        "grpc": port(info.grpc),
        "http": port(info.http),
        "metastore": port(info.metastore),
        "dns": port(info.dns),
        "tls": info.tls,
    })
    .to_string();
    Router::new().route(
        PORTS_PATH,
        get(async move || ([(header::CONTENT_TYPE, "application/json")], text.clone())),
    )
}

/// Returns the pages of the gRPC port, which browsers and HTTP clients open by mistake.
pub fn of_grpc(info: &ServerInfo) -> Router {
    let scheme = if info.tls { "https" } else { "http" };
    let console = match info.http {
        Some(address) => format!("the console is at {scheme}://{}/", reachable(address)),
        None => "the HTTP port is off".into(),
    };
    let text = format!("this port speaks gRPC, which needs HTTP/2; {console}\n");
    let notice = async move || (StatusCode::NOT_FOUND, text.clone());
    router(info, "grpc").fallback(notice).layer(axum::middleware::map_response(close))
}

/// Closes the connection after the response: nothing else is served on it.
async fn close(response: Response) -> impl IntoResponse {
    let mut response = response;
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
