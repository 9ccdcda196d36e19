//! Decides which browser requests are served. A web page of another site must not use
//! this server through a visitor's browser: neither by sending requests to it (checked by
//! `Origin` and `Sec-Fetch-Site`), nor through a host name of its own that resolves to
//! this server (checked by `Host`). gRPC needs no check: browsers send its content type
//! to another site only after a preflight request.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::bail;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Domains that cannot be registered in the public DNS.
const LOCAL_DOMAINS: [&str; 4] = [".localhost", ".local", ".internal", ".svc"];
/// What pages of allowed origins may send.
const METHODS: &str = "GET, POST, OPTIONS";
const HEADERS: &str = "accept, authorization, content-type";

/// The names of this server and the origins that may use it.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    /// Lower case; `*.domain` matches one label before the domain.
    hosts: Vec<String>,
    /// As browsers write them: `https://host[:port]`.
    origins: Vec<String>,
}

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    Host(String),
    Origin(String),
}

impl Sites {
    /// Takes the hosts of `--allowed-host` and of the certificate, and the origins of
    /// `--cors-origin`.
    pub fn new(
        hosts: impl IntoIterator<Item = String>,
        origins: Vec<String>,
    ) -> anyhow::Result<Sites> {
        if let Some(wrong) = origins.iter().find(|origin| !is_origin(origin)) {
            bail!("--cors-origin {wrong:?}: use https://host or https://host:port");
        }
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect();
        Ok(Sites { hosts, origins })
    }

    /// Wraps the routes with the check.
    pub fn guard(self: &Arc<Sites>, routes: Router) -> Router {
        // All routes are one fallback, so that nothing is routed before the check.
        Router::new()
            .fallback_service(routes)
            .layer(middleware::from_fn_with_state(self.clone(), check))
    }

    /// Checks a request. Returns the allowed origin to grant the response to, if it has
    /// one.
    fn admit(&self, request: &Request) -> Result<Option<HeaderValue>, Refusal> {
        self.check_host(request.uri(), request.headers())?;
        self.check_origin(request.method(), request.headers())
    }

    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let named = headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes);
        let named = named.chain(uri.authority().map(|authority| authority.as_str().as_bytes()));
        for authority in named {
            let text = std::str::from_utf8(authority).unwrap_or_default();
            if !host(text).is_some_and(|host| self.is_own(host)) {
                return Err(Refusal::Host(String::from_utf8_lossy(authority).into_owned()));
            }
        }
        Ok(())
    }

    fn is_own(&self, host: &str) -> bool {
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if address.unwrap_or(host).parse::<IpAddr>().is_ok() {
            return true;
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let local = LOCAL_DOMAINS.iter().any(|domain| host.ends_with(domain));
        !host.contains('.') || local || self.hosts.iter().any(|known| matches(known, &host))
    }

    fn check_origin(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Option<HeaderValue>, Refusal> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let origin = origins.next();
        let rejected = || {
            let value = origin.or(headers.get(FETCH_SITE)).map(HeaderValue::as_bytes);
            String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
        };
        if origins.next().is_some() {
            return Err(Refusal::Origin(rejected()));
        }
        if let Some(origin) = origin {
            if self.origins.iter().any(|listed| listed.as_bytes() == origin.as_bytes()) {
                return Ok(Some(origin.clone()));
            }
            if !is_same(origin, headers.get(header::HOST)) {
                return Err(Refusal::Origin(rejected()));
            }
        }
        let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
        if matches!(site, None | Some(b"same-origin" | b"none")) || is_navigation(method, headers) {
            return Ok(None);
        }
        Err(Refusal::Origin(rejected()))
    }
}

/// Returns whether the request follows a link or an entered address: it shows a page and
/// changes nothing.
fn is_navigation(method: &Method, headers: &HeaderMap) -> bool {
    let is = |name: HeaderName, value: &str| headers.get(name).is_some_and(|given| given == value);
    method == Method::GET && is(FETCH_MODE, "navigate") && is(FETCH_DEST, "document")
}

