//! Pages over plain HTTP: health, version, metrics, and the JSON gateway.

use bytes::Bytes;
use http::{HeaderValue, Method as Verb, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::Full;

use super::service::PageBody;
use super::{CLUSTER_VERSION, Etcd, VERSION, gateway, metrics};
use crate::command::{Alarm, KeyRange, RangeQuery};
use crate::state::Floor;

pub async fn page<B>(etcd: &Etcd, request: Request<B>) -> Response<PageBody>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let query = Query::parse(head.uri.query().unwrap_or(""));
    if head.method == Verb::OPTIONS {
        text(StatusCode::NO_CONTENT, "")
    } else if let Some(path) = gateway_path(path) {
        gateway::call(etcd, &head.method, path, &head.headers, body).await
    } else if !PAGES.contains(&path) {
        text(StatusCode::NOT_FOUND, "404 page not found\n")
    } else if head.method != Verb::GET {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
        refused
    } else {
        match path {
            "/health" => health(etcd, &query).await,
            "/livez" => checks(etcd, "livez", LIVEZ_CHECKS, &query).await,
            "/readyz" => checks(etcd, "readyz", READYZ_CHECKS, &query).await,
            "/version" => version(),
            _ => response(StatusCode::OK, stele_metrics::CONTENT_TYPE, metrics::text(etcd).into()),
        }
    }
}

const PAGES: [&str; 5] = ["/health", "/livez", "/readyz", "/version", "/metrics"];
const LIVEZ_CHECKS: &[&str] = &["serializable_read"];
const READYZ_CHECKS: &[&str] =
    &["data_corruption", "serializable_read", "linearizable_read", "non_learner"];

/// Returns the path within the gateway, if it is one of the gateway's.
pub fn gateway_path(path: &str) -> Option<&str> {
    path.strip_prefix("/v3/").or_else(|| path.strip_prefix("/v3beta/"))
}

/// The query parameters of a page.
struct Query(Vec<(String, String)>);

impl Query {
    fn parse(query: &str) -> Query {
        Query(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// Returns whether a parameter is given, with or without a value.
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    /// Returns whether a parameter is given with this value.
    fn has_value(&self, name: &str, value: &str) -> bool {
        self.0.iter().any(|(key, given)| key == name && given == value)
    }
}

async fn health(etcd: &Etcd, query: &Query) -> Response<PageBody> {
    let alarm = etcd.node().alarms().into_iter().map(|(_, alarm)| alarm_name(alarm));
    let alarm = alarm.into_iter().find(|alarm| !query.has_value("exclude", alarm));
    let reason = if let Some(alarm) = alarm {
        format!("ALARM {alarm}")
    } else if etcd.node().status().leader_id == 0 {
        "RAFT NO LEADER".to_owned()
    } else {
        match read(etcd, query.has_value("serializable", "true")).await {
            Ok(()) => String::new(),
            Err(error) => format!("RANGE ERROR:{error}"),
        }
    };
    let healthy = reason.is_empty();
    let counters = etcd.counters();
    let count = if healthy { &counters.health_successes } else { &counters.health_failures };
    count.add(1);
    let status = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = serde_json::json!({ "health": healthy.to_string(), "reason": reason });
    json(status, body.to_string())
}

fn alarm_name(alarm: Alarm) -> &'static str {
    match alarm {
        Alarm::NoSpace => "NOSPACE",
        Alarm::Corrupt => "CORRUPT",
    }
}

/// Reads one key, for the checks.
async fn read(etcd: &Etcd, serializable: bool) -> crate::Result<()> {
    if !serializable {
        etcd.node().barrier().await?;
    }
    let query = RangeQuery::new(KeyRange::single("\0"));
    etcd.node().reader(Floor::Compacted).range(&query, &mut |_| {}).map(drop)
}

async fn checks(etcd: &Etcd, page: &str, names: &[&str], query: &Query) -> Response<PageBody> {
    let mut lines = String::new();
    let mut passed = true;
    for name in names {
        if query.has_value("exclude", name) {
            lines += &format!("[+]{name} excluded: ok\n");
            continue;
        }
        match check(etcd, name).await {
            Ok(()) => lines += &format!("[+]{name} ok\n"),
            Err(reason) => {
                passed = false;
                lines += &format!("[-]{name} failed: {reason}\n");
            }
        }
    }
    if !passed {
        return text(StatusCode::SERVICE_UNAVAILABLE, format!("{lines}{page} check failed\n"));
    }
    match query.has("verbose") {
        true => text(StatusCode::OK, format!("{lines}{page} check passed\n")),
        false => text(StatusCode::OK, "ok\n"),
    }
}

async fn check(etcd: &Etcd, name: &str) -> Result<(), String> {
    let message = |error: crate::Error| error.to_string();
    match name {
        "data_corruption" => {
            let corrupt = etcd.node().alarms().iter().any(|(_, alarm)| *alarm == Alarm::Corrupt);
            if corrupt { Err("alarm activated: CORRUPT".into()) } else { Ok(()) }
        }
        "serializable_read" => read(etcd, true).await.map_err(message),
        "linearizable_read" => read(etcd, false).await.map_err(message),
        // There are no learners yet, so this check always passes.
        _ => Ok(()),
    }
}

fn version() -> Response<PageBody> {
    let version = serde_json::json!({
        "etcdserver": VERSION,
        "etcdcluster": CLUSTER_VERSION,
        "storage": CLUSTER_VERSION,
    });
    json(StatusCode::OK, version.to_string())
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<PageBody> {
    response(status, "text/plain; charset=utf-8", body.into())
}

/// Returns a page in JSON.
pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<PageBody> {
    response(status, "application/json", body.into())
}

fn response(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<PageBody> {
    let mut response = Response::new(PageBody::new(Full::new(body)));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_with_and_without_value() {
        let query = Query::parse("verbose&exclude=NOSPACE&exclude=x&exclude=%7A");
        assert!(query.has("verbose") && query.has_value("verbose", ""));
        assert!(query.has_value("exclude", "x") && query.has_value("exclude", "NOSPACE"));
        assert!(query.has_value("exclude", "z"), "values are percent-decoded");
        assert!(!query.has_value("exclude", "y") && !query.has("other"));
    }
}
