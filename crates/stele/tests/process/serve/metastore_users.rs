//! Users, elections, history and usage from the command line, and the metastore's
//! settings of a server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::secure::{Authority, save};
use crate::support::{Commands, Server, TIMEOUT, command, refused};

struct Metastore {
    server: Server,
    user: Option<&'static str>,
}

impl Metastore {
    fn start(args: &[&str]) -> Metastore {
        let all = [&["--ephemeral", "--metastore-port", "0"], args].concat();
        Metastore { server: Server::start(&all), user: None }
    }

    fn by(self, user: &'static str) -> Metastore {
        Metastore { user: Some(user), ..self }
    }

    fn lines(&self, args: &[&str]) -> Vec<Value> {
        let printed = self.ok(&[args, &["--json"]].concat());
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Commands for Metastore {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(&[&["metastore"], args].concat());
        command.env("STELE_METASTORE", self.server.address("metastore"));
        command.env_remove("STELE_METASTORE_USER");
        if let Some(user) = self.user {
            command.env("STELE_METASTORE_USER", user);
        }
        command
    }
}

#[test]
fn users_are_managed_and_callers_are_checked() {
    let all = Metastore::start(&[]);
    assert!(all.fails(2, &["auth", "enable"]).contains("root user does not exist"));
    assert_eq!(all.ok(&["user", "add", "root", "--password", "toor"]), "user root created\n");
    all.ok(&["user", "grant-role", "root", "root"]);
    all.ok(&["user", "add", "ada", "--password", "secret"]);
    all.ok(&["role", "add", "reader"]);
    all.ok(&["role", "grant", "reader", "read", "a/", "--prefix"]);
    all.ok(&["role", "grant", "reader", "readwrite", "own"]);
    assert_eq!(
        all.lines(&["role", "get", "reader"]),
        [
            json!({ "permission": "read", "key": "a/", "range_end": "a0" }),
            json!({ "permission": "readwrite", "key": "own", "range_end": "" }),
        ]
    );
    all.ok(&["user", "grant-role", "ada", "reader"]);
    assert_eq!(
        all.lines(&["user", "list"]),
        [
            json!({ "user": "ada", "roles": ["reader"] }),
            json!({ "user": "root", "roles": ["root"] })
        ]
    );
    all.ok(&["put", "a/1", "before"]);
    all.ok(&["auth", "enable"]);
    assert_eq!(all.lines(&["auth", "status"])[0]["enabled"], json!(true));
    let refused = all.fails(2, &["get", "a/1"]);
    assert!(refused.contains("user name is empty; the server checks callers"), "{refused}");

    let root = all.by("root:toor");
    root.ok(&["put", "a/1", "after"]);
    let ada = root.by("ada:secret");
    assert_eq!(ada.ok(&["get", "a/1"]), "a/1\tafter\n");
    assert!(ada.fails(2, &["put", "a/1", "no"]).contains("permission denied"));
    let history = ada.lines(&["history", "a/1"]);
    let told: Vec<(&Value, &Value)> =
        history.iter().map(|entry| (&entry["user"], &entry["value"])).collect();
    assert_eq!(told, [(&json!("root"), &json!("YWZ0ZXI=")), (&json!(""), &json!("YmVmb3Jl"))]);
    let shown = ada.ok(&["history", "a/1", "--limit", "1"]);
    assert!(shown.contains("after") && shown.contains("raise --limit"), "{shown}");
    let wrong = ada.by("ada:wrong");
    assert!(wrong.fails(2, &["get", "a/1"]).contains("authentication failed"));
    let root = wrong.by("root:toor");
    root.ok(&["user", "passwd", "ada", "--password", "new"]);
    root.ok(&["role", "revoke", "reader", "own"]);
    root.ok(&["user", "revoke-role", "ada", "reader"]);
    root.ok(&["user", "delete", "ada"]);
    root.ok(&["role", "delete", "reader"]);
    assert_eq!(root.ok(&["role", "list"]), "");
    root.ok(&["auth", "disable"]);
}

#[test]
fn the_prefixes_with_the_most_bytes_or_keys_are_shown() {
    let all = Metastore::start(&[]);
    for (key, value) in
        [("a/1", "v"), ("a/2", "v"), ("b/x/1", "a long value"), ("b/y/1", "v"), ("c", "")]
    {
        all.ok(&["put", key, value]);
    }
    all.ok(&["put", "a/1", "w"]);
    let tops = |args: &[&str]| -> Vec<(String, i64, i64)> {
        let lines = all.lines(&[&["top"], args].concat());
        let number = |line: &Value, name: &str| line[name].as_i64().unwrap();
        let prefix = |line: &Value| line["prefix"].as_str().unwrap().to_owned();
        lines
            .iter()
            .map(|line| (prefix(line), number(line, "keys"), number(line, "bytes")))
            .collect()
    };
    let top = |prefix: &str, keys, bytes| (prefix.to_owned(), keys, bytes);
    assert_eq!(tops(&[]), [top("Yi8=", 2, 23), top("YS8=", 2, 8), top("Yw==", 1, 1)]);
    assert_eq!(tops(&["b/", "--by-keys"]), [top("Yi94Lw==", 1, 17), top("Yi95Lw==", 1, 6)]);
    assert_eq!(tops(&["--limit", "1"]), [top("Yi8=", 2, 23)]);
    let shown = all.ok(&["top", "--limit", "1"]);
    assert!(shown.contains("5 keys") && shown.contains("2 more prefixes"), "{shown}");
}

#[test]
fn a_candidate_leads_until_it_is_interrupted() {
    let all = Metastore::start(&[]);
    let start = |value: &str| {
        let mut child =
            all.command(&["elect", "primary", value]).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        (child, out)
    };
    let line = |out: &mut BufReader<_>| {
        let mut line = String::new();
        BufRead::read_line(out, &mut line).unwrap();
        line
    };
    let (mut first, mut out) = start("one");
    assert!(line(&mut out).contains("leads with one"));
    let (mut second, mut later) = start("two");
    let interrupt = |child: &std::process::Child| {
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
    };
    interrupt(&first);
    assert!(first.wait().unwrap().success());
    assert!(line(&mut later).contains("leads with two"));
    let mut observer = all
        .command(&["elect", "primary", "--listen", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = BufReader::new(observer.stdout.take().unwrap());
    let leader: Value = serde_json::from_str(&line(&mut seen)).unwrap();
    assert_eq!(leader["value"], "dHdv");
    observer.kill().unwrap();
    observer.wait().unwrap();
    interrupt(&second);
    assert!(second.wait().unwrap().success());
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn with_tls_plain_text_and_a_metrics_port_can_be_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let (cert, key) = authority.sign();
    let (cert, key) = (save(dir.path(), "cert", &cert), save(dir.path(), "key", &key));
    let ca = save(dir.path(), "ca", &authority.pem());
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let port = free.port().to_string();
    let tls = ["--tls-cert", &cert, "--tls-key", &key];
    let plain = ["--metastore-plain-text", "--metastore-metrics-port", &port];
    let both = Metastore::start(&[&tls[..], &plain[..]].concat());
    let address = both.server.address("metastore");
    both.ok(&["put", "k", "v"]);
    let port = address.rsplit_once(':').unwrap().1;
    let secure = format!("https://localhost:{port}");
    assert_eq!(both.ok(&["get", "k", "--endpoint", &secure, "--tls-ca", &ca]), "k\tv\n");
    let metrics = get(&free.to_string(), "/metrics");
    assert!(metrics.contains("etcd_server_has_leader 1"), "{metrics}");
    assert!(get(&free.to_string(), "/health").contains("\"health\":\"true\""));
    assert!(get(&free.to_string(), "/v3/kv/range").starts_with("HTTP/1.1 404"));
    let only = Metastore::start(&tls);
    assert_eq!(only.run(&["get", "k"]).status.code(), Some(2), "plain text is not answered");
}

#[test]
fn limits_and_tokens_are_settings_and_wrong_ones_are_refused() {
    let small = Metastore::start(&["--metastore-max-txn-ops", "1", "--metastore-progress", "1s"]);
    small.ok(&["put", "k", "v"]);
    for (flag, value, says) in [
        ("--metastore-max-request", "1KiB", "64KiB"),
        ("--metastore-max-txn-ops", "0", "at least 1"),
        ("--metastore-progress", "1ms", "100ms"),
        ("--auth-token", "jwt,sign-method=RS256", "priv-key"),
        ("--auth-token", "other", "simple"),
    ] {
        let ports = ["--grpc-port=off", "--http-port=off", "--metastore-port=0"];
        let mut bad = command(&[&["serve", "--ephemeral"], &ports[..], &[flag, value]].concat());
        let printed = refused(&mut bad);
        assert!(printed.contains(says), "{flag} {value}: {printed}");
    }
}
