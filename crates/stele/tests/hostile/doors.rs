//! Attacks on access control: paths, hosts, origins, reserved projects, tokens.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use stele_mounttable::Mount;
use stele_mounttable::client::{Credentials, Namespace, Options};
use stele_mounttable::node::Flags;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::support::{Server, TIMEOUT, command, ping, until};

/// Calls a method with a message whose first field is a text.
async fn call(server: &Server, path: &str, first_field: &str) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(server.channel().await);
    grpc.ready().await.unwrap();
    let codec = ProstCodec::<String, ()>::default();
    let request = Request::new(first_field.to_string());
    grpc.unary(request, path.parse().unwrap(), codec).await.map(drop)
}

/// Sends one HTTP/1.1 request. Returns the status and the whole response.
fn http(address: &str, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let length = body.len();
    write!(stream, "{head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{answer}")), answer)
}

#[tokio::test]
async fn paths_that_only_resemble_a_method_reach_nothing() {
    let server = Server::start(&["--ephemeral", "--metastore-port", "0"]);
    for path in [
        "/google.bigtable.v2.Bigtable/x/PingAndWarm",
        "/google.bigtable.v2.Bigtable//PingAndWarm",
        "/google.bigtable.v2.Bigtable/PingAndWarm?x=1",
        "/google.bigtable.v2.Bigtable/PingAndWarm/",
        "/google.bigtable.v2.Bigtable/../google.bigtable.v2.Bigtable/PingAndWarm",
        "/google.bigtable.v2.Bigtable%2FPingAndWarm",
        "/google.bigtable.v2.Bigtable/Ping%41ndWarm",
        "/google.bigtable.v2.bigtable/PingAndWarm",
        "//PingAndWarm",
        "/PingAndWarm",
        "/",
    ] {
        let refused = call(&server, path, &ping().name).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented, "{path}");
    }
    call(&server, "/google.bigtable.v2.Bigtable/PingAndWarm", &ping().name).await.unwrap();
}

#[test]
fn a_method_answers_no_request_that_a_web_page_could_send() {
    let server = Server::start(&["--ephemeral", "--metastore-port", "0"]);
    let at = server.address("metastore");
    for path in ["/stele.metastore.v1.Metastore/Read", "/etcdserverpb.KV/Put"] {
        for (kind, expected) in [
            ("Content-Type: text/plain", 415),
            ("Content-Type: application/x-www-form-urlencoded", 415),
            ("Content-Type: application/grpc-web+proto", 415),
            ("X-None: x", 415),
            // Without HTTP/2 it is not gRPC either.
            ("Content-Type: application/grpc", 505),
        ] {
            let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{kind}");
            let (status, answer) = http(&at, &head, "\0\0\0\0\0");
            assert_eq!(status, expected, "{path} {kind}: {answer}");
        }
    }
}

#[test]
fn a_host_name_that_resolves_to_this_server_does_not_make_it_theirs() {
    let server = Server::start(&[
        "--ephemeral",
        "--metastore-port",
        "0",
        "--allowed-host",
        "db.example.com",
    ]);
    let put = r#"{"key":"a2V5","value":"dg=="}"#;
    for (port, request, body, fine) in [
        ("metastore", "POST /v3/kv/put", put, 200),
        ("metastore", "GET /metrics", "", 200),
        ("http", "GET /", "", 200),
        ("http", "POST /traces/v1/tables", "", 400),
    ] {
        let at = server.address(port);
        for host in ["evil.example", "127.0.0.1.evil.example:2379", "localhost@evil.example"] {
            let (status, answer) = http(&at, &format!("{request} HTTP/1.1\r\nHost: {host}"), body);
            assert_eq!(status, 421, "{request} {host}: {answer}");
            assert!(answer.contains("--allowed-host"), "{answer}");
        }
        for host in ["localhost", &at, "db.example.com", "stele"] {
            let (status, answer) = http(&at, &format!("{request} HTTP/1.1\r\nHost: {host}"), body);
            assert_eq!(status, fine, "{request} {host}: {answer}");
        }
    }
}

