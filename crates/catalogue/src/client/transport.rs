//! How a connection to the server is made.

use std::time::Duration;

use stele_grpc::Transport;
use tonic::Status;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

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
