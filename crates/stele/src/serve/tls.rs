//! TLS for every port: a certificate, its key, and optionally the authorities that must
//! have signed clients' certificates.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use webpki::EndEntityCert;

use super::settings::Tls;
use crate::private;

/// Installs the process-wide cryptography provider. Must run before any use of TLS.
pub fn install_provider() {
    // Fails only if a provider is already installed, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Returns an acceptor of connections that speak one of `protocols`.
pub fn acceptor(tls: &Tls, protocols: &[&[u8]]) -> anyhow::Result<TlsAcceptor> {
    let chain = certificates(&tls.cert, "--tls-cert")?;
    let key = private::read_secret(&tls.key).map_err(|error| anyhow!("--tls-key {error:#}"))?;
    let key = PrivateKeyDer::from_pem_slice(key.expose())
        .map_err(|error| anyhow!("--tls-key {}: {error}", tls.key.display()))?;
    let config = match &tls.client_ca {
        Some(path) => ServerConfig::builder()
            .with_client_cert_verifier(client_verifier(path, "--tls-client-ca")?),
        None => ServerConfig::builder().with_no_client_auth(),
    };
    let mut config = config.with_single_cert(chain, key).with_context(|| {
        format!("--tls-cert {} with --tls-key {}", tls.cert.display(), tls.key.display())
    })?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Returns both sides of connections on which each side shows a certificate that one of
/// the authorities has signed.
pub fn mutual(cert: &Path, key: &Path, ca: &Path) -> anyhow::Result<(TlsConnector, TlsAcceptor)> {
    let (cert_flag, key_flag) = ("--metastore-peer-cert", "--metastore-peer-key");
    let ca_flag = "--metastore-peer-ca";
    let chain = certificates(cert, cert_flag)?;
    let secret = private::read_secret(key).map_err(|error| anyhow!("{key_flag} {error:#}"))?;
    let secret = PrivateKeyDer::from_pem_slice(secret.expose())
        .map_err(|error| anyhow!("{key_flag} {}: {error}", key.display()))?;
    let pair = || format!("{cert_flag} {} with {key_flag} {}", cert.display(), key.display());
    let accepts = ServerConfig::builder()
        .with_client_cert_verifier(client_verifier(ca, ca_flag)?)
        .with_single_cert(chain.clone(), secret.clone_key())
        .with_context(pair)?;
    let connects = ClientConfig::builder()
        .with_root_certificates(roots(ca, ca_flag)?)
        .with_client_auth_cert(chain, secret)
        .with_context(pair)?;
    Ok((TlsConnector::from(Arc::new(connects)), TlsAcceptor::from(Arc::new(accepts))))
}

/// Refuses a certificate of this member that the others would refuse, because it is not
/// for the host of its URL. A member that reaches the others without being reached by
/// them could lead, and would leave them without answers.
pub fn check_peer_certificate(cert: &Path, host: &str) -> anyhow::Result<()> {
    let flag = "--metastore-peer-cert";
    let chain = certificates(cert, flag)?;
    let invalid = || format!("{flag} {}", cert.display());
    let first = chain.first().context("a chain has a certificate")?;
    let first = EndEntityCert::try_from(first).with_context(invalid)?;
    let name = ServerName::try_from(host).with_context(|| format!("the host {host:?}"))?;
    if first.verify_is_valid_for_subject_name(&name).is_err() {
        let names: Vec<&str> = first.valid_dns_names().collect();
        bail!(
            "{flag} {} is not for {host}, the host of this member in --metastore-peers, but for \
             {}: the others would refuse it",
            cert.display(),
            if names.is_empty() { "other addresses".to_string() } else { names.join(", ") }
        );
    }
    Ok(())
}

/// Returns the DNS names of the server's certificate.
pub fn certificate_names(tls: &Tls) -> anyhow::Result<Vec<String>> {
    let chain = certificates(&tls.cert, "--tls-cert")?;
    let first = chain.first().and_then(|first| EndEntityCert::try_from(first).ok());
    let names = first.iter().flat_map(|first| first.valid_dns_names());
    Ok(names.map(str::to_string).collect())
}

fn client_verifier(
    path: &Path,
    flag: &str,
) -> anyhow::Result<Arc<dyn rustls::server::danger::ClientCertVerifier>> {
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots(path, flag)?));
    verifier.build().with_context(|| format!("{flag} {}", path.display()))
}

fn roots(path: &Path, flag: &str) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(path, flag)? {
        roots.add(authority).with_context(|| format!("{flag} {}", path.display()))?;
    }
    Ok(roots)
}

fn certificates(path: &Path, flag: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let failed = |error| anyhow!("{flag} {}: {error}", path.display());
    let found = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(failed)?;
    if found.is_empty() {
        bail!("{flag} {}: no PEM certificate found", path.display());
    }
    Ok(found)
}
