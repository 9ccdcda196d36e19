//! `stele name` and the names of `stele serve`, as people and programs meet
//! them: the real binary, over the network.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use serde_json::{Value, json};

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stele"));
    command.args(args).env_remove("RUST_LOG").env_remove("STELE_NAMES").stdin(Stdio::null());
    command
}

/// A server process that is ready. Killed when dropped.
struct Server {
    child: Child,
    ready: Value,
}

impl Server {
    fn start(args: &[&str]) -> Server {
        let mut command = command(args);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("stele starts");
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let ready = serde_json::from_str(&first).unwrap_or_else(|_| panic!("not ready: {first}"));
        Server { child, ready }
    }

    fn ephemeral(args: &[&str]) -> Server {
        let mut all = vec![
            "serve",
            "--ephemeral",
            "--grpc-port",
            "0",
            "--http-port",
            "off",
            "--metastore-port",
            "off",
            "--dns-port",
            "0",
        ];
        all.extend(args);
        Server::start(&all)
    }

    fn grpc(&self) -> &str {
        self.ready["grpc"].as_str().unwrap()
    }

    /// `stele name ...` on this server.
    fn name(&self, args: &[&str]) -> Output {
        let mut all = vec!["name"];
        all.extend(args);
        command(&all).env("STELE_NAMES", self.grpc()).output().unwrap()
    }