#[test]
fn a_web_page_of_another_site_cannot_use_the_server() {
    let listed = "https://listed.example";
    let server = Server::start(&["--ephemeral", "--metastore-port", "0", "--cors-origin", listed]);
    let at = server.address("metastore");
    let own = format!("http://{at}");
    let put = |value: &str, headers: &str| {
        let body = format!(r#"{{"key":"a2V5","value":"{value}"}}"#);
        http(&at, &format!("POST /v3/kv/put HTTP/1.1\r\nHost: {at}{headers}"), &body)
    };
    for headers in [
        "\r\nOrigin: https://evil.example\r\nContent-Type: text/plain",
        "\r\nOrigin: null\r\nContent-Type: text/plain",
        "\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document",
        "\r\nSec-Fetch-Site: same-site",
        "\r\nOrigin: https://listed.example.evil.example",
    ] {
        let (status, answer) = put("ZXZpbA==", headers);
        assert_eq!(status, 403, "{headers}: {answer}");
        assert!(!answer.to_lowercase().contains("access-control"), "{answer}");
    }
    // curl -d, etcd's JSON clients, the server's own pages, and a page of an allowed
    // origin.
    let kinds =
        ["", "\r\nContent-Type: application/x-www-form-urlencoded", "\r\nContent-Type: text/plain"];
    for kind in kinds {
        let (status, answer) = put("dg==", kind);
        assert_eq!(status, 200, "{answer}");
        assert!(!answer.to_lowercase().contains("access-control"), "{answer}");
    }
    assert_eq!(put("dg==", &format!("\r\nOrigin: {own}\r\nSec-Fetch-Site: same-origin")).0, 200);
    let (status, answer) =
        put("dg==", &format!("\r\nOrigin: {listed}\r\nSec-Fetch-Site: cross-site"));
    assert_eq!(status, 200, "{answer}");
    let answer = answer.to_lowercase();
    assert!(answer.contains(&format!("access-control-allow-origin: {listed}\r\n")), "{answer}");
    assert!(answer.contains("vary: origin") && !answer.contains("credentials"), "{answer}");
    // The preflight request of a browser.
    let asks = |origin: &str| {
        http(&at, &format!("OPTIONS /v3/kv/put HTTP/1.1\r\nHost: {at}\r\nOrigin: {origin}"), "")
    };
    assert_eq!(asks("https://evil.example").0, 403);
    assert_eq!(asks(listed).0, 204);
    let found =
        http(&at, &format!("POST /v3/kv/range HTTP/1.1\r\nHost: {at}"), r#"{"key":"a2V5"}"#);
    assert!(
        found.1.contains("\"value\":\"dg==\""),
        "nothing of the other site was written: {found:?}"
    );
    // A link to the page works from any site.
    let http_at = server.address("http");
    let link = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document";
    assert_eq!(http(&http_at, &format!("GET / HTTP/1.1\r\nHost: {http_at}\r\n{link}"), "").0, 200);
}

/// All methods of the services that name Bigtable resources.
const DATA: &str = "google.bigtable.v2.Bigtable";
const TABLES: &str = "google.bigtable.admin.v2.BigtableTableAdmin";
const INSTANCES: &str = "google.bigtable.admin.v2.BigtableInstanceAdmin";
const TABLETS: &str = "stele.tables.v1.TabletAdmin";
const METHODS: [(&str, &[&str]); 4] = [
    (
        DATA,
        &[
            "ReadRows",
            "SampleRowKeys",
            "MutateRow",
            "MutateRows",
            "CheckAndMutateRow",
            "PingAndWarm",
            "ReadModifyWriteRow",
            "GenerateInitialChangeStreamPartitions",
            "ReadChangeStream",
            "PrepareQuery",
            "ExecuteQuery",
        ],
    ),
    (
        TABLES,
        &[
            "CreateTable",
            "CreateTableFromSnapshot",
            "ListTables",
            "GetTable",
            "UpdateTable",
            "DeleteTable",
            "UndeleteTable",
            "CreateAuthorizedView",
            "ListAuthorizedViews",
            "GetAuthorizedView",
            "UpdateAuthorizedView",
            "DeleteAuthorizedView",
            "ModifyColumnFamilies",
            "DropRowRange",
            "GenerateConsistencyToken",
            "CheckConsistency",
            "SnapshotTable",
            "GetSnapshot",
            "ListSnapshots",
            "DeleteSnapshot",
            "CreateBackup",
            "GetBackup",
            "UpdateBackup",
            "DeleteBackup",
            "ListBackups",
            "RestoreTable",
            "CopyBackup",
            "GetIamPolicy",
            "SetIamPolicy",
            "TestIamPermissions",
            "CreateSchemaBundle",
            "UpdateSchemaBundle",
            "GetSchemaBundle",
            "ListSchemaBundles",
            "DeleteSchemaBundle",
        ],
    ),
    (
        INSTANCES,
        &[
            "CreateInstance",
            "GetInstance",
            "ListInstances",
            "UpdateInstance",
            "PartialUpdateInstance",
            "DeleteInstance",
            "CreateCluster",
            "GetCluster",
            "ListClusters",
            "UpdateCluster",
            "PartialUpdateCluster",
            "DeleteCluster",
            "CreateAppProfile",
            "GetAppProfile",
            "ListAppProfiles",
            "UpdateAppProfile",
            "DeleteAppProfile",
            "GetIamPolicy",
            "SetIamPolicy",
            "TestIamPermissions",
            "ListHotTablets",
            "CreateLogicalView",
            "GetLogicalView",
            "ListLogicalViews",
            "UpdateLogicalView",
            "DeleteLogicalView",
            "CreateMaterializedView",
            "GetMaterializedView",
            "ListMaterializedViews",
            "UpdateMaterializedView",
            "DeleteMaterializedView",
        ],
    ),
    (
        TABLETS,
        &[
            "ListTablets",
            "SplitTablet",
            "JoinTablets",
            "CompactTable",
            "LoadTablets",
            "UnloadTablets",
            "VerifyTable",
            "DumpConfig",
        ],
    ),
];

#[tokio::test]
async fn no_method_reaches_the_reserved_project_over_the_network() {
    let server = Server::start(&["--ephemeral"]);
    let mounted = command(&["name", "mount", "a/b", "127.0.0.1:1"])
        .env("STELE_NAMES", server.address("grpc"))
        .status()
        .unwrap();
    assert!(mounted.success());
    let names = [
        "projects/stele-system",
        "projects/stele-system/instances/-",
        "projects/stele-system/instances/names",
        "projects/stele-system/instances/names/tables/mounttable",
        "projects/stele-system/instances/names/clusters/c",
        "projects/stele-system/instances/names/appProfiles/default",
        "projects/stele-system/instances/no-such/tables/t",
    ];
    let mut denied = 0;
    for (service, methods) in METHODS {
        for method in methods {
            let path = format!("/{service}/{method}");
            for name in names {
                let refused = call(&server, &path, name).await.unwrap_err();
                match refused.code() {
                    Code::PermissionDenied => denied += 1,
                    // In these methods the first field is a message, so the text is
                    // invalid.
                    Code::Unimplemented => {}
                    Code::InvalidArgument if method.contains("Update") => {}
                    code => panic!("{path} {name}: {code:?} {}", refused.message()),
                }
            }
        }
    }
    // Here the name is in a message in the first field.
    let (backup, view) =
        (format!("{}/backups/b", names[4]), format!("{}/authorizedViews/v", names[3]));
    for (service, method, name) in [
        (TABLES, "UpdateTable", names[3]),
        (TABLES, "UpdateBackup", &backup),
        (TABLES, "UpdateAuthorizedView", &view),
        (INSTANCES, "PartialUpdateInstance", names[2]),
        (INSTANCES, "PartialUpdateCluster", names[4]),
        (INSTANCES, "UpdateAppProfile", names[5]),
    ] {
        let nested = format!("\n{}{name}", char::from(u8::try_from(name.len()).unwrap()));
        let refused = call(&server, &format!("/{service}/{method}"), &nested).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{method}: {}", refused.message());
    }
    let name = names[3];
    let operation = format!("operations/{name}/operations/x");
    let path = "/google.longrunning.Operations/GetOperation";
    assert_eq!(call(&server, path, &operation).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(denied % names.len(), 0, "a method looks at the name before it refuses");
    assert!(denied >= 21 * names.len(), "{denied}");
    let found = command(&["name", "resolve", "a/b"])
        .env("STELE_NAMES", server.address("grpc"))
        .output()
        .unwrap();
    assert!(found.status.success(), "names themselves still reach their rows");
}

/// What a server mounted by eve has seen: paths, and `authorization` if present.
type Seen = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// Starts a server that accepts every call, records its headers and implements no method.
async fn evil() -> (SocketAddr, Seen) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Seen::default();
    let noted = seen.clone();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let noted = noted.clone();
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(connection).await else { return };
                while let Some(Ok((request, mut answer))) = connection.accept().await {
                    let token = request.headers().get("authorization");
                    let token = token.map(|token| token.to_str().unwrap().to_string());
                    noted.lock().unwrap().push((request.uri().path().to_string(), token));
                    let response = http::Response::builder()
                        .header("content-type", "application/grpc")
                        .header("grpc-status", "5")
                        .body(())
                        .unwrap();
                    answer.send_response(response, true).unwrap();
                }
            });
        }
    });
    (address, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_somebody_mounted_is_shown_no_token() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    std::fs::write(&tokens, "s3cret ops\n").unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&tokens, private).unwrap();
    let server = Server::start(&["--ephemeral", "--names-tokens", tokens.to_str().unwrap()]);
    let (evil, seen) = evil().await;
    let root = format!("/{}", server.address("grpc"));
    let eve = Namespace::new([root.clone()], Options::default()).unwrap();
    let flags = Flags { mt: true, leaf: false };
    let mount = Mount { flags, ..Mount::new(format!("/{evil}"), 0) };
    eve.mount("users/eve", &mount).await.unwrap();

    let credentials = Credentials { token: Some("s3cret".into()), ..Credentials::default() };
    let options = Options { credentials, cached: false, ..Options::default() };
    let ops = Arc::new(Namespace::new([root], options).unwrap());
    // The root already knows the token, so it is sent there.
    ops.mount("ops/own", &Mount::new("127.0.0.1:1", 0)).await.unwrap();
    let _ = ops.resolve("users/eve/phone").await;
    let _ = ops.mount("users/eve/phone", &Mount::new("127.0.0.1:1", 0)).await;
    let _ = ops.unmount("users/eve/phone", "127.0.0.1:1").await;
    let _ = ops.permissions("users/eve/phone").await;
    let _ = ops.delete("users/eve/phone", true).await;
    let _ = ops.watch("users/eve/phone", Vec::new()).await;
    let (out, mut found) = tokio::sync::mpsc::channel(64);
    let globbing = tokio::spawn(async move { ops.glob("users/...", &out).await });
    while found.recv().await.is_some() {}
    globbing.await.unwrap().unwrap();
    let watching =
        |seen: &Seen| seen.lock().unwrap().iter().any(|(path, _)| path.ends_with("/Watch"));
    until("the watch was begun", || watching(&seen)).await;
    let seen = seen.lock().unwrap().clone();
    for method in ["ResolveStep", "Glob", "Watch", "Mount", "Unmount", "Delete", "GetPermissions"] {
        assert!(seen.iter().any(|(path, _)| path.ends_with(method)), "{method}: {seen:?}");
    }
    assert!(seen.iter().all(|(_, token)| token.is_none()), "{seen:?}");
}

#[test]
fn credentials_are_not_sent_in_plain_text_to_another_host() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "s3cret\n").unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&token, private).unwrap();
    let token = token.to_str().unwrap();
    // These addresses do not answer: the rejection comes before anything is sent.
    for args in [
        ["name", "ls", "--root", "192.0.2.1:1", "--token-file", token],
        ["name", "ls", "--root", "localhost:1", "--token-file", token],
        ["table", "list", "--endpoint", "192.0.2.1:1", "--creds", token],
    ] {
        let printed = command(&args).output().unwrap();
        let printed = String::from_utf8(printed.stderr).unwrap();
        assert!(
            printed.contains("plain text") && printed.contains("--insecure-token"),
            "{printed}"
        );
    }
    let allowed =
        ["name", "ls", "--root", "localhost:1", "--token-file", token, "--insecure-token"];
    let printed = command(&allowed).output().unwrap();
    let printed = String::from_utf8(printed.stderr).unwrap();
    assert!(printed.contains("cannot reach"), "{printed}");
}
