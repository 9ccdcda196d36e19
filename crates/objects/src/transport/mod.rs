//! The HTTP client under object_store: HTTP/1.1 on hyper with the process's own TLS,
//! so that no second HTTP stack is built.

mod body;
mod pool;
mod tls;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Method, Uri, header};
use object_store::ClientOptions;
use object_store::client::{
    ClientConfigKey, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest,
    HttpResponse, HttpResponseBody, HttpService,
};

use body::Body;
use pool::{Origin, Pool};

const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("stele/", env!("CARGO_PKG_VERSION")));

/// Connects object_store to the stores that it names.
#[derive(Clone)]
pub struct Transport {
    pool: Arc<Pool>,
    limits: Limits,
}

/// Limits on one HTTP request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From the start of the connection to the head of the response, and between any
    /// two pieces of its body.
    pub timeout: Duration,
    /// Completes multipart uploads only if there is no such object.
    pub conditional_complete: bool,
}

impl Transport {
    pub fn new(limits: Limits) -> Transport {
        Transport { pool: Arc::new(Pool::new()), limits }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Transport").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl HttpConnector for Transport {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allowed = options.get_config_value(&ClientConfigKey::AllowHttp);
        let plain_text = allowed.as_deref() == Some("true");
        Ok(HttpClient::new(Service { transport: self.clone(), plain_text }))
    }
}

/// Sends the requests of one client of object_store.
#[derive(Debug)]
struct Service {
    transport: Transport,
    /// Whether `http://` addresses are allowed.
    plain_text: bool,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let origin = self.origin(request.uri())?;
        self.prepare(&mut request)?;
        let timeout = self.transport.limits.timeout;
        let exchange = self.transport.pool.send(&origin, request);
        let (response, connection) =
            tokio::time::timeout(timeout, exchange).await.map_err(|_| timed_out(timeout))??;
        let (head, incoming) = response.into_parts();
        let body = Body::new(incoming, connection, timeout);
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
}

impl Service {
    fn origin(&self, uri: &Uri) -> Result<Origin, HttpError> {
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP && self.plain_text => false,
            Some(scheme) if *scheme == Scheme::HTTP => {
                return Err(refused(
                    "plain http is not allowed: use https, or set AWS_ALLOW_HTTP=true \
                     (GOOGLE_ALLOW_HTTP, AZURE_ALLOW_HTTP)",
                ));
            }
            _ => return Err(refused("the address must begin with https:// or http://")),
        };
        let host = uri.host().ok_or_else(|| refused("the address has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        Ok(Origin { secure, host, port })
    }

    /// Brings the request into the form that HTTP/1.1 sends to a server.
    fn prepare(&self, request: &mut HttpRequest) -> Result<(), HttpError> {
        let uri = request.uri().clone();
        let headers = request.headers_mut();
        if !headers.contains_key(header::HOST) {
            let authority = uri.authority().map_or("", |authority| authority.as_str());
            let host = authority.rsplit('@').next().unwrap_or_default();
            let host = HeaderValue::from_str(host)
                .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
            headers.insert(header::HOST, host);
        }
        headers.entry(header::USER_AGENT).or_insert(USER_AGENT);
        if self.transport.limits.conditional_complete && completes_upload(request) {
            let any = HeaderValue::from_static("*");
            request.headers_mut().insert(header::IF_NONE_MATCH, any);
        }
        let path = uri.path_and_query().cloned();
        *request.uri_mut() = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
        Ok(())
    }
}

/// Reports whether a request completes a multipart upload of S3. object_store has no
/// option for a condition; S3 does not require the header to be signed.
fn completes_upload(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() == Method::POST
        && query.split('&').any(|parameter| parameter.starts_with("uploadId="))
}

fn refused(why: &str) -> HttpError {
    HttpError::new_boxed(HttpErrorKind::Unknown, why.into())
}

fn timed_out(timeout: Duration) -> HttpError {
    let why = format!("no response within {} ms", timeout.as_millis());
    HttpError::new_boxed(HttpErrorKind::Timeout, why.into())
}

/// Classifies an error of a connection that had been opened: the request may have been
/// applied.
fn interrupted(error: hyper::Error) -> HttpError {
    let kind = if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_parse() {
        HttpErrorKind::Decode
    } else {
        HttpErrorKind::Interrupted
    };
    HttpError::new(kind, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(plain_text: bool) -> Service {
        let limits = Limits { timeout: Duration::from_secs(1), conditional_complete: true };
        Service { transport: Transport::new(limits), plain_text }
    }

    #[test]
    fn plain_http_is_refused_unless_allowed() {
        let uri = Uri::from_static("http://127.0.0.1:9000/bucket/key");
        let error = service(false).origin(&uri).unwrap_err();
        assert!(error.to_string().contains("AWS_ALLOW_HTTP"), "{error}");
        let origin = service(true).origin(&uri).unwrap();
        assert_eq!(origin, Origin { secure: false, host: "127.0.0.1".into(), port: 9000 });
        let secure = service(false).origin(&Uri::from_static("https://[::1]/b")).unwrap();
        assert_eq!(secure, Origin { secure: true, host: "::1".into(), port: 443 });
    }

    #[test]
    fn only_the_completion_of_an_upload_gets_a_condition() {
        let send = |method: Method, uri: &'static str| {
            let mut request = HttpRequest::new(object_store::client::HttpRequestBody::empty());
            *request.method_mut() = method;
            *request.uri_mut() = Uri::from_static(uri);
            service(false).prepare(&mut request).unwrap();
            assert_eq!(request.headers()[header::HOST], "h:1");
            assert!(request.uri().authority().is_none());
            request.headers().contains_key(header::IF_NONE_MATCH)
        };
        assert!(send(Method::POST, "https://h:1/b/k?uploadId=7"));
        assert!(!send(Method::POST, "https://h:1/b/k?uploads"));
        assert!(!send(Method::PUT, "https://h:1/b/k?partNumber=1&uploadId=7"));
        assert!(!send(Method::DELETE, "https://h:1/b/k?uploadId=7"));
    }
}
