//! Connects to the server.

use stele_grpc::{Tls, Transport, chain, endpoint};
use tonic::Status;

/// Connects to `host:port`, `http://host:port` or `https://host`.
pub async fn connect(address: &str, tls: &Tls) -> Result<Transport, Status> {
    let endpoint = endpoint(address, tls).map_err(Status::invalid_argument)?;
    let channel = endpoint.connect().await.map_err(|error| {
        let why = std::error::Error::source(&error).map(chain).unwrap_or_default();
        Status::unavailable(format!("cannot reach {address}: {why}"))
    })?;
    Ok(Transport::Channel(channel))
}