    /// What a command that must succeed writes.
    fn told(&self, args: &[&str]) -> String {
        let output = self.name(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn names_are_mounted_found_watched_guarded_and_removed() {
    let server = Server::ephemeral(&[]);
    server.told(&["mount", "services/web", "127.0.0.1:80", "--ttl", "5m"]);
    server.told(&["mount", "services/db", "127.0.0.1:5432"]);
    let resolved = lines(&server.told(&["resolve", "services/db/x", "--json"]));
    assert_eq!(
        (&resolved[0]["names"], &resolved[0]["name"]),
        (&json!(["/127.0.0.1:5432/x"]), &json!("x"))
    );
    assert_eq!(server.told(&["ls", "services"]), "db\nweb\n");
    assert_eq!(
        server.told(&["tree"]),
        "(root)\n  services\n    db  127.0.0.1:5432\n    web  127.0.0.1:80\n"
    );
    assert_eq!(server.told(&["glob", "*/w*"]), "services/web\n");
    let watched = lines(&server.told(&["watch", "services", "--once", "--json"]));
    assert_eq!(watched.len(), 3);
    let absent = server.name(&["resolve", "nothing"]);
    assert_eq!(absent.status.code(), Some(1));

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("acl.json");
    std::fs::write(&file, r#"{"Admin":{"In":["..."]}}"#).unwrap();
    server.told(&["acl", "set", "kept", file.to_str().unwrap()]);
    assert_eq!(
        lines(&server.told(&["acl", "get", "kept", "--json"]))[0]["permissions"]["Admin"]["In"],
        json!(["..."])
    );
    let checked = lines(&server.told(&["fsck", "--json", "--bigtable", server.grpc()]));
    assert_eq!((&checked[0]["nodes"], &checked[0]["sound"]), (&json!(5), &json!(true)));

    server.told(&["unmount", "services/web", "127.0.0.1:80"]);
    server.told(&["rm", "-r", "services"]);
    assert_eq!(server.told(&["ls"]), "kept\n");
}

#[test]
fn what_is_published_lasts_as_long_as_its_command() {
    let server = Server::ephemeral(&[]);
    let own = env!("CARGO_BIN_EXE_stele");
    let watch = ["watch", "web", "--json"];
    let mut watcher = command(&["name"]);
    watcher.args(watch).env("STELE_NAMES", server.grpc()).stdout(Stdio::piped());
    let mut watcher = watcher.spawn().unwrap();
    let mut changes = BufReader::new(watcher.stdout.take().unwrap()).lines();
    // The command asks for the name under which its own server is published,
    // again until it is there.
    let script = format!("until {own} name resolve web > /dev/null 2>&1; do :; done");
    server.told(&["publish", "web", "127.0.0.1:80", "--", "sh", "-c", &script]);
    let mut next = || -> Value { serde_json::from_str(&changes.next().unwrap().unwrap()).unwrap() };
    while next()["servers"][0]["server"] != json!("127.0.0.1:80") {}
    while next()["servers"] != json!([]) {}
    assert_eq!(server.name(&["resolve", "web"]).status.code(), Some(1));
    watcher.kill().unwrap();
    watcher.wait().unwrap();
}

#[test]
fn two_servers_alone_share_the_rows_of_a_third_and_outlive_each_other() {
    let rows = Server::ephemeral(&[]);
    let alone = || {
        Server::start(&[
            "name",
            "serve",
            "--bigtable",
            rows.grpc(),
            "--project",
            "p",
            "--instance",
            "i",
            "--listen",
            "127.0.0.1:0",
        ])
    };
    let (first, second) = (alone(), alone());
    first.told(&["mount", "a/b", "127.0.0.1:1"]);
    assert_eq!(
        lines(&second.told(&["resolve", "a/b", "--json"]))[0]["names"],
        json!(["/127.0.0.1:1"])
    );
    drop(first);
    second.told(&["mount", "a/c", "127.0.0.1:2"]);
    let third = alone();
    assert_eq!(third.told(&["ls", "a"]), "b\nc\n");
    let check = ["fsck", "--bigtable", rows.grpc(), "--project", "p", "--instance", "i"];
    assert!(second.told(&check).ends_with("sound\n"));
}

#[test]
fn names_outlive_a_killed_server() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let start = || {
        let data = data.to_str().unwrap();
        let ports = ["--grpc-port", "0", "--http-port", "off", "--dns-port", "off"];
        let off = ["--metastore-port", "off"];
        Server::start(&[&["serve", "--data", data], &ports[..], &off].concat())
    };
    let server = start();
    server.told(&["mount", "a/b", "127.0.0.1:1"]);
    drop(server);
    let server = start();
    assert_eq!(server.told(&["ls", "a"]), "b\n");
}

/// An authority, and files of certificates it has signed.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(dir: &Path) -> Authority {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(dir.join("ca.pem"), issuer.pem()).unwrap();
        Authority(issuer)
    }

    fn sign(&self, dir: &Path, file: &str, blessing: Option<&str>) {
        let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress("127.0.0.1".parse().unwrap()));
        if let Some(blessing) = blessing {
            let uri = Ia5String::try_from(format!("blessing:{blessing}")).unwrap();
            params.subject_alt_names.push(SanType::URI(uri));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        std::fs::write(dir.join(format!("{file}.pem")), certificate.pem()).unwrap();
        std::fs::write(dir.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    }
}

#[test]
fn a_certificate_says_who_calls() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path());
    authority.sign(dir.path(), "server", None);
    authority.sign(dir.path(), "alice", Some("dev:u:alice"));
    authority.sign(dir.path(), "bob", Some("dev:u:bob"));
    let path = |file: &str| dir.path().join(file).to_str().unwrap().to_string();
    let nodes = r#"{"": {"Admin": {"In": ["dev:u:alice"]}, "Read": {"In": ["dev"]}}}"#;
    std::fs::write(dir.path().join("nodes.json"), nodes).unwrap();
    let server = Server::ephemeral(&[
        "--tls-cert",
        &path("server.pem"),
        "--tls-key",
        &path("server.key"),
        "--tls-client-ca",
        &path("ca.pem"),
        "--names-permissions",
        &path("nodes.json"),
    ]);
    let by = |who: &str, args: &[&str]| {
        let (ca, cert, key) =
            (path("ca.pem"), path(&format!("{who}.pem")), path(&format!("{who}.key")));
        let shown = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
        server.name(&[args, &shown[..]].concat())
    };
    let made = by("alice", &["mount", "a", "127.0.0.1:1"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(by("bob", &["resolve", "a"]).status.success());
    let refused = by("bob", &["mount", "b", "127.0.0.1:1"]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains("dev:u:bob") && error.contains("Create"), "{error}");
}

#[test]
fn a_short_stress_measures_everything() {
    let server = Server::ephemeral(&["--names-max-nodes", "0", "--names-max-servers", "0"]);
    let measured = server.told(&[
        "stress",
        "--mounts",
        "50",
        "--seconds",
        "1",
        "--concurrency",
        "8",
        "--connections",
        "1",
        "--root",
        server.grpc(),
        "--glob-children",
        "50",
        "--json",
    ]);
    let measured = &lines(&measured)[0];
    assert_eq!(measured["glob"]["entries"], json!(50));
    assert!(measured["resolve"]["per_second"].as_f64().unwrap() > 0.0, "{measured}");
    assert_eq!(server.told(&["ls"]), "");
}
