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
use super::super::operator::is_local;
use super::{Injector, Rules};

pub const PATH: &str = "/inject";

/// The body of a request that replaces the rules.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RuleUpdate {
    pub rules: Vec<String>,
    #[serde(default)]
    pub seed: u64,
}

/// The body of a response: the rules in force.
#[derive(Debug, Deserialize, Serialize)]
pub struct RuleList {
    pub seed: u64,
    pub rules: Vec<RuleStatus>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct RuleStatus {
    pub rule: String,
    /// Calls that matched the rule.
    pub matched: u64,
    /// Calls that were answered with an error.
    pub failed: u64,
}

impl From<&Rules> for RuleList {
    fn from(rules: &Rules) -> RuleList {
        let statuses = rules.rules.iter().map(|rule| RuleStatus {
            rule: rule.to_string(),
            matched: rule.matched.load(Ordering::Relaxed),
            failed: rule.failed.load(Ordering::Relaxed),
        });
        RuleList { seed: rules.seed, rules: statuses.collect() }
    }
}

/// Returns the routes of the injector; `None` means that injection is disabled.
pub fn router(injector: Option<Arc<Injector>>) -> Router {
    let calls = get(list).put(set).delete(clear);
    Router::new().route(PATH, calls).with_state(injector)
}

type InjectorState = State<Option<Arc<Injector>>>;
type Client = Option<Extension<Peer>>;

async fn list(State(injector): InjectorState, peer: Client) -> Response {
    match authorize(injector, peer) {
        Ok(injector) => respond(&injector),
        Err(refused) => *refused,
    }
}

async fn set(State(injector): InjectorState, peer: Client, body: Bytes) -> Response {
    let injector = match authorize(injector, peer) {
        Ok(injector) => injector,
        Err(refused) => return *refused,
    };
    let update = serde_json::from_slice(&body).map_err(|error| error.to_string());
    match update.and_then(|RuleUpdate { rules, seed }| Rules::parse_known(&rules, seed)) {
        Ok(rules) => {
            injector.set(rules);
            respond(&injector)
        }
        Err(why) => refused(StatusCode::BAD_REQUEST, &why),
    }
}

async fn clear(State(injector): InjectorState, peer: Client) -> Response {
    match authorize(injector, peer) {
        Ok(injector) => {
            injector.set(Rules::default());
            respond(&injector)
        }
        Err(refused) => *refused,
    }
}

/// Returns the injector if there is one and the client is on this machine.
fn authorize(
    injector: Option<Arc<Injector>>,
    peer: Client,
) -> Result<Arc<Injector>, Box<Response>> {
    if !peer.is_some_and(|Extension(Peer(address))| is_local(address)) {
        let why = "faults can be injected only by clients on the machine of the server";
        return Err(Box::new(refused(StatusCode::FORBIDDEN, why)));
    }
    let off =
        "fault injection is off: start the server with --inject RULE, or --inject '' without rules";
    injector.ok_or_else(|| Box::new(refused(StatusCode::FORBIDDEN, off)))
}

fn respond(injector: &Injector) -> Response {
    let body = serde_json::to_string(&RuleList::from(&*injector.rules()));
    let mut response = body.unwrap_or_default().into_response();
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
        let allowed = |peer: Option<&str>| {
            let peer = peer.map(|peer| Extension(Peer(peer.parse().unwrap())));
            authorize(Some(Arc::new(Injector::new(Rules::default()))), peer).is_ok()
        };
        assert!(
            allowed(Some("127.0.0.1:1"))
                && allowed(Some("[::1]:1"))
                && allowed(Some("[::ffff:127.0.0.1]:1"))
        );
        assert!(!allowed(Some("10.0.0.1:1")) && !allowed(Some("[::2]:1")) && !allowed(None));
    }
}
