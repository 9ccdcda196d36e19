//! `stele name` and the names of `stele serve` as people and programs use them: the real
//! binary, over the network.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};

use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use serde_json::{Value, json};
use stele_mounttable::Mount;
use stele_mounttable::client::{Namespace, Options};

use crate::support::{Server, command};

/// A server whose names are used.
struct NameServer(Server);

impl NameServer {
    fn start(args: &[&str]) -> NameServer {
        NameServer(Server::spawn(command(args)))
    }

    fn ephemeral(args: &[&str]) -> NameServer {
        let ports = ["--grpc-port", "0", "--http-port", "off", "--dns-port", "0"];
        NameServer::start(&[&["serve", "--ephemeral"], &ports[..], args].concat())
    }

    fn grpc(&self) -> &str {
        self.0.ready["grpc"].as_str().unwrap()
    }

    /// Runs `stele name ...` against this server.
    fn name(&self, args: &[&str]) -> Output {
        command(&[&["name"], args].concat()).env("STELE_NAMES", self.grpc()).output().unwrap()
    }

    /// Returns the output of a command that must succeed.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.name(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn names_are_mounted_found_watched_guarded_and_removed() {
    let server = NameServer::ephemeral(&[]);
    server.ok(&["mount", "services/web", "127.0.0.1:80", "--ttl", "5m"]);
    server.ok(&["mount", "services/db", "127.0.0.1:5432"]);
    let resolved = lines(&server.ok(&["resolve", "services/db/x", "--json"]));
    assert_eq!(
        (&resolved[0]["names"], &resolved[0]["name"]),
        (&json!(["/127.0.0.1:5432/x"]), &json!("x"))
    );
    assert_eq!(server.ok(&["ls", "services"]), "db\nweb\n");
    assert_eq!(
        server.ok(&["tree"]),
        "(root)\n  services\n    db  127.0.0.1:5432\n    web  127.0.0.1:80\n"
    );
    assert_eq!(server.ok(&["glob", "*/w*"]), "services/web\n");
    let watched = lines(&server.ok(&["watch", "services", "--once", "--json"]));
    assert_eq!(watched.len(), 3);
    let absent = server.name(&["resolve", "nothing"]);
    assert_eq!(absent.status.code(), Some(1));

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("acl.json");
    std::fs::write(&file, r#"{"Admin":{"In":["..."]}}"#).unwrap();
    server.ok(&["acl", "set", "kept", file.to_str().unwrap()]);
    assert_eq!(
        lines(&server.ok(&["acl", "get", "kept", "--json"]))[0]["permissions"]["Admin"]["In"],
        json!(["..."])
    );
    let checked = lines(&server.ok(&["fsck", "--json"]));
    assert_eq!((&checked[0]["nodes"], &checked[0]["sound"]), (&json!(5), &json!(true)));
    let mended = server.ok(&["fsck", "--fix", "--yes"]);
    assert!(mended.ends_with("sound\n"), "{mended}");

    server.ok(&["unmount", "services/web", "127.0.0.1:80"]);
    server.ok(&["rm", "-r", "services"]);
    assert_eq!(server.ok(&["ls"]), "kept\n");
}

#[test]
fn what_is_published_lasts_as_long_as_its_command() {
    let server = NameServer::ephemeral(&[]);
    let own = env!("CARGO_BIN_EXE_stele");
    let watch = ["watch", "web", "--json"];
    let mut watcher = command(&["name"]);
    watcher.args(watch).env("STELE_NAMES", server.grpc()).stdout(Stdio::piped());
    let mut watcher = watcher.spawn().unwrap();
    let mut changes = BufReader::new(watcher.stdout.take().unwrap()).lines();
    // The command resolves the name under which its own server is published, retrying
    // until it appears.
    let script = format!("until {own} name resolve web > /dev/null 2>&1; do :; done");
    server.ok(&["publish", "web", "127.0.0.1:80", "--", "sh", "-c", &script]);
    let mut next = || -> Value { serde_json::from_str(&changes.next().unwrap().unwrap()).unwrap() };
    while next()["servers"][0]["server"] != json!("127.0.0.1:80") {}
    while next()["servers"] != json!([]) {}
    assert_eq!(server.name(&["resolve", "web"]).status.code(), Some(1));
    watcher.kill().unwrap();
    watcher.wait().unwrap();
}

#[test]
fn two_servers_alone_share_the_rows_of_a_third_and_outlive_each_other() {
    let rows = NameServer::ephemeral(&[]);
    let alone = || {
        NameServer::start(&[
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
    first.ok(&["mount", "a/b", "127.0.0.1:1"]);
    assert_eq!(
        lines(&second.ok(&["resolve", "a/b", "--json"]))[0]["names"],
        json!(["/127.0.0.1:1"])
    );
    drop(first);
    second.ok(&["mount", "a/c", "127.0.0.1:2"]);
    let third = alone();
    assert_eq!(third.ok(&["ls", "a"]), "b\nc\n");
    let check = ["fsck", "--bigtable", rows.grpc(), "--project", "p", "--instance", "i"];
    assert!(second.ok(&check).ends_with("sound\n"));
}

#[test]
fn names_outlive_a_killed_server() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let start = || {
        let data = data.to_str().unwrap();
        let ports = ["--grpc-port", "0", "--http-port", "off", "--dns-port", "off"];
        let off = ["--metastore-port", "off"];
        NameServer::start(&[&["serve", "--data", data], &ports[..], &off].concat())
    };
    let server = start();
    server.ok(&["mount", "a/b", "127.0.0.1:1"]);
    drop(server);
    let server = start();
    assert_eq!(server.ok(&["ls", "a"]), "b\n");
}

/// A client's knowledge of each name: mounted, not mounted, or unknown because no answer
/// came.
type Known = std::collections::BTreeMap<String, Option<bool>>;

/// Mounts and deletes this client's own names until the receiver is dropped. Its server
/// may die at any moment.
async fn mount_and_delete(
    client: usize,
    address: &std::sync::Mutex<String>,
    answered: std::sync::mpsc::SyncSender<()>,
) -> Known {
    let mut known = Known::new();
    for number in 0_u64.. {
        let place = (number * 7 + number / 5) % 6;
        // All clients share the parents.
        let name = match place % 2 {
            0 => format!("shared/{place}/c{client}"),
            _ => format!("shared/deep/{place}/c{client}"),
        };
        let root = format!("/{}", address.lock().unwrap());
        let options = Options { cached: false, ..Options::default() };
        let names = Namespace::new([root], options).unwrap();
        let mounts = number % 3 != 2;
        known.insert(name.clone(), None);
        let done = match mounts {
            true => names.mount(&name, &Mount::new("127.0.0.1:1", 0)).await.map(drop),
            false => names.delete(&name, true).await,
        };
        if done.is_ok() {
            known.insert(name, Some(mounts));
        }
        if answered.send(()).is_err() {
            break;
        }
    }
    known
}

/// Returns the kinds and names of the problems that fsck finds, except counters.
fn problems(server: &NameServer, fsck: &[&str]) -> Vec<(String, String)> {
    let output = server.name(&[fsck, &["--json"]].concat());
    let checked = lines(&String::from_utf8(output.stdout).unwrap());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let problems = checked[0]["problems"].as_array().unwrap().iter();
    let problems = problems.map(|problem| (text(&problem["kind"]), text(&problem["name"])));
    problems.filter(|(kind, _)| kind != "counter").collect()
}

#[test]
fn servers_killed_between_two_writes_leave_at_worst_references_that_are_mended_as_promised() {
    let rows = NameServer::ephemeral(&[]);
    let at = ["--bigtable", rows.grpc(), "--project", "p", "--instance", "i"];
    let alone = || {
        let own = ["name", "serve", "--listen", "127.0.0.1:0", "--grace", "0"];
        NameServer::start(&[&own[..], &at].concat())
    };
    let mut servers: Vec<_> = (0..3).map(|_| alone()).collect();
    let addresses: Vec<_> =
        servers.iter().map(|server| std::sync::Mutex::new(server.grpc().to_string())).collect();
    let kills = if std::env::var_os("STELE_LONG").is_some() { 200 } else { 15 };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let known: Vec<Known> = std::thread::scope(|scope| {
        let (answered, answers) = std::sync::mpsc::sync_channel(0);
        let clients: Vec<_> = (0..6)
            .map(|client| {
                let (runtime, address) = (&runtime, &addresses[client % addresses.len()]);
                let answered = answered.clone();
                scope.spawn(move || runtime.block_on(mount_and_delete(client, address, answered)))
            })
            .collect();
        drop(answered);
        for kill in 0..kills {
            // After some answers, all clients are in the middle of an operation.
            answers.iter().take(5 + kill * 11 % 17).for_each(drop);
            let victim = kill % servers.len();
            servers[victim] = alone();
            *addresses[victim].lock().unwrap() = servers[victim].grpc().to_string();
        }
        drop(answers);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });

    drop(servers);
    let server = alone();
    let fsck = [&["fsck"], &at[..]].concat();
    let left = problems(&server, &fsck);
    assert!(left.iter().all(|(kind, _)| kind == "dangling"), "{left:?}");
    for (name, is_mounted) in known.iter().flatten() {
        let Some(is_mounted) = is_mounted else { continue };
        let resolved = server.name(&["resolve", name]).status.code();
        assert_eq!(resolved, Some(if *is_mounted { 0 } else { 1 }), "{name}");
    }
    // Recreating the child repairs the reference.
    for (_, child) in &left {
        server.ok(&["rm", "-r", child]);
        server.ok(&["mount", child, "127.0.0.1:2"]);
    }
    assert_eq!(problems(&server, &fsck), []);
    // A recursive delete removes dangling references too.
    server.ok(&["rm", "-r", "shared"]);
    assert_eq!(problems(&server, &fsck), []);
    drop(server);
    let mended = command(&[&["name"], &fsck[..], &["--fix", "--yes"]].concat()).output().unwrap();
    assert!(mended.status.success(), "{}", String::from_utf8_lossy(&mended.stdout));
}

/// A certificate authority that writes the certificates it signs to files.
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
        let key_file = dir.join(format!("{file}.key"));
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o600)).unwrap();
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
    let server = NameServer::ephemeral(&[
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
        let identity = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
        server.name(&[args, &identity[..]].concat())
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
    let server = NameServer::ephemeral(&["--names-max-nodes", "0", "--names-max-servers", "0"]);
    let measured = server.ok(&[
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
    assert_eq!(server.ok(&["ls"]), "");
}
