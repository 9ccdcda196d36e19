//! The metastore port of a server: etcd's API, durable across restarts.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::secure::{Authority, save};
use crate::support::{Server, TIMEOUT, command, refused};

/// Posts a message to the JSON gateway.
fn post(server: &Server, path: &str, body: &Value) -> Value {
    let mut stream = TcpStream::connect(server.address("metastore")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let body = body.to_string();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
}

#[test]
fn keys_and_revisions_are_kept_over_restarts_and_kills() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = None;
    for life in 0..4 {
        let server = Server::with_data(dir.path(), &["--metastore-port", "0"]);
        let found = post(&server, "/v3/kv/range", &json!({ "key": "a2V5" }));
        let version = found["kvs"][0]["version"].as_str().map(str::to_owned);
        assert_eq!(version, (life > 0).then(|| life.to_string()));
        let put = post(&server, "/v3/kv/put", &json!({ "key": "a2V5", "value": "dg==" }));
        assert_eq!(put["header"]["revision"], (life + 2).to_string());
        let id = put["header"]["cluster_id"].clone();
        assert_eq!(cluster.get_or_insert(id.clone()), &id, "the cluster stays the same");
        // Every other run ends with a kill instead of a clean shutdown.
        if life % 2 == 0 {
            assert!(server.terminate().status.success());
        }
    }
}

#[test]
fn the_data_of_another_cluster_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let args = |id: &'static str| {
        let ports = ["--grpc-port=off", "--http-port=off", "--metastore-port=0"];
        [&["serve", "--data", data, "--log=error", id], &ports[..]].concat()
    };
    let first = Server::spawn(command(&args("--metastore-cluster=c0ffee")));
    let status = post(&first, "/v3/maintenance/status", &json!({}));
    assert_eq!(status["header"]["cluster_id"], 0xC0_FFEE.to_string());
    assert!(first.terminate().status.success());
    let message = refused(&mut command(&args("--metastore-cluster=cafe")));
    assert!(
        message.contains("c0ffee") && message.contains("cafe") && message.contains(data),
        "{message}"
    );
    let again = Server::spawn(command(&args("--metastore-cluster=c0ffee")));
    assert!(again.terminate().status.success());
}

#[test]
fn a_server_ends_in_order_while_somebody_watches() {
    let server =
        Server::start(&["--ephemeral", "--metastore-port", "0", "--shutdown-grace", "60s"]);
    let mut stream = TcpStream::connect(server.address("metastore")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let body = r#"{"create_request":{"key":"a2V5"}}"#;
    let length = body.len();
    write!(stream, "POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"}\n\r\n") {
        let mut piece = [0; 1024];
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&piece[..read]);
    }
    assert!(String::from_utf8(received).unwrap().contains("\"created\":true"));
    assert!(server.terminate().status.success());
}

/// Returns the output of a `stele metastore` command that must succeed.
fn stdout_of(endpoint: &str, args: &[&str]) -> String {
    let output = run(endpoint, args);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {message}");
    String::from_utf8(output.stdout).unwrap()
}

fn run(endpoint: &str, args: &[&str]) -> std::process::Output {
    let mut asking = command(&[&["metastore"][..], args].concat());
    asking.env("STELE_METASTORE", endpoint).output().unwrap()
}

#[test]
fn the_native_api_is_served_beside_etcds() {
    let server = Server::start(&["--ephemeral", "--metastore-port", "0"]);
    let at = server.address("metastore");
    assert_eq!(stdout_of(&at, &["put", "key", "native"]), "put at revision 2\n");
    let found = post(&server, "/v3/kv/range", &json!({ "key": "a2V5" }));
    assert_eq!(found["kvs"][0]["value"], "bmF0aXZl");
    post(&server, "/v3/kv/put", &json!({ "key": "a2V5", "value": "ZXRjZA==" }));
    assert_eq!(stdout_of(&at, &["get", "key"]), "key\tetcd\n");
    assert_eq!(stdout_of(&at, &["get", "key", "--at-revision", "2"]), "key\tnative\n");
    let watched = stdout_of(&at, &["watch", "key", "--from-revision", "2", "--count", "2"]);
    assert_eq!(watched, "2\tput\tkey\tnative\n3\tput\tkey\tetcd\n");
    stdout_of(&at, &["txn", "--if", "key=etcd", "--put", "key=both"]);
    let token = stdout_of(&at, &["lock", "l", "--", "sh", "-c", "echo $STELE_LOCK_TOKEN"]);
    assert!(token.trim().parse::<i64>().unwrap() > 4, "{token}");
    stdout_of(&at, &["compact", "4", "--physical"]);
    let status: Value = serde_json::from_str(&stdout_of(&at, &["status", "--json"])).unwrap();
    assert_eq!((&status["waterline"], &status["compacted"]), (&json!(4), &json!(4)));
    let gone = run(&at, &["get", "key", "--at-revision", "2"]);
    assert!(String::from_utf8_lossy(&gone.stderr).contains("older than the retained history"));
}

