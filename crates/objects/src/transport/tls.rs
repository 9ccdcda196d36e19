//! TLS of connections to stores.

use std::io;
use std::sync::Arc;

use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// Returns a configuration that trusts the system's certificates, or those of the file
/// that SSL_CERT_FILE names.
pub fn config() -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let loaded = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(loaded.certs);
    if added == 0 {
        let why = match loaded.errors.first() {
            Some(error) => error.to_string(),
            None => "the system has none".into(),
        };
        return Err(io::Error::other(format!(
            "no trusted certificates: {why}; install the system's certificates or set SSL_CERT_FILE"
        )));
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
