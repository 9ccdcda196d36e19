//! Responses of the API: JSON, with an error as `{"error": text, "kind": word}`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tonic::Code;

/// A request that was not served.
#[derive(Debug)]
pub struct Failure {
    status: StatusCode,
    kind: &'static str,
    text: String,
}

pub type Answer = Result<Json, Failure>;

/// A JSON response.
#[derive(Debug)]
pub struct Json(pub Value);

impl Failure {
    pub fn new(status: StatusCode, kind: &'static str, text: impl Into<String>) -> Failure {
        Failure { status, kind, text: text.into() }
    }

    pub fn invalid(text: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "invalid", text)
    }

    pub fn not_found(text: impl Into<String>) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "not_found", text)
    }

    pub fn denied(text: impl Into<String>) -> Failure {
        Failure::new(StatusCode::FORBIDDEN, "denied", text)
    }

    /// The service is off in this server.
    pub fn off(service: &str) -> Failure {
        let text = format!("{service} is off in the settings of this server");
        Failure::new(StatusCode::NOT_FOUND, "off", text)
    }

    pub fn conflict(text: impl Into<String>) -> Failure {
        Failure::new(StatusCode::CONFLICT, "conflict", text)
    }

    fn of_code(code: Code, text: String) -> Failure {
        let (status, kind) = match code {
            Code::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            Code::InvalidArgument | Code::OutOfRange => (StatusCode::BAD_REQUEST, "invalid"),
            Code::PermissionDenied | Code::Unauthenticated => (StatusCode::FORBIDDEN, "denied"),
            Code::Aborted | Code::AlreadyExists | Code::FailedPrecondition => {
                (StatusCode::CONFLICT, "conflict")
            }
            Code::Unimplemented => (StatusCode::NOT_FOUND, "off"),
            Code::DeadlineExceeded => (StatusCode::GATEWAY_TIMEOUT, "timeout"),
            Code::ResourceExhausted => (StatusCode::TOO_MANY_REQUESTS, "busy"),
            Code::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        Failure::new(status, kind, text)
    }
}

impl From<tonic::Status> for Failure {
    fn from(status: tonic::Status) -> Failure {
        Failure::of_code(status.code(), status.message().to_string())
    }
}

impl From<stele_bigtable_client::Error> for Failure {
    fn from(error: stele_bigtable_client::Error) -> Failure {
        Failure::of_code(error.code(), error.message())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({"error": self.text, "kind": self.kind});
        respond(self.status, &body)
    }
}

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        respond(StatusCode::OK, &self.0)
    }
}

fn respond(status: StatusCode, body: &Value) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (status, headers, body.to_string()).into_response()
}

/// Stores printable UTF-8 under `name`, and other bytes under `name_base64`: the form of
/// `stele ... --json`.
pub fn put(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    let printable = |text: &&str| !text.chars().any(char::is_control);
    match std::str::from_utf8(bytes).ok().filter(printable) {
        Some(text) => object.insert(name.into(), json!(text)),
        None => object.insert(format!("{name}_base64"), json!(STANDARD.encode(bytes))),
    };
}

/// Returns the bytes of a field in either form; `None` if it is missing.
pub fn take(object: &Value, name: &str) -> Result<Option<Vec<u8>>, Failure> {
    if let Some(text) = object.get(name).filter(|value| !value.is_null()) {
        let text = text.as_str();
        let text = text.ok_or_else(|| Failure::invalid(format!("{name} is not a string")))?;
        return Ok(Some(text.as_bytes().to_vec()));
    }
    let Some(encoded) = object.get(format!("{name}_base64")) else { return Ok(None) };
    let decoded = encoded.as_str().and_then(|encoded| STANDARD.decode(encoded).ok());
    match decoded {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(Failure::invalid(format!("{name}_base64 is not base64"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_both_forms() {
        for bytes in [&b"Ada"[..], "J\u{f6}rg".as_bytes(), b"\0\xff", b"a\nb", b""] {
            let mut object = Map::new();
            put(&mut object, "value", bytes);
            assert_eq!(take(&Value::Object(object), "value").unwrap().unwrap(), bytes);
        }
        assert_eq!(take(&json!({}), "value").unwrap(), None);
        assert!(take(&json!({"value": 7}), "value").is_err());
        assert!(take(&json!({"value_base64": "*"}), "value").is_err());
    }
}