#[test]
fn the_metastore_is_reached_over_tls_by_who_shows_a_certificate() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let file = |name: &str, text: &str| save(dir.path(), name, text);
    let ca = file("ca.pem", &authority.pem());
    let (cert, key) = authority.sign();
    let (cert, key) = (file("server.pem", &cert), file("server.key", &key));
    let tls = ["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &ca];
    let server = Server::start(&[&["--ephemeral", "--metastore-port", "0"][..], &tls[..]].concat());
    let address = server.address("metastore").replace("127.0.0.1", "localhost");
    let (mine, my_key) = authority.sign();
    let (mine, my_key) = (file("mine.pem", &mine), file("mine.key", &my_key));
    let identity = ["--tls-ca", &ca, "--tls-cert", &mine, "--tls-key", &my_key];
    let by_me = |endpoint: &str, args: &[&str]| run(endpoint, &[args, &identity[..]].concat());
    for endpoint in [address.clone(), format!("https://{address}")] {
        let put = by_me(&endpoint, &["put", "k", "v"]);
        assert!(put.status.success(), "{endpoint}: {}", String::from_utf8_lossy(&put.stderr));
    }
    let message = |output: std::process::Output| {
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let plain = message(by_me(&format!("http://{address}"), &["get", "k"]));
    assert!(plain.contains("use https://"), "{plain}");
    let nobody = message(run(&format!("https://{address}"), &["get", "k", "--tls-ca", &ca]));
    // With TLS 1.3 a client may notice the rejection only after its first call.
    let words = ["metastore", "certificate", "did not respond"];
    assert!(words.iter().any(|word| nobody.contains(word)), "{nobody}");
    let missing = message(run(&address, &["get", "k", "--tls-ca", "no-such.pem"]));
    assert!(missing.contains("no-such.pem"), "{missing}");
}

#[test]
fn a_snapshot_is_saved_checked_and_restored_into_a_new_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (old, new, file) = (path("old"), path("new"), path("saved"));
    let server = Server::with_data(old.as_ref(), &["--metastore-port", "0"]);
    let at = server.address("metastore");
    stdout_of(&at, &["put", "a", "1"]);
    let lease: Value =
        serde_json::from_str(&stdout_of(&at, &["lease", "grant", "600", "--json"])).unwrap();
    let lease = lease["lease"].as_str().unwrap();
    stdout_of(&at, &["put", "b", "2", "--lease", lease]);
    let saved = stdout_of(&at, &["snapshot", "save", &file]);
    assert!(saved.starts_with("saved: 2 keys and 1 lease of cluster "), "{saved}");
    let status: Value =
        serde_json::from_str(&stdout_of(&at, &["snapshot", "status", &file, "--json"])).unwrap();
    assert_eq!((&status["keys"], &status["revision"]), (&json!(2), &json!(3)));
    let refused = run(&at, &["snapshot", "restore", &file, "--data", &old]);
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.contains("already exists"), "{refused}");
    assert!(server.terminate().status.success());

    let restored =
        stdout_of(&at, &["snapshot", "restore", &file, "--data", &new, "--bump-revision", "7"]);
    assert!(restored.starts_with("restored 2 keys and 1 lease as cluster "), "{restored}");
    let server = Server::with_data(new.as_ref(), &["--metastore-port", "0"]);
    let at = server.address("metastore");
    assert_eq!(stdout_of(&at, &["get", "--all"]), "a\t1\nb\t2\n");
    assert_eq!(stdout_of(&at, &["put", "a", "3"]), "put at revision 11\n");
    stdout_of(&at, &["lease", "revoke", lease]);
    assert_eq!(stdout_of(&at, &["get", "--all"]), "a\t3\n");

    let mut bytes = std::fs::read(&file).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let damaged = run(&at, &["snapshot", "status", &file]);
    assert_eq!(damaged.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&damaged.stderr).contains("wrong checksum"));
}

#[test]
fn a_quota_and_a_short_history_are_settings_of_the_server() {
    let limits = ["--metastore-quota", "8800", "--metastore-retention", "1h"];
    let server =
        Server::start(&[&["--ephemeral", "--metastore-port", "0"][..], &limits[..]].concat());
    let at = server.address("metastore");
    let value = "v".repeat(4000);
    stdout_of(&at, &["put", "a", &value]);
    stdout_of(&at, &["put", "b", &value]);
    let full = run(&at, &["put", "c", &value]);
    assert_eq!(full.status.code(), Some(2));
    let message = String::from_utf8(full.stderr).unwrap();
    assert!(message.contains("space exceeded") && message.contains("quota"), "{message}");
    let status = stdout_of(&at, &["status"]);
    assert!(status.contains("of 8.6 KiB") && status.contains("NOSPACE"), "{status}");
    let health = post(&server, "/v3/maintenance/status", &json!({}));
    assert_eq!(health["dbSizeQuota"], "8800");
}
