//! Connection endpoints: addresses and connection settings.

use std::time::Duration;

use tonic::transport::Endpoint;

use crate::error_chain::chain;
use crate::tls::Tls;

/// The timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of pings that detect dead connections; servers allow this rate.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Large enough that a stream keeps flowing while the reader processes what it
/// has.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

const USER_AGENT: &str = concat!("stele/", env!("CARGO_PKG_VERSION"));

/// Returns the address of an endpoint; without a scheme it is plaintext HTTP.
fn address(endpoint: &str) -> String {
    if endpoint.contains("://") { endpoint.into() } else { format!("http://{endpoint}") }
}

/// Parses `host:port`, `http://host:port` or `https://host`. The error describes
/// what is wrong with the address.
pub fn endpoint(address_or_host: &str, tls: &Tls) -> Result<Endpoint, String> {
    let address = address(address_or_host);
    let invalid =
        |why: &dyn std::fmt::Display| format!("invalid endpoint {address_or_host:?}: {why}");
    let endpoint = Endpoint::from_shared(address.clone())
        .and_then(|endpoint| endpoint.user_agent(USER_AGENT))
        .map_err(|error| invalid(&error))?;
    if !is_usable(endpoint.uri()) {
        return Err(invalid(&"expected host:port, http://host:port or https://host"));
    }
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .tcp_nodelay(true);
    if !address.starts_with("https://") {
        return Ok(endpoint);
    }
    endpoint.tls_config(tls.config()).map_err(|error| invalid(&chain(&error)))
}

/// Returns whether data sent to an endpoint stays secret in transit: over TLS, or
/// to a loopback address. A host name does not count: it may resolve to any
/// address.
pub fn keeps_secrets(address_or_host: &str) -> bool {
    let Ok(uri) = address(address_or_host).parse::<http::Uri>() else { return false };
    let host = uri.host().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let loopback = bare.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    uri.scheme_str() == Some("https") || loopback
}

/// Returns whether the URI has a host and, if it has a port, a numeric one.
fn is_usable(uri: &http::Uri) -> bool {
    let Some(authority) = uri.authority() else { return false };
    let after_host = authority.as_str().rsplit(']').next().unwrap_or_default();
    let port_is_fine = !after_host.contains(':') || authority.port_u16().is_some();
    !authority.host().is_empty() && port_is_fine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_plain_text_without_a_scheme() {
        let uri = |text| endpoint(text, &Tls::default()).unwrap().uri().to_string();
        assert_eq!(uri("localhost:8086"), "http://localhost:8086/");
        assert_eq!(uri("http://[::1]:1"), "http://[::1]:1/");
        assert_eq!(uri("https://bigtable.googleapis.com"), "https://bigtable.googleapis.com/");
    }

    #[test]
    fn secrets_are_kept_by_tls_and_by_loopback_addresses() {
        for kept in ["https://h", "127.0.0.1:1", "127.9.9.9", "http://[::1]:1", "[::1]:8086"] {
            assert!(keeps_secrets(kept), "{kept}");
        }
        let open = [
            "h:1",
            "localhost:1",
            "http://10.0.0.1:1",
            "127.0.0.1.example.com:1",
            "",
            "[::2]:1",
            "http://127.0.0.1@example.com:1",
        ];
        for open in open {
            assert!(!keeps_secrets(open), "{open}");
        }
    }

    #[test]
    fn an_invalid_endpoint_is_refused_by_name() {
        for text in ["", "a b", "http://", "host:port", "host:", "host:99999"] {
            let error = endpoint(text, &Tls::default()).unwrap_err();
            assert!(error.contains("invalid endpoint"), "{text}: {error}");
        }
    }
}
