//! Certificates: members talk only to members that show one of their authority, and the
//! name in a client's certificate is that of a user if the server is told so.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use stele_metastore::peer::Roster;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::members::{NAMES, connect, free_port, spawn_all, until};
use crate::serve::secure::{Authority, save};
use crate::support::{Commands, Server, command};

/// Opens a TLS connection to a port of this machine. The handshake may succeed on this
/// side before the other refuses the certificate.
async fn open(
    port: u16,
    trusted: &Authority,
    identity: Option<&(String, String)>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let stream = TcpStream::connect(("localhost", port)).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Introduces itself to member `a` as member `b`. Returns the length of its refusal, 0 if
/// there is none.
async fn introduce(
    port: u16,
    members: &str,
    trusted: &Authority,
    identity: Option<&(String, String)>,
) -> std::io::Result<u16> {
    let [a, b] = ["a", "b"].map(|name| Roster::parse(name, members).unwrap());
    let mut stream = open(port, trusted, identity).await?;
    stream.write_all(b"STELEPR1").await?;
    for number in [a.cluster_id(), b.member_id(), a.member_id()] {
        stream.write_all(&number.to_le_bytes()).await?;
    }
    stream.flush().await?;
    stream.read_u16_le().await
}

/// Returns the command that starts a member with a certificate.
pub fn member(
    dir: &Path,
    at: usize,
    members: &str,
    client_url: &str,
    authority: &Authority,
    (certificate, key): &(String, String),
) -> Command {
    let name = NAMES[at];
    let file = |what: &str, text: &str| save(dir, &format!("{name}-{what}"), text);
    let mut start = command(&["metastore", "serve", "--name", name]);
    start
        .arg("--data-dir")
        .arg(dir.join(name))
        .args(["--initial-cluster", members])
        .args(["--listen-client-urls", client_url])
        .args(["--peer-cert-file", &file("cert", certificate)])
        .args(["--peer-key-file", &file("key", key)])
        .args(["--peer-trusted-ca-file", &file("ca", &authority.pem())]);
    start
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_talk_only_to_members_with_a_certificate_of_their_authority() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, stranger) = (Authority::new(), Authority::new());
    let [peer_ports, client_ports] = [(); 2].map(|()| [(); 3].map(|()| free_port()));
    let url = |(name, port): (&str, u16)| format!("{name}=https://localhost:{port}");
    let members = NAMES.into_iter().zip(peer_ports).map(url).collect::<Vec<_>>().join(",");
    let start = |at: usize, host: &str| {
        let identity = authority.sign_for(host, NAMES[at]);
        let client_url = format!("http://127.0.0.1:{}", client_ports[at]);
        member(dir.path(), at, &members, &client_url, &authority, &identity)
    };
    // A new member with a certificate for another host could lead: it reaches the others,
    // though they do not reach it.
    let refused = crate::support::refused(&mut start(2, "elsewhere"));
    assert!(refused.contains("is not for localhost"), "{refused}");
    let [_a, _b, c] = spawn_all([0, 1, 2].map(|at| start(at, "localhost")));
    assert!(c.terminate().status.success());
    // It may have moved since: the others decide.
    let c = start(2, "elsewhere");
    let starting = std::thread::spawn(|| Server::spawn(c));
    let clients = client_ports.map(|port| connect(&format!("http://127.0.0.1:{port}")));
    // Two of three are enough.
    until("the two with good certificates work", async || {
        clients[0].put("k", "v").await.is_ok() && clients[1].get("k", 0).await.is_ok()
    })
    .await;
    let c = Roster::parse("c", &members).unwrap().member_id();
    until("only the certificate of c is refused", async || {
        let status = clients[0].cluster_status().await.unwrap();
        let is_refused = |error: &str| error.contains("certificate");
        status.members.iter().all(|member| match member.member_id == c {
            true => is_refused(&member.error),
            false => member.error.is_empty(),
        })
    })
    .await;
    // A member shows a certificate of the authority; others are refused.
    let ask = |identity| introduce(peer_ports[0], &members, &authority, identity);
    let good = authority.sign();
    assert_eq!(ask(Some(&good)).await.unwrap(), 0, "accepted");
    let forged = stranger.sign();
    ask(Some(&forged)).await.unwrap_err();
    ask(None).await.unwrap_err();
    introduce(peer_ports[0], &members, &stranger, Some(&good)).await.unwrap_err();
    starting.join().unwrap();
}

