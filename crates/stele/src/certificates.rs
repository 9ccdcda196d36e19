//! The certificates that a command trusts and shows when it speaks TLS.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// The bytes of a file of certificates or keys.
type Pem = Vec<u8>;

#[derive(Args, Clone, Debug)]
pub struct Certificates {
    /// Certificates to trust, in PEM, instead of the system's.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The certificate to show, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl Certificates {
    /// Whether any was named: then TLS is meant.
    pub fn are_given(&self) -> bool {
        self.tls_ca.is_some() || self.tls_cert.is_some()
    }

    /// What the files hold: whom to trust, and the certificate with its key.
    pub fn read(&self) -> anyhow::Result<(Option<Pem>, Option<(Pem, Pem)>)> {
        let ca = self.tls_ca.as_deref().map(read).transpose()?;
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        Ok((ca, identity))
    }

    pub fn config(&self) -> anyhow::Result<ClientTlsConfig> {
        let (ca, identity) = self.read()?;
        let config = match ca {
            Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        Ok(match identity {
            Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
            None => config,
        })
    }
}

fn read(path: &Path) -> anyhow::Result<Pem> {
    std::fs::read(path).with_context(|| path.display().to_string())
}
