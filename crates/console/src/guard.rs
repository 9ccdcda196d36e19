//! Refuses requests of other sites, and writes that a page could send without being the
//! console. The server checks `Host` and `Origin` of all requests; here a write must also
//! show that it comes from this server's own pages, or from a program.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::answer::Failure;
use crate::routes::Mode;

/// The maximum size of a body.
pub const BODY_BYTES_MAX: usize = 4 << 20;

/// Checks requests of the API.
pub async fn check(State(mode): State<Mode>, request: Request<Body>, next: Next) -> Response {
    let method = request.method();
    if method == Method::GET || method == Method::HEAD {
        return next.run(request).await;
    }
    match admit(mode, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

fn admit(mode: Mode, headers: &HeaderMap) -> Result<(), Failure> {
    if mode != Mode::Write {
        return Err(Failure::denied(
            "this console only reads; start the server with --console write to change data here",
        ));
    }
    let text = |name| headers.get(name).map(HeaderValue::as_bytes).unwrap_or_default();
    let json = |kind: &[u8]| kind.split(|byte| *byte == b';').next() == Some(b"application/json");
    if !json(text(header::CONTENT_TYPE)) {
        return Err(Failure::invalid("a change needs Content-Type: application/json"));
    }
    let origin = text(header::ORIGIN);
    let own = origin.strip_prefix(b"http://").or(origin.strip_prefix(b"https://"));
    if !own.is_some_and(|own| own.eq_ignore_ascii_case(text(header::HOST))) {
        return Err(Failure::denied("a change needs the Origin of this server"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(mode: Mode, headers: &[(header::HeaderName, &str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
        admit(mode, &HeaderMap::from_iter(headers)).is_ok()
    }

    #[test]
    fn a_write_needs_the_own_origin_and_json() {
        let host = (header::HOST, "localhost:8080");
        let own = (header::ORIGIN, "http://localhost:8080");
        let json = (header::CONTENT_TYPE, "application/json; charset=utf-8");
        let all = [host.clone(), own.clone(), json.clone()];
        assert!(admitted(Mode::Write, &all));
        assert!(!admitted(Mode::Read, &all));
        assert!(!admitted(Mode::Write, &[host.clone(), json.clone()]), "no origin");
        assert!(!admitted(Mode::Write, &[host.clone(), own.clone()]), "no type");
        for (name, value) in [
            (header::ORIGIN, "http://evil.example"),
            (header::ORIGIN, "null"),
            (header::ORIGIN, "http://localhost:80800"),
            (header::CONTENT_TYPE, "text/plain"),
            (header::CONTENT_TYPE, "application/jsonp"),
        ] {
            let mut headers = all.to_vec();
            headers.retain(|(given, _)| *given != name);
            headers.push((name, value));
            assert!(!admitted(Mode::Write, &headers), "{value}");
        }
    }
}
