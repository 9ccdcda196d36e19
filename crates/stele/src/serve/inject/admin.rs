//! The rules of a running server over HTTP, for clients on the same machine: `GET
//! /inject` lists them, `PUT` replaces them, `DELETE` removes them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};

use super::super::connections::Peer;
use super::{Injector, Rules};

pub const PATH: &str = "/inject";

/// The request body of a client.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    pub rules: Vec<String>,
    #[serde(default)]
    pub seed: u64,
}

/// The response body.
#[derive(Debug, Deserialize, Serialize)]
pub struct Shown {
    pub seed: u64,
    pub rules: Vec<ShownRule>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct ShownRule {
    pub rule: String,
    /// Calls that matched the rule.
    pub matched: u64,
    /// Calls that were answered with an error.
    pub failed: u64,
}

impl From<&Rules> for Shown {
    fn from(rules: &Rules) -> Shown {
        let shown = rules.rules.iter().map(|rule| ShownRule {
            rule: rule.to_string(),
            matched: rule.matched.load(Ordering::Relaxed),
            failed: rule.failed.load(Ordering::Relaxed),
        });
        Shown { seed: rules.seed, rules: shown.collect() }
    }
}

/// Returns the routes of the injector; `None` means that injection is disabled.
pub fn router(injector: Option<Arc<Injector>>) -> Router {
    let calls = get(list).put(set).delete(clear);
    Router::new().route(PATH, calls).with_state(injector)
}

type Switch = State<Option<Arc<Injector>>>;
type Asker = Option<Extension<Peer>>;

async fn list(State(injector): Switch, peer: Asker) -> Response {
    match admitted(injector, peer) {
        Ok(injector) => shown(&injector),
        Err(refused) => *refused,
    }
}

async fn set(State(injector): Switch, peer: Asker, body: Bytes) -> Response {
    let injector = match admitted(injector, peer) {
        Ok(injector) => injector,
        Err(refused) => return *refused,
    };
    let wanted = serde_json::from_slice(&body).map_err(|error| error.to_string());
    match wanted.and_then(|Wanted { rules, seed }| Rules::parse_known(&rules, seed)) {
        Ok(rules) => {
            injector.set(rules);
            shown(&injector)
        }
        Err(why) => refused(StatusCode::BAD_REQUEST, &why),
    }
}

async fn clear(State(injector): Switch, peer: Asker) -> Response {
    match admitted(injector, peer) {
        Ok(injector) => {
            injector.set(Rules::default());
            shown(&injector)
        }
        Err(refused) => *refused,
    }
}

/// Returns the injector if there is one and the client is on this machine.
fn admitted(injector: Option<Arc<Injector>>, peer: Asker) -> Result<Arc<Injector>, Box<Response>> {
    if !peer.is_some_and(|Extension(Peer(address))| address.ip().to_canonical().is_loopback()) {
        let why = "faults can only be injected from the machine of the server";
        return Err(Box::new(refused(StatusCode::FORBIDDEN, why)));
    }
    let off =
        "fault injection is off: start the server with --inject RULE, or --inject '' for none yet";
    injector.ok_or_else(|| Box::new(refused(StatusCode::FORBIDDEN, off)))
}

fn shown(injector: &Injector) -> Response {
    let shown = serde_json::to_string(&Shown::from(&*injector.rules()));
    let mut response = shown.unwrap_or_default().into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn refused(status: StatusCode, why: &str) -> Response {
    (status, format!("{why}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_on_this_machine_may_inject() {
        let asked = |peer: Option<&str>| {
            let peer = peer.map(|peer| Extension(Peer(peer.parse().unwrap())));
            admitted(Some(Arc::new(Injector::new(Rules::default()))), peer).is_ok()
        };
        assert!(
            asked(Some("127.0.0.1:1"))
                && asked(Some("[::1]:1"))
                && asked(Some("[::ffff:127.0.0.1]:1"))
        );
        assert!(!asked(Some("10.0.0.1:1")) && !asked(Some("[::2]:1")) && !asked(None));
    }
}
