//! The way to the server: a connection, or calls within the process.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::StdError;
use tonic::service::Routes;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tower_service::Service;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Records keep flowing while a reader works on what came.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Whom to trust and how to be known, in PEM; used for `https` endpoints.
#[derive(Clone, Default)]
pub struct Tls {
    pub ca: Option<Vec<u8>>,
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone)]
pub enum Transport {
    Channel(Channel),
    InProcess(Routes),
}

/// Connects to `host:port`, `http://host:port` or `https://host`.
pub async fn connect(endpoint: &str, tls: &Tls) -> Result<Transport, Status> {
    let address =
        if endpoint.contains("://") { endpoint.to_string() } else { format!("http://{endpoint}") };
    let unusable = |error: tonic::transport::Error| {
        Status::invalid_argument(format!("the endpoint {endpoint} cannot be used: {error}"))
    };
    let mut settings = Endpoint::from_shared(address.clone())
        .map_err(unusable)?
        .connect_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .tcp_nodelay(true);
    if address.starts_with("https://") {
        let mut config = ClientTlsConfig::new();
        config = match &tls.ca {
            Some(ca) => config.ca_certificate(Certificate::from_pem(ca)),
            None => config.with_native_roots(),
        };
        if let Some((certificate, key)) = &tls.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        settings = settings.tls_config(config).map_err(unusable)?;
    }
    let channel = settings.connect().await.map_err(|error| {
        let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        Status::unavailable(format!("cannot reach {endpoint}: {why}"))
    })?;
    Ok(Transport::Channel(channel))
}

type Responding = Pin<Box<dyn Future<Output = Result<http::Response<Body>, StdError>> + Send>>;

impl Service<http::Request<Body>> for Transport {
    type Response = http::Response<Body>;
    type Error = StdError;
    type Future = Responding;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        match self {
            Transport::Channel(channel) => channel.poll_ready(context).map_err(Into::into),
            Transport::InProcess(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: http::Request<Body>) -> Responding {
        match self {
            Transport::Channel(channel) => {
                let responding = channel.call(request);
                Box::pin(async move { responding.await.map_err(Into::into) })
            }
            Transport::InProcess(routes) => {
                let responding = routes.call(request);
                Box::pin(async move { responding.await.map_err(|never| match never {}) })
            }
        }
    }
}
