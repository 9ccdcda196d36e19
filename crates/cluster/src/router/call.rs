//! A call that is passed on to the server that owns its rows.

use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::Full;
use stele_grpc::InProcess;
use tokio::time::Instant;
use tonic::body::Body;

use crate::relay::{IN_PROCESS_HEADER, SERVICE};
use crate::secret::{ClusterSecret, SECRET_HEADER};

/// The service that clients call.
pub const DATA_SERVICE: &str = "google.bigtable.v2.Bigtable";

/// The headers of a client that its owner sees.
const PASSED_ON: [&str; 1] = ["bigtable-features"];
const TIMEOUT: &str = "grpc-timeout";

/// A call without its message.
pub struct Call {
    pub method: String,
    headers: HeaderMap,
    extensions: Extensions,
    /// When the client gives up.
    pub deadline: Option<Instant>,
}

impl Call {
    pub fn new(method: String, headers: HeaderMap, extensions: Extensions) -> Call {
        let timeout = stele_grpc::timeout(&headers);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Call { method, headers, extensions, deadline }
    }

    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the request to the services of this process.
    pub fn to_here(&self, frame: Bytes) -> Request<Body> {
        let mut request = self.request(DATA_SERVICE, frame);
        *request.extensions_mut() = self.extensions.clone();
        request
    }

    /// Returns the request to another server.
    pub fn to_peer(&self, frame: Bytes, secret: &ClusterSecret) -> Request<Body> {
        let mut request = self.request(SERVICE, frame);
        let headers = request.headers_mut();
        headers.insert(SECRET_HEADER, secret.header());
        if InProcess::is_set(&self.extensions) {
            headers.insert(IN_PROCESS_HEADER, HeaderValue::from_static("1"));
        }
        request
    }

    fn request(&self, service: &str, frame: Bytes) -> Request<Body> {
        let mut request = Request::new(Body::new(Full::new(frame)));
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        let path = format!("/{service}/{}", self.method);
        *request.uri_mut() = path.parse().expect("methods that are passed on have plain names");
        let headers = request.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(http::header::TE, HeaderValue::from_static("trailers"));
        for name in PASSED_ON {
            for value in self.headers.get_all(name) {
                headers.append(HeaderName::from_static(name), value.clone());
            }
        }
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            headers.insert(TIMEOUT, timeout_value(left));
        }
        request
    }
}

/// Returns a timeout as a header: at most eight digits and a unit.
fn timeout_value(left: Duration) -> HeaderValue {
    const DIGITS: u128 = 99_999_999;
    let text = match left.as_micros() {
        micros if micros <= DIGITS => format!("{micros}u"),
        _ if left.as_millis() <= DIGITS => format!("{}m", left.as_millis()),
        _ => format!("{}S", u128::from(left.as_secs()).min(DIGITS)),
    };
    HeaderValue::try_from(text).expect("digits and a letter are a value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_passed_on_in_a_unit_that_fits() {
        let text = |left| timeout_value(left).to_str().unwrap().to_string();
        assert_eq!(text(Duration::ZERO), "0u");
        assert_eq!(text(Duration::from_millis(1500)), "1500000u");
        assert_eq!(text(Duration::from_secs(600)), "600000m");
        assert_eq!(text(Duration::from_secs(1 << 40)), "99999999S");
    }

    #[tokio::test]
    async fn only_some_headers_reach_another_server() {
        let mut headers = HeaderMap::new();
        headers.insert("bigtable-features", "x".parse().unwrap());
        headers.insert("authorization", "Bearer t".parse().unwrap());
        headers.insert(SECRET_HEADER, "guessed".parse().unwrap());
        headers.insert("grpc-timeout", "5S".parse().unwrap());
        let call = Call::new("MutateRow".into(), headers, Extensions::new());
        let secret = ClusterSecret::parse("0123456789abcdef").unwrap();
        let request = call.to_peer(Bytes::new(), &secret);
        assert_eq!(request.uri().path(), "/stele.tables.v1.Tablets/MutateRow");
        assert_eq!(request.headers()[SECRET_HEADER], "0123456789abcdef");
        assert_eq!(request.headers()["bigtable-features"], "x");
        assert!(stele_grpc::timeout(request.headers()).unwrap() <= Duration::from_secs(5));
        assert!(!request.headers().contains_key("authorization"));
        assert!(!request.headers().contains_key(IN_PROCESS_HEADER));
        let here = call.to_here(Bytes::new());
        assert!(!here.headers().contains_key(SECRET_HEADER));
    }
}