/// Returns whether the page's origin is the host that it requests.
fn is_same(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let (Ok(origin), Some(Ok(host))) = (origin.to_str(), host.map(HeaderValue::to_str)) else {
        return false;
    };
    let authority = origin.strip_prefix("https://").or(origin.strip_prefix("http://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

fn is_origin(text: &str) -> bool {
    let authority = text.strip_prefix("https://").or(text.strip_prefix("http://"));
    authority.is_some_and(|authority| host(authority).is_some() && !authority.contains('*'))
}

/// Returns the host of `host[:port]`, if it is a valid name or address.
fn host(authority: &str) -> Option<&str> {
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(end);
    let port_is_valid = match port.strip_prefix(':') {
        Some(port) => !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()),
        None => port.is_empty(),
    };
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    (port_is_valid && !host.is_empty() && host.bytes().all(is_valid)).then_some(host)
}

/// Returns whether a listed name matches the host.
fn matches(known: &str, host: &str) -> bool {
    match known.strip_prefix("*.") {
        Some(domain) => {
            host.split_once('.').is_some_and(|(first, rest)| !first.is_empty() && rest == domain)
        }
        None => known == host,
    }
}

async fn check(State(sites): State<Arc<Sites>>, request: Request, next: Next) -> Response {
    let origin = match sites.admit(&request) {
        Ok(origin) => origin,
        Err(refusal) => return refusal.into_response(),
    };
    let mut response = match request.method() {
        // Preflight responses do not depend on the route, so none is called.
        &Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    if !sites.origins.is_empty() {
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS));
    }
    response
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let escaped = |text: String| text.escape_debug().take(200).collect::<String>();
        let (status, text) = match self {
            Refusal::Host(host) => (
                StatusCode::MISDIRECTED_REQUEST,
                format!("host {} is not allowed: see --allowed-host\n", escaped(host)),
            ),
            Refusal::Origin(origin) => (
                StatusCode::FORBIDDEN,
                format!("origin {} is not allowed: see --cors-origin\n", escaped(origin)),
            ),
        };
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = status;
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(hosts: &[&str], origins: &[&str]) -> Sites {
        let origins = origins.iter().map(|origin| origin.to_string()).collect();
        Sites::new(hosts.iter().map(|host| host.to_string()), origins).unwrap()
    }

    fn admit(
        sites: &Sites,
        method: &str,
        headers: &[(&str, &str)],
    ) -> Result<Option<HeaderValue>, Refusal> {
        let mut request = Request::builder().method(method).uri("/v3/kv/put");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        sites.admit(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn a_host_must_be_a_name_of_this_server() {
        let sites = sites(&["db.example.com", "*.Wild.example.com"], &[]);
        for own in [
            "127.0.0.1",
            "127.0.0.1:2379",
            "10.1.2.3:80",
            "[::1]:8080",
            "[::1]",
            "localhost",
            "LOCALHOST:80",
            "localhost.",
            "stele",
            "a.localhost:1",
            "x.local",
            "metastore.default.svc",
            "db.svc.cluster.local",
            "db.internal",
            "db.example.com:443",
            "DB.example.com",
            "a.wild.example.com",
        ] {
            assert_eq!(admit(&sites, "POST", &[("host", own)]), Ok(None), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.com:2379",
            "127.0.0.1.evil.com",
            "localhost@evil.com",
            "evil.com.",
            "a.b.wild.example.com",
            "wild.example.com",
            ".wild.example.com",
            "xlocalhost.evil.com",
            "",
            "a:b",
            "localhost:80:80",
            "[::1",
            "evil.com/localhost",
            "127.0.0.1 evil.com",
        ] {
            let refused = admit(&sites, "GET", &[("host", foreign)]);
            assert!(matches!(refused, Err(Refusal::Host(_))), "{foreign}: {refused:?}");
        }
        let twice = admit(&sites, "GET", &[("host", "localhost"), ("host", "evil.com")]);
        assert!(matches!(twice, Err(Refusal::Host(_))));
        // Health probes over HTTP/1.0 send no Host header.
        assert_eq!(admit(&sites, "GET", &[]), Ok(None));
        let absolute = Request::builder().uri("http://evil.com/").header("host", "localhost");
        assert!(sites.admit(&absolute.body(Body::empty()).unwrap()).is_err());
    }

    #[test]
    fn pages_of_other_sites_may_only_be_left_by_a_link() {
        let sites = sites(&[], &["https://listed.example"]);
        let host = ("host", "localhost:2379");
        let passes = |method: &str, headers: &[(&str, &str)]| {
            admit(&sites, method, &[&[host], headers].concat()).is_ok()
        };
        // Programs send none of these headers.
        assert!(passes("POST", &[]) && passes("GET", &[]));
        assert!(passes(
            "POST",
            &[("origin", "http://localhost:2379"), ("sec-fetch-site", "same-origin")]
        ));
        assert!(passes("POST", &[("origin", "https://LOCALHOST:2379")]));
        assert!(passes("GET", &[("sec-fetch-site", "none")]));
        for foreign in [
            "https://evil.com",
            "null",
            "http://localhost",
            "http://localhost:23790",
            "",
            "localhost:2379",
        ] {
            for method in ["GET", "POST", "OPTIONS"] {
                assert!(!passes(method, &[("origin", foreign)]), "{method} {foreign}");
            }
        }
        for site in ["cross-site", "same-site", "what"] {
            assert!(!passes("POST", &[("sec-fetch-site", site)]), "{site}");
            let image = [
                ("sec-fetch-site", site),
                ("sec-fetch-mode", "no-cors"),
                ("sec-fetch-dest", "image"),
            ];
            assert!(!passes("GET", &image));
            let link = [
                ("sec-fetch-site", site),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "document"),
            ];
            assert!(passes("GET", &link) && !passes("POST", &link));
            let frame = [
                ("sec-fetch-site", site),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "iframe"),
            ];
            assert!(!passes("GET", &frame));
        }
        let listed = [host, ("origin", "https://listed.example"), ("sec-fetch-site", "cross-site")];
        assert_eq!(
            admit(&sites, "POST", &listed),
            Ok(Some("https://listed.example".parse().unwrap()))
        );
        let two = [("origin", "https://listed.example"), ("origin", "https://evil.com")];
        assert!(!passes("POST", &two));
    }

    #[test]
    fn an_origin_that_no_browser_sends_is_refused_as_a_setting() {
        for wrong in
            ["*", "evil.com", "https://", "https://a/b", "https://*.a", "ftp://a", "https://a b"]
        {
            assert!(Sites::new([], vec![wrong.to_string()]).is_err(), "{wrong}");
        }
    }
}
