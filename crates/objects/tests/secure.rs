//! A store behind TLS is reached if SSL_CERT_FILE names its certificate authority, and not
//! otherwise. The variable belongs to a process, so the test starts itself as another one.

mod support;

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use stele_objects::Environment;
use support::{Fixture, MIB, URL, contents, name, read, settings, write};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// Set in the process that opens the store: its address.
const ENDPOINT: &str = "STELE_TEST_ENDPOINT";

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Returns the TLS of a server whose certificate the authority has signed.
fn acceptor(authority: &CertifiedIssuer<'static, KeyPair>) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key);
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

/// Serves a plain server behind TLS. Returns the port.
fn proxy(runtime: &Runtime, acceptor: TlsAcceptor, plain: String) -> u16 {
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, plain) = (acceptor.clone(), plain.clone());
            tokio::spawn(async move {
                // A client that does not trust the certificate ends the handshake.
                let Ok(mut secure) = acceptor.accept(stream).await else { return };
                let mut server = TcpStream::connect(plain).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut secure, &mut server).await;
            });
        }
    });
    port
}

/// Runs `opens_the_store_of_the_variables` in a process that trusts a file's certificates.
fn run(fixture: &Fixture, port: u16, trusted: &Path) -> std::process::Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["opens_the_store_of_the_variables", "--exact", "--ignored", "--nocapture"]);
    child.envs(fixture.server.variables()).env_remove("AWS_ALLOW_HTTP");
    let endpoint = format!("https://localhost:{port}");
    child.env("AWS_ENDPOINT", &endpoint).env(ENDPOINT, endpoint).env("SSL_CERT_FILE", trusted);
    child.output().unwrap()
}

#[test]
fn a_store_behind_tls_is_trusted_by_ssl_cert_file_and_not_without_it() {
    let fixture = Fixture::start();
    let plain = fixture.server.endpoint().trim_start_matches("http://").to_string();
    let [own, other] = [authority(), authority()];
    let runtime = Runtime::new().unwrap();
    let port = proxy(&runtime, acceptor(&own), plain);
    let [trusted, foreign] = ["own.pem", "other.pem"].map(|name| fixture.dir.path().join(name));
    std::fs::write(&trusted, own.pem()).unwrap();
    std::fs::write(&foreign, other.pem()).unwrap();

    let output = run(&fixture, port, &trusted);
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    assert!(fixture.server.folder("bucket").join("some/prefix/frag/01/3-1").exists());

    let output = run(&fixture, port, &foreign);
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "another authority is trusted");
    assert!(shown.contains("invalid peer certificate"), "{shown}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn opens_the_store_of_the_variables() {
    assert!(std::env::var(ENDPOINT).unwrap().starts_with("https://"));
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    settings.environment = Environment::default();
    settings.retry_open_for = std::time::Duration::from_secs(1);
    let store = stele_objects::open(URL, settings).unwrap();
    let bytes = contents(1, 2 * MIB);
    write(&store, name(1), &bytes).unwrap();
    store.close();
    assert!(read(&store, name(1), bytes.len(), 0..bytes.len()).unwrap() == bytes);
}
