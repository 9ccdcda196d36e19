//! The certificates and the key that a command uses for TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use stele_grpc::Tls;

use super::contexts;

use crate::private::read_secret;

#[derive(Args, Clone, Debug, Default)]
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

    /// Returns these files, or those of a context if none are given.
    pub fn or(&self, context: Option<&contexts::Context>) -> TlsFiles {
        match context {
            Some(context) if !self.is_given() => TlsFiles {
                tls_ca: context.tls_ca.clone(),
                tls_cert: context.tls_cert.clone(),
                tls_key: context.tls_key.clone(),
            },
            _ => self.clone(),
        }
    }

    /// Returns the settings of connections over HTTP/1.1.
    pub fn client_config(&self) -> anyhow::Result<ClientConfig> {
        let files = self.read()?;
        let mut roots = RootCertStore::empty();
        match &files.ca {
            Some(ca) => {
                for authority in CertificateDer::pem_slice_iter(ca) {
                    roots.add(authority.context("--tls-ca")?).context("--tls-ca")?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut config = match files.identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain: Result<Vec<_>, _> =
                    CertificateDer::pem_slice_iter(&certificate).collect();
                let key = PrivateKeyDer::from_pem_slice(key.expose()).context("--tls-key")?;
                config.with_client_auth_cert(chain.context("--tls-cert")?, key)?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
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
