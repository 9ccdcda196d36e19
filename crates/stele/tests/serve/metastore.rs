//! The metastore's port of a server: etcd's API, kept over restarts.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::server::{PATIENCE, Server, command, refused};

/// Posts a message to the JSON gateway.
fn post(server: &Server, path: &str, body: &Value) -> Value {
    let mut stream = TcpStream::connect(server.address("metastore")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
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
        let server = Server::of(dir.path(), &["--metastore-port", "0"]);
        let found = post(&server, "/v3/kv/range", &json!({ "key": "a2V5" }));
        let version = found["kvs"][0]["version"].as_str().map(str::to_owned);
        assert_eq!(version, (life > 0).then(|| life.to_string()));
        let put = post(&server, "/v3/kv/put", &json!({ "key": "a2V5", "value": "dg==" }));
        assert_eq!(put["header"]["revision"], (life + 2).to_string());
        let id = put["header"]["cluster_id"].clone();
        assert_eq!(cluster.get_or_insert(id.clone()), &id, "the cluster stays the same");
        // Every other life ends at once.
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
    let told = refused(&mut command(&args("--metastore-cluster=cafe")));
    assert!(told.contains("c0ffee") && told.contains("cafe") && told.contains(data), "{told}");
    let again = Server::spawn(command(&args("--metastore-cluster=c0ffee")));
    assert!(again.terminate().status.success());
}

#[test]
fn a_server_ends_in_order_while_somebody_watches() {
    let server =
        Server::start(&["--ephemeral", "--metastore-port", "0", "--shutdown-grace", "60s"]);
    let mut stream = TcpStream::connect(server.address("metastore")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = r#"{"create_request":{"key":"a2V5"}}"#;
    let length = body.len();
    write!(stream, "POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    let mut told = Vec::new();
    while !told.ends_with(b"}\n\r\n") {
        let mut piece = [0; 1024];
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&told));
        told.extend_from_slice(&piece[..read]);
    }
    assert!(String::from_utf8(told).unwrap().contains("\"created\":true"));
    assert!(server.terminate().status.success());
}
