//! The certificates and the key that a command uses for TLS.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use stele_grpc::Tls;

use crate::private::read_secret;

#[derive(Args, Clone, Debug)]
pub struct TlsFiles {
    /// Trust these certificates (PEM) instead of the system's.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Client certificate (PEM) to present.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key (PEM) of the client certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl TlsFiles {
    pub fn is_given(&self) -> bool {
        self.tls_ca.is_some() || self.tls_cert.is_some()
    }

    pub fn read(&self) -> anyhow::Result<Tls> {
        let ca = self.tls_ca.as_deref().map(read).transpose()?;
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read_secret(key)?)),
            _ => None,
        };
        Ok(Tls { ca, identity })
    }
}

/// Reads a file named on the command line.
pub fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}