/// Commands of a user whose name is in its certificate.
struct Certified {
    port: u16,
    files: [String; 3],
}

impl Certified {
    fn new(dir: &Path, port: u16, authority: &Authority, name: &str) -> Certified {
        let (certificate, key) = authority.sign_for("localhost", name);
        let file = |what: &str, text: &str| save(dir, &format!("{name}-{what}"), text);
        let files = [file("ca", &authority.pem()), file("cert", &certificate), file("key", &key)];
        Certified { port, files }
    }
}

impl Commands for Certified {
    fn command(&self, args: &[&str]) -> Command {
        let [ca, certificate, key] = &self.files;
        let mut all = command(&["metastore"]);
        all.args(args).args(["--endpoint", &format!("https://localhost:{}", self.port)]);
        all.args(["--tls-ca", ca, "--tls-cert", certificate, "--tls-key", key]);
        all.env_remove("STELE_METASTORE_USER");
        all
    }
}

/// Starts a member for clients with certificates.
fn serve(dir: &Path, port: u16, authority: &Authority, args: &[&str]) -> Server {
    let (certificate, key) = authority.sign();
    let mut start = command(&["metastore", "serve"]);
    start.arg("--data-dir").arg(dir.join("data"));
    start.args(["--listen-client-urls", &format!("https://localhost:{port}")]);
    start.args(["--cert-file", &save(dir, "cert", &certificate)]);
    start.args(["--key-file", &save(dir, "key", &key)]);
    start.args(["--trusted-ca-file", &save(dir, "ca", &authority.pem())]).args(args);
    Server::spawn(start)
}

/// Reads a key over JSON, with a certificate.
async fn read_json(port: u16, authority: &Authority, name: &str) -> Value {
    let identity = authority.sign_for("localhost", name);
    let mut stream = open(port, authority, Some(&identity)).await.unwrap();
    let body = r#"{"key":"YQ=="}"#;
    let head = format!(
        "POST /v3/kv/range HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_in_a_certificate_is_a_user_if_the_server_is_told_so() {
    let (dir, authority, port) = (tempfile::tempdir().unwrap(), Authority::new(), free_port());
    let server = serve(dir.path(), port, &authority, &["--client-cert-auth"]);
    let by = |name: &str| Certified::new(dir.path(), port, &authority, name);
    let (root, ada, nobody) = (by("root"), by("ada"), by("nobody"));
    root.ok(&["user", "add", "root", "--password", "toor"]);
    root.ok(&["user", "grant-role", "root", "root"]);
    root.ok(&["role", "add", "a"]);
    root.ok(&["role", "grant", "a", "readwrite", "a"]);
    root.ok(&["user", "add", "ada", "--no-password"]);
    root.ok(&["user", "grant-role", "ada", "a"]);
    root.ok(&["auth", "enable"]);
    root.ok(&["put", "b", "1"]);
    ada.ok(&["put", "a", "1"]);
    assert!(ada.fails(2, &["get", "b"]).contains("permission denied"));
    assert!(nobody.fails(2, &["get", "a"]).contains("permission denied"));
    // A token goes before the certificate.
    ada.ok(&["get", "b", "--as", "root:toor"]);
    // The JSON gateway needs a token.
    let refused = read_json(port, &authority, "ada").await;
    assert_eq!(refused["message"], "etcdserver: user name is empty", "{refused}");
    assert!(server.terminate().status.success());
    // Without the option, a certificate is not a user.
    let server = serve(dir.path(), port, &authority, &[]);
    assert!(ada.fails(2, &["get", "a"]).contains("user name is empty"));
    assert!(server.terminate().status.success());
}

#[test]
fn names_in_certificates_need_an_authority() {
    let refused = crate::support::refused(&mut command(&[
        "metastore",
        "serve",
        "--data-dir=/nonexistent",
        "--client-cert-auth",
    ]));
    assert!(refused.contains("--trusted-ca-file"), "{refused}");
    let refused =
        crate::support::refused(&mut command(&["serve", "--ephemeral", "--metastore-cert-users"]));
    assert!(refused.contains("--tls-client-ca"), "{refused}");
}
