//! TLS: which clients are accepted, and the errors about invalid files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use stele_bigtable::proto::v2::bigtable_client::BigtableClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::support::{Server, command, ping, refused};

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns a certificate for `localhost` and its key.
    pub fn sign(&self) -> (String, String) {
        self.sign_for("localhost", "somebody")
    }

    /// Returns a certificate for a host, with a common name, and its key.
    pub fn sign_for(&self, host: &str, common_name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_string()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

pub fn save(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_string()
}

async fn call(server: &Server, tls: ClientTlsConfig) -> Result<(), Box<dyn std::error::Error>> {
    let endpoint = Endpoint::from_shared(format!("https://{}", server.address("grpc")))?;
    let channel = endpoint.tls_config(tls.domain_name("localhost"))?.connect().await?;
    BigtableClient::new(channel).ping_and_warm(ping()).await?;
    Ok(())
}

fn client_of(authority: &Authority) -> ClientTlsConfig {
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority.pem()))
}

/// Fetches the health page over TLS.
async fn health(server: &Server, authority: &Authority) -> String {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tcp = tokio::net::TcpStream::connect(server.address("http")).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    tls.write_all(b"GET /health HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tls.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn tls_is_on_every_port_and_plain_text_is_not_answered() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (cert, key) = authority.sign();
    let (cert, key) = (save(dir.path(), "cert", &cert), save(dir.path(), "key", &key));
    let server = Server::start(&["--ephemeral", "--tls-cert", &cert, "--tls-key", &key]);
    call(&server, client_of(&authority)).await.unwrap();
    assert!(health(&server, &authority).await.ends_with("ok\n"));
    assert!(
        call(&server, client_of(&Authority::new())).await.is_err(),
        "a client that knows another"
    );
    let plain = Endpoint::from_shared(format!("http://{}", server.address("grpc"))).unwrap();
    if let Ok(channel) = plain.connect().await {
        assert!(BigtableClient::new(channel).ping_and_warm(ping()).await.is_err());
    }
    call(&server, client_of(&authority)).await.unwrap();
}

#[tokio::test]
async fn clients_must_present_a_certificate_of_the_required_authority() {
    let dir = tempfile::tempdir().unwrap();
    let (servers, clients) = (Authority::new(), Authority::new());
    let (cert, key) = servers.sign();
    let (cert, key) = (save(dir.path(), "cert", &cert), save(dir.path(), "key", &key));
    let authority = save(dir.path(), "authority", &clients.pem());
    let args =
        ["--ephemeral", "--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &authority];
    let server = Server::start(&args);
    let identity = |(cert, key): (String, String)| Identity::from_pem(cert, key);
    let known = client_of(&servers).identity(identity(clients.sign()));
    call(&server, known.clone()).await.unwrap();
    let stranger = client_of(&servers).identity(identity(servers.sign()));
    assert!(call(&server, stranger).await.is_err());
    assert!(call(&server, client_of(&servers)).await.is_err(), "without a certificate");
    call(&server, known).await.unwrap();
}

#[test]
fn a_bad_file_is_named_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (Authority::new(), Authority::new());
    let (cert, key) = one.sign();
    let (cert, key) = (save(dir.path(), "cert", &cert), save(dir.path(), "key", &key));
    let other_key = save(dir.path(), "other-key", &other.sign().1);
    let empty = save(dir.path(), "empty", "no certificate here\n");
    for (files, says) in [
        ([&cert, &"/no/key".to_string(), &cert], "--tls-key /no/key"),
        ([&empty, &key, &cert], "--tls-cert"),
        ([&cert, &empty, &cert], "--tls-key"),
        ([&cert, &other_key, &cert], "--tls-cert"),
        ([&cert, &key, &empty], "--tls-client-ca"),
    ] {
        let [cert, key, authority] = files;
        let args = ["serve", "--ephemeral", "--grpc-port=0", "--http-port=0"];
        let mut bad = command(&args);
        bad.args(["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", authority]);
        let printed = refused(&mut bad);
        assert!(printed.contains(says), "{printed}");
    }
}
