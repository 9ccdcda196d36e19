//! How commands find their server: any port leads to all others, and wrong ones are named
//! at once.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Server, command};

fn everything() -> Server {
    Server::start(&["--ephemeral", "--metastore-port", "0"])
}

fn printed(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn ok(command: &mut Command) -> String {
    let (code, out, error) = printed(command.output().unwrap());
    assert_eq!(code, Some(0), "{error}");
    out
}

fn fails(command: &mut Command) -> String {
    let (code, _, error) = printed(command.output().unwrap());
    assert_eq!(code, Some(2), "{error}");
    error
}

/// One command of each group that needs a server.
const GROUPS: [&[&str]; 6] = [
    &["table", "list"],
    &["catalogue", "list"],
    &["name", "ls"],
    &["metastore", "status"],
    &["name", "fsck"],
    &["status"],
];

#[test]
fn any_port_leads_every_command_to_the_server() {
    let server = everything();
    for port in ["grpc", "http", "metastore"] {
        let address = server.address(port);
        for group in GROUPS {
            ok(command(group).args(["--server", &address]));
        }
        for variable in ["STELE_SERVER", "BIGTABLE_EMULATOR_HOST", "STELE_ENDPOINT"] {
            for group in GROUPS {
                ok(command(group).env(variable, &address));
            }
        }
    }
    let (_, _, error) = printed(
        command(&["table", "list", "-v"])
            .env("STELE_SERVER", server.address("http"))
            .output()
            .unwrap(),
    );
    let expected = format!("gRPC at {}, from $STELE_SERVER", server.address("grpc"));
    assert!(error.contains(&expected), "{error}");
    let number = server.address("metastore").rsplit_once(':').unwrap().1.to_string();
    ok(command(&["table", "list"]).args(["--server", &number]));
    ok(command(&["metastore", "status"]).args(["--endpoint", &server.address("metastore")]));
}

#[test]
fn a_port_that_cannot_serve_a_command_is_named_within_seconds() {
    let server = Server::start(&["--ephemeral"]);
    let http = server.address("http");
    let error = fails(command(&["metastore", "status"]).args(["--server", &http]));
    let expected = format!("{http} is the HTTP port of Stele 0.1.0; its metastore port is off");
    assert!(error.contains(&expected), "{error}");
    // A web server that is not Stele's.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let begun = Instant::now();
    let error = fails(command(&["read", "t"]).args(["--server", &other]));
    assert!(error.contains("speaks HTTP/1.1, not gRPC"), "{error}");
    // The attempts of a client that takes it for gRPC need ten seconds.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn every_port_describes_all() {
    let server = everything();
    let grpc = server.address("grpc");
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(&grpc).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let described = get("/.well-known/stele");
    assert!(described.contains("\"this\":\"grpc\""), "{described}");
    let notice = get("/");
    assert!(notice.starts_with("HTTP/1.1 404") && notice.contains("console is at"), "{notice}");
    assert!(server.get("/.well-known/stele").1.contains("\"this\":\"http\""));
}

#[test]
fn contexts_name_servers() {
    let server = everything();
    let dir = tempfile::tempdir().unwrap();
    let with = |config: &Path, args: &[&str]| {
        let mut command = command(args);
        command.env("XDG_CONFIG_HOME", config);
        command
    };
    let run = |args: &[&str]| ok(&mut with(dir.path(), args));
    let http = server.address("http");
    run(&["context", "set", "here", "--server", &http, "--project", "p", "--instance", "i"]);
    run(&["context", "set", "there", "--server", "127.0.0.1:1"]);
    run(&["table", "create", "t", "--family", "f"]);
    assert_eq!(run(&["table", "list"]).trim(), "t", "in the context's project and instance");
    assert_eq!(run(&["table", "list", "--instance", "other"]).trim(), "");
    assert!(run(&["context", "list"]).contains("* ") || run(&["context", "list"]).contains('*'));
    assert!(run(&["context", "test"]).contains("answers, Stele"));
    run(&["context", "use", "there"]);
    assert!(fails(&mut with(dir.path(), &["table", "list"])).contains("cannot reach 127.0.0.1:1"));
    run(&["table", "list", "--context", "here"]);
    ok(with(dir.path(), &["table", "list"]).env("STELE_CONTEXT", "here"));
    // A variable is nearer than the file.
    ok(with(dir.path(), &["table", "list"]).env("STELE_SERVER", &http));
    let unknown = fails(&mut with(dir.path(), &["table", "list", "--context", "x"]));
    assert!(unknown.contains("there are here, there"), "{unknown}");
    run(&["context", "remove", "there"]);
    run(&["context", "unset"]);
    let listed = run(&["context", "list", "--json"]);
    assert!(listed.contains("\"current\":null") && listed.contains(&http), "{listed}");
}

#[test]
fn the_state_of_a_server_is_told_on_the_command_line() {
    let server = everything();
    let with = |args: &[&str]| ok(command(args).env("STELE_SERVER", server.address("grpc")));
    let status = with(&["status"]);
    assert!(status.contains("Stele 0.1.0") && status.contains("reads/s"), "{status}");
    assert!(status.contains("The data is temporary"), "{status}");
    let json: serde_json::Value = serde_json::from_str(&with(&["status", "--json"])).unwrap();
    assert_eq!(json["server"]["http"], server.address("http"));
    let doctor = with(&["doctor"]);
    assert!(doctor.contains("clock   agrees") || doctor.contains("clock   "), "{doctor}");
    assert_eq!(doctor.matches("answers, Stele").count(), 3, "{doctor}");
    let url = with(&["open", "/tables", "--url"]);
    assert_eq!(url.trim(), format!("http://{}/tables", server.address("http")));
    let nobody = command(&["doctor", "--server", "127.0.0.1:1"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(1));
}
