//! TLS settings of a client: trusted certificates and the client's identity.

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::Secret;

/// TLS settings for `https` endpoints.
#[derive(Clone, Default)]
pub struct Tls {
    /// Certificates to trust, in PEM, instead of the system's.
    pub ca: Option<Vec<u8>>,
    /// The client's certificate and key, in PEM.
    pub identity: Option<(Vec<u8>, Secret<Vec<u8>>)>,
}

impl Tls {
    pub fn config(&self) -> ClientTlsConfig {
        let config = match &self.ca {
            Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        match &self.identity {
            Some((certificate, key)) => {
                config.identity(Identity::from_pem(certificate, key.expose()))
            }
            None => config,
        }
    }
}

impl std::fmt::Debug for Tls {
    /// Omits keys.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Tls")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_shown() {
        let identity = Some((b"certificate".to_vec(), Secret::new(b"secret".to_vec())));
        let text = format!("{:?}", Tls { ca: None, identity });
        assert_eq!(text, "Tls { ca: false, identity: true }");
    }
}
