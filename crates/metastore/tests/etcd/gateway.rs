//! The etcd API over plain HTTP: JSON, and the pages for probes.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::etcd::peer::{Peer, TIMEOUT};

/// Sends one request over an HTTP/1 connection.
pub async fn send(peer: &Peer, verb: &str, path: &str, body: &str) -> http::Response<Incoming> {
    send_as(peer, verb, path, body, "").await
}

async fn send_as(
    peer: &Peer,
    verb: &str,
    path: &str,
    body: &str,
    token: &str,
) -> http::Response<Incoming> {
    let connection = TcpStream::connect(peer.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(connection)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::builder()
        .method(verb)
        .uri(path)
        .header("host", "metastore")
        .header("authorization", token)
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .unwrap();
    tokio::time::timeout(TIMEOUT, sender.send_request(request)).await.unwrap().unwrap()
}

pub async fn text(response: http::Response<Incoming>) -> String {
    let body = tokio::time::timeout(TIMEOUT, response.into_body().collect()).await.unwrap();
    String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap()
}

pub async fn post(peer: &Peer, path: &str, body: Value) -> (u16, Value) {
    let response = send(peer, "POST", path, &body.to_string()).await;
    let status = response.status().as_u16();
    (status, serde_json::from_str(&text(response).await).unwrap())
}

/// Posts with a token.
pub async fn post_as(peer: &Peer, path: &str, body: Value, token: &str) -> (u16, Value) {
    let response = send_as(peer, "POST", path, &body.to_string(), token).await;
    let status = response.status().as_u16();
    (status, serde_json::from_str(&text(response).await).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_written_and_read_as_json() {
    let peer = Peer::ours().await;
    let (status, put) = post(&peer, "/v3/kv/put", json!({ "key": "Zm9v", "value": "YmFy" })).await;
    assert_eq!((status, &put["header"]["revision"]), (200, &json!("2")));
    let (_, found) = post(&peer, "/v3beta/kv/range", json!({ "key": "Zm9v" })).await;
    let kv = json!({
        "key": "Zm9v", "create_revision": "2", "mod_revision": "2", "version": "1", "value": "YmFy"
    });
    assert_eq!((&found["kvs"], &found["count"]), (&json!([kv]), &json!("1")));
    let txn = json!({
        "compare": [{ "key": "Zm9v", "target": "VALUE", "value": "YmFy", "result": "NOT_EQUAL" }],
        "success": [{ "requestPut": { "key": "Zm9v", "value": "" } }],
        "failure": [{ "request_range": { "key": "Zm9v", "keys_only": true } }],
    });
    let (_, done) = post(&peer, "/v3/kv/txn", txn).await;
    assert!(done.get("succeeded").is_none(), "false is left out: {done}");
    assert_eq!(done["responses"][0]["response_range"]["kvs"][0]["version"], "1");
    let (_, lease) = post(&peer, "/v3/lease/grant", json!({ "TTL": 60, "ID": 7 })).await;
    assert_eq!((&lease["ID"], &lease["TTL"]), (&json!("7"), &json!("60")));
    let (_, left) = post(&peer, "/v3/kv/lease/timetolive", json!({ "ID": "7" })).await;
    assert_eq!(left["grantedTTL"], "60");
    let (_, members) = post(&peer, "/v3/cluster/member/list", json!({})).await;
    assert!(members["members"][0]["ID"].is_string(), "{members}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_has_a_status_a_code_and_a_text() {
    let peer = Peer::ours().await;
    let (status, refused) = post(&peer, "/v3/kv/put", json!({ "value": "YmFy" })).await;
    assert_eq!(status, 400);
    assert_eq!(refused, json!({ "code": 3, "message": "etcdserver: key is not provided" }));
    let (status, refused) = post(&peer, "/v3/lease/revoke", json!({ "ID": 5 })).await;
    let message = "etcdserver: requested lease not found";
    assert_eq!((status, refused), (404, json!({ "code": 5, "message": message })));
    let (status, _) = post(&peer, "/v3/kv/put", json!({ "key": "not base64!" })).await;
    assert_eq!(status, 400);
    let (status, _) = post(&peer, "/v3/no/such/thing", json!({})).await;
    assert_eq!(status, 404);
    let (status, refused) = post(&peer, "/v3/cluster/member/add", json!({})).await;
    let message = "etcdserver: given member URLs are invalid";
    assert_eq!((status, refused), (400, json!({ "code": 3, "message": message })));
    assert_eq!(send(&peer, "GET", "/v3/kv/range", "").await.status(), 501);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_and_renewals_are_objects_line_by_line() {
    let peer = Peer::ours().await;
    post(&peer, "/v3/lease/grant", json!({ "TTL": 60, "ID": 7 })).await;
    let renewed = send(&peer, "POST", "/v3/lease/keepalive", r#"{"ID":7} {"ID":"8"}"#).await;
    let lines = text(renewed).await;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["result"]["TTL"], lines.len()), (&json!("60"), 2));
    assert!(lines[1]["result"].get("TTL").is_none(), "a lease that is not there has no time");

    let watch = r#"{"create_request":{"key":"Zm9v","start_revision":"1"}}"#;
    let mut watching = send(&peer, "POST", "/v3/watch", watch).await.into_body();
    post(&peer, "/v3/kv/put", json!({ "key": "Zm9v", "value": "YmFy" })).await;
    let mut received = String::new();
    while received.lines().count() < 2 {
        let frame = tokio::time::timeout(TIMEOUT, watching.frame()).await.unwrap();
        let frame = frame.unwrap().unwrap();
        received += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
    }
    let lines: Vec<Value> =
        received.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["result"]["created"], true);
    assert_eq!(lines[1]["result"]["events"][0]["kv"]["value"], "YmFy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_report_the_health_of_the_member() {
    let peer = Peer::ours().await;
    let get = async |path: &str| text(send(&peer, "GET", path, "").await).await;
    assert_eq!(get("/health").await, r#"{"health":"true","reason":""}"#);
    assert_eq!(get("/livez").await, "ok\n");
    assert!(get("/readyz?verbose").await.contains("[+]linearizable_read ok\n"));
    let version: Value = serde_json::from_str(&get("/version").await).unwrap();
    let numbers = version["etcdserver"].as_str().unwrap().split('.').map(str::parse::<u32>);
    assert_eq!(numbers.filter(Result::is_ok).count(), 3, "{version}");
    assert!(get("/metrics").await.contains("\netcd_server_has_leader 1\n"));
    assert_eq!(send(&peer, "POST", "/health", "").await.status(), 405);
    assert_eq!(send(&peer, "GET", "/", "").await.status(), 404);

    let (_, status) = post(&peer, "/v3/maintenance/status", json!({})).await;
    let raise = json!({ "action": "ACTIVATE", "memberID": status["leader"], "alarm": "CORRUPT" });
    post(&peer, "/v3/maintenance/alarm", raise).await;
    let ill = send(&peer, "GET", "/health", "").await;
    assert_eq!(ill.status(), 503);
    assert!(text(ill).await.contains("ALARM CORRUPT"));
    assert!(get("/health?exclude=CORRUPT").await.contains("RANGE ERROR"));
    assert!(get("/readyz").await.contains("[-]data_corruption failed"));
}
