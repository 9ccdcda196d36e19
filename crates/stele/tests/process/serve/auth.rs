//! Who may do what, as clients see it: every method and page, tokens that come and go,
//! policies, the audit log.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BufMut as _};
use prost::Message;
use serde_json::Value;
use stele_auth::credentials::Changing;
use stele_auth::methods::{self, Access};
use stele_bigtable::proto::{admin, v2};
use tempfile::TempDir;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::support::{INSTANCE, Server, TABLE, TIMEOUT, command, refused};

const POLICY: &str = r#"
[[binding]]
role = "stele.admin"
members = ["user:admin"]

[[binding]]
role = "bigtable.reader"
members = ["group:readers"]
resource = "projects/p/instances/i"

[[binding]]
role = "bigtable.user"
members = ["user:writer"]
resource = "projects/p/instances/i/tables/t"

[[binding]]
role = "bigtable.admin"
members = ["user:tenant"]
resource = "projects/other"

[[binding]]
role = "stele.monitor"
members = ["user:monitor"]

[[binding]]
role = "metastore.reader"
members = ["user:keys"]

[[binding]]
role = "names.user"
members = ["user:ada", "user:bob"]

[groups]
readers = ["user:reader"]
"#;

/// A server that checks callers, with a token for each of some users.
struct Checked {
    dir: TempDir,
    server: Server,
    tokens: HashMap<&'static str, String>,
}

const USERS: [&str; 9] =
    ["admin", "reader", "writer", "tenant", "monitor", "keys", "ada", "bob", "nobody"];

impl Checked {
    fn start(args: &[&str]) -> Checked {
        let dir = tempfile::tempdir().unwrap();
        let mut identities = Changing::begin(dir.path()).unwrap();
        let tokens = USERS.map(|user| {
            let created = identities.create_token(&format!("user:{user}"), 0, u64::MAX);
            (user, created.unwrap().1)
        });
        identities.save().unwrap();
        std::fs::write(dir.path().join("policy.toml"), POLICY).unwrap();
        let auth_dir = dir.path().to_str().unwrap();
        let audit = dir.path().join("audit.log");
        let all = ["--ephemeral", "--auth-dir", auth_dir, "--audit-log", audit.to_str().unwrap()];
        let server = Server::start(&[&all, args].concat());
        Checked { server, tokens: tokens.into(), dir }
    }

    fn token(&self, user: &str) -> Option<&str> {
        self.tokens.get(user).map(String::as_str)
    }

    /// Calls a method with a message as a user; `""` has no token.
    async fn call<M, R>(&self, user: &str, path: &str, message: M) -> Result<R, Status>
    where
        M: Message + Default + 'static,
        R: Message + Default + 'static,
    {
        call(self.channel("grpc").await, self.token(user), path, message).await
    }

    async fn channel(&self, port: &str) -> Channel {
        let address = format!("http://{}", self.server.address(port));
        Channel::from_shared(address).unwrap().connect().await.unwrap()
    }

    fn page(&self, user: &str, port: &str, method: &str, path: &str) -> (u16, String) {
        page(&self.server.address(port), self.token(user), method, path)
    }

    fn audited(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("audit.log")).unwrap_or_default()
    }

    /// Creates the table.
    async fn create_table(&self) {
        let families = [("f".to_string(), admin::ColumnFamily::default())];
        let table = admin::Table { column_families: families.into(), ..Default::default() };
        let request = admin::CreateTableRequest {
            parent: INSTANCE.into(),
            table_id: "t".into(),
            table: Some(table),
            ..Default::default()
        };
        let _: admin::Table =
            self.call("admin", &table_admin("CreateTable"), request).await.unwrap();
    }
}

async fn call<M, R>(
    channel: Channel,
    token: Option<&str>,
    path: &str,
    message: M,
) -> Result<R, Status>
where
    M: Message + Default + 'static,
    R: Message + Default + 'static,
{
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let mut request = Request::new(message);
    if let Some(token) = token {
        let bearer = MetadataValue::try_from(format!("Bearer {token}")).unwrap();
        request.metadata_mut().insert("authorization", bearer);
    }
    let path = path.parse().unwrap();
    // Reads one message of methods that answer with several.
    let stream = client.server_streaming(request, path, ProstCodec::<M, R>::default()).await?;
    let first = stream.into_inner().message().await?;
    Ok(first.unwrap_or_default())
}

fn page(address: &str, token: Option<&str>, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let bearer = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let bearer = bearer.unwrap_or_default();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: x\r\n{bearer}Content-Length: 2\r\nConnection: \
         close\r\n\r\n{{}}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_string())
}

fn create_token(dir: &Path, user: &str) -> String {
    auth(dir, &["token", "create", &format!("user:{user}")]).trim().to_string()
}

/// Runs `stele auth` on a directory.
fn auth(dir: &Path, args: &[&str]) -> String {
    let all = [&["auth"], args, &["--auth-dir", dir.to_str().unwrap()]].concat();
    let output = command(&all).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn data(method: &str) -> String {
    format!("/google.bigtable.v2.Bigtable/{method}")
}

fn table_admin(method: &str) -> String {
    format!("/google.bigtable.admin.v2.BigtableTableAdmin/{method}")
}

fn read(table: &str) -> v2::ReadRowsRequest {
    v2::ReadRowsRequest { table_name: table.into(), rows_limit: 1, ..Default::default() }
}

fn mutation() -> v2::Mutation {
    let cell = v2::mutation::SetCell {
        family_name: "f".into(),
        column_qualifier: "q".into(),
        timestamp_micros: 1000,
        value: "v".into(),
    };
    v2::Mutation { mutation: Some(v2::mutation::Mutation::SetCell(cell)), ..Default::default() }
}

fn write(table: &str) -> v2::MutateRowRequest {
    v2::MutateRowRequest {
        table_name: table.into(),
        row_key: "r".into(),
        mutations: vec![mutation()],
        ..Default::default()
    }
}

/// Waits until a condition holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < TIMEOUT, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn without_identities_other_machines_are_refused_unless_somebody_decides() {
    let mut beyond = command(&[
        "serve",
        "--ephemeral",
        "--listen",
        "0.0.0.0",
        "--grpc-port",
        "0",
        "--http-port",
        "off",
    ]);
    let error = refused(&mut beyond);
    for option in ["--auth none", "stele auth token create", "--tls-client-ca"] {
        assert!(error.contains(option), "{error}");
    }
    let local = Server::start(&["--ephemeral"]);
    assert_eq!(page(&local.address("http"), None, "GET", "/metrics").0, 200);
    let answer = page(&local.address("http"), None, "GET", "/auth/v1/whoami").1;
    assert!(answer.contains("\"mode\":\"none\""), "{answer}");
}

#[tokio::test]
async fn t1_every_method_needs_a_credential_and_a_role() {
    let checked = Checked::start(&["--metastore-port", "0"]);
    let (grpc, metastore) = (checked.channel("grpc").await, checked.channel("metastore").await);
    let mut tried = 0;
    for (service, name) in methods::all() {
        let path = format!("/{service}/{name}");
        if matches!(methods::access(&path), Some(Access::Public | Access::Cluster)) {
            continue;
        }
        for channel in [&grpc, &metastore] {
            let code = async |token: Option<&str>| {
                let called: Result<(), Status> = call(channel.clone(), token, &path, ()).await;
                called.unwrap_err().code()
            };
            let allowed = methods::access(&path) == Some(Access::Authenticated);
            assert_eq!(code(None).await, Code::Unauthenticated, "{path}");
            assert_eq!(code(Some("stele_x")).await, Code::Unauthenticated, "{path}");
            if !allowed {
                let nobody = checked.token("nobody");
                assert_eq!(code(nobody).await, Code::PermissionDenied, "{path}");
            }
            tried += 1;
        }
    }
    assert!(tried > 300, "{tried}");
    let unknown: Result<(), Status> = checked.call("admin", "/a.B/C", ()).await;
    assert_eq!(unknown.unwrap_err().code(), Code::Unimplemented);
    let health: Result<(), Status> = checked.call("", "/grpc.health.v1.Health/Check", ()).await;
    health.unwrap();
}

#[tokio::test]
async fn a_role_holds_for_the_resource_in_the_message_and_for_no_other() {
    let checked = Checked::start(&[]);
    checked.create_table().await;
    let reads = async |user: &str, table: &str| {
        let read: Result<v2::ReadRowsResponse, _> =
            checked.call(user, &data("ReadRows"), read(table)).await;
        read.map(drop).map_err(|status| (status.code(), status.message().to_string()))
    };
    let writes = async |user: &str, table: &str| {
        let written: Result<v2::MutateRowResponse, _> =
            checked.call(user, &data("MutateRow"), write(table)).await;
        written.map(drop).map_err(|status| status.code())
    };
    let denied = Err(Code::PermissionDenied);
    assert_eq!(writes("admin", TABLE).await, Ok(()));
    assert_eq!(writes("writer", TABLE).await, Ok(()));
    assert_eq!(writes("reader", TABLE).await, denied);
    assert_eq!(reads("reader", TABLE).await, Ok(()));
    assert_eq!(reads("tenant", TABLE).await.unwrap_err().0, Code::PermissionDenied);
    // What is missing and what is forbidden look alike.
    let missing = reads("tenant", "projects/p/instances/i/tables/none").await.unwrap_err();
    let forbidden = reads("tenant", TABLE).await.unwrap_err();
    assert_eq!(missing.1.replace("tables/none", "tables/t"), forbidden.1);
    assert_eq!(missing.0, forbidden.0);
    assert_eq!(writes("writer", "projects/p/instances/i/tables/t2").await, denied);
    assert_eq!(
        reads("admin", "projects/p/instances/i/tables/none").await.unwrap_err().0,
        Code::NotFound
    );
    // Both of these reveal values.
    let check = v2::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        true_mutations: vec![mutation()],
        ..Default::default()
    };
    let checks = async |user: &str| {
        let checked: Result<v2::CheckAndMutateRowResponse, _> =
            checked.call(user, &data("CheckAndMutateRow"), check.clone()).await;
        checked.map(drop).map_err(|status| status.code())
    };
    assert_eq!(checks("writer").await, Ok(()));
    assert_eq!(checks("reader").await, denied);
    // A message that names two tables is not left to the decoder.
    let doubled = [read(TABLE).encode_to_vec(), read("projects/q").encode_to_vec()].concat();
    let doubled: Result<(), Status> =
        call_bytes(&checked, "reader", &data("ReadRows"), doubled).await;
    assert_eq!(doubled.unwrap_err().code(), Code::InvalidArgument);
    // The reserved project is for nobody.
    let reserved = "projects/stele-system/instances/names/tables/nodes";
    assert_eq!(reads("admin", reserved).await.unwrap_err().0, Code::PermissionDenied);
}

/// Calls a method with the bytes of a message.
async fn call_bytes(
    checked: &Checked,
    user: &str,
    path: &str,
    bytes: Vec<u8>,
) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(checked.channel("grpc").await);
    client.ready().await.unwrap();
    let mut request = Request::new(bytes);
    let token = checked.token(user).unwrap();
    let bearer = MetadataValue::try_from(format!("Bearer {token}")).unwrap();
    request.metadata_mut().insert("authorization", bearer);
    let path = path.parse().unwrap();
    let stream = client.server_streaming(request, path, Bytes).await?;
    stream.into_inner().message().await.map(drop)
}

/// Sends bytes as a message and ignores responses.
#[derive(Clone, Copy)]
struct Bytes;

impl tonic::codec::Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Bytes;
    type Decoder = Bytes;

    fn encoder(&mut self) -> Bytes {
        Bytes
    }

    fn decoder(&mut self) -> Bytes {
        Bytes
    }
}

impl tonic::codec::Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(
        &mut self,
        item: Vec<u8>,
        buffer: &mut tonic::codec::EncodeBuf<'_>,
    ) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Bytes {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, buffer: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<()>, Status> {
        let left = buffer.remaining();
        buffer.advance(left);
        Ok(Some(()))
    }
}

#[test]
fn pages_need_a_role_and_health_does_not() {
    let checked = Checked::start(&["--metastore-port", "0"]);
    let code =
        |user: &str, port: &str, method: &str, path: &str| checked.page(user, port, method, path).0;
    assert_eq!(code("", "http", "GET", "/health"), 200);
    assert_eq!(code("", "http", "GET", "/"), 200);
    assert_eq!(code("", "http", "GET", "/.well-known/stele"), 200);
    assert_eq!(code("", "metastore", "GET", "/.well-known/stele"), 200);
    for path in ["/metrics", "/traces/v1/tables", "/console/v1/rows", "/auth/v1/whoami"] {
        assert_eq!(code("", "http", "GET", path), 401, "{path}");
    }
    assert_eq!(code("nobody", "http", "GET", "/metrics"), 403);
    assert_eq!(code("monitor", "http", "GET", "/metrics"), 200);
    // The console shows rows and changes them.
    for path in ["/console/v1/rows", "/console/v1/row", "/console/v1/metastore/key"] {
        assert_eq!(code("monitor", "http", "POST", path), 403, "{path}");
    }
    assert_eq!(code("monitor", "http", "GET", "/traces/v1/tables"), 403);
    assert_eq!(code("admin", "http", "GET", "/traces/v1/tables"), 200);
    assert_eq!(code("monitor", "http", "PUT", "/inject"), 403);
    assert_eq!(code("admin", "http", "GET", "/unknown"), 404);
    assert_eq!(code("", "metastore", "GET", "/version"), 200);
    assert_eq!(code("", "metastore", "POST", "/v3/kv/range"), 401);
    assert_eq!(code("reader", "metastore", "POST", "/v3/kv/put"), 403);
    assert_eq!(code("keys", "metastore", "POST", "/v3/kv/put"), 403);
    assert_eq!(code("keys", "metastore", "POST", "/v3/kv/range"), 400);
    assert_eq!(code("keys", "metastore", "POST", "/v3/auth/enable"), 403);
    assert_eq!(code("", "metastore", "POST", "/v3/auth/status"), 200);
    let (_, answer) = checked.page("reader", "http", "GET", "/auth/v1/whoami");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["principal"], "user:reader");
    let can = |user: &str, query: &str| {
        let (code, answer) = checked.page(user, "http", "GET", &format!("/auth/v1/can?{query}"));
        (code, serde_json::from_str::<Value>(&answer).unwrap_or_default())
    };
    let query = format!("permission=bigtable.tables.readRows&resource={TABLE}");
    let (_, answer) = can("reader", &query);
    assert_eq!(answer["allowed"], true);
    assert!(answer["by"][0].as_str().unwrap().contains("policy file, line 7"), "{answer}");
    let of_other = format!("{query}&principal=user:reader");
    assert_eq!(can("writer", &of_other).0, 403);
    assert_eq!(can("admin", &of_other).1["allowed"], true);
}

#[tokio::test]
async fn a_token_works_as_soon_as_it_is_created_and_not_after_it_is_revoked() {
    let checked = Checked::start(&[]);
    let address = checked.server.address("http");
    let dir = checked.dir.path();
    auth(dir, &["bind", "user:late", "stele.monitor"]);
    let token = create_token(dir, "late");
    let works = async || page(&address, Some(&token), "GET", "/metrics").0 == 200;
    until("the new token works", works).await;
    let listed = auth(dir, &["token", "list"]);
    let id = token.split('_').nth(1).unwrap();
    assert!(listed.contains(id) && listed.contains("user:late") && !listed.contains(&token));
    auth(dir, &["token", "revoke", id]);
    let refused = async || page(&address, Some(&token), "GET", "/metrics").0 == 401;
    until("the revoked token is refused", refused).await;
    // A policy that cannot be read leaves the one in force.
    std::fs::write(dir.join("policy.toml"), "[[binding]]\nrole = 'x'").unwrap();
    let other = create_token(dir, "other");
    assert_eq!(checked.page("monitor", "http", "GET", "/metrics").0, 200);
    std::fs::write(dir.join("policy.toml"), POLICY.replace("user:monitor", "user:other")).unwrap();
    let moved = async || page(&address, Some(&other), "GET", "/metrics").0 == 200;
    until("the changed policy is in force", moved).await;
    assert_eq!(checked.page("monitor", "http", "GET", "/metrics").0, 403);
}

#[derive(Clone, PartialEq, Message)]
struct SetPolicy {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(message, optional, tag = "2")]
    policy: Option<Policy>,
}

#[derive(Clone, PartialEq, Message)]
struct Policy {
    #[prost(int32, tag = "1")]
    version: i32,
    #[prost(bytes = "vec", tag = "3")]
    etag: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    bindings: Vec<PolicyBinding>,
}

#[derive(Clone, PartialEq, Message)]
struct PolicyBinding {
    #[prost(string, tag = "1")]
    role: String,
    #[prost(string, repeated, tag = "2")]
    members: Vec<String>,
    #[prost(bytes = "vec", optional, tag = "3")]
    condition: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct TestPermissions {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(string, repeated, tag = "2")]
    permissions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Permissions {
    #[prost(string, repeated, tag = "1")]
    permissions: Vec<String>,
}

#[tokio::test]
async fn the_iam_policy_of_a_table_is_stored_and_decides() {
    let checked = Checked::start(&[]);
    checked.create_table().await;
    let binding = |role: &str, condition: Option<Vec<u8>>| PolicyBinding {
        role: role.into(),
        members: vec!["user:nobody".into()],
        condition,
    };
    let set = async |user: &str, etag: &[u8], binding: PolicyBinding| {
        let policy = Policy { version: 1, etag: etag.into(), bindings: vec![binding] };
        let request = SetPolicy { resource: TABLE.into(), policy: Some(policy) };
        let set: Result<Policy, Status> =
            checked.call(user, &table_admin("SetIamPolicy"), request).await;
        set.map_err(|status| status.code())
    };
    let reads = async || {
        let read: Result<v2::ReadRowsResponse, _> =
            checked.call("nobody", &data("ReadRows"), read(TABLE)).await;
        read.map(drop).map_err(|status| status.code())
    };
    assert_eq!(reads().await, Err(Code::PermissionDenied));
    let reader = || binding("roles/bigtable.reader", None);
    assert_eq!(set("reader", &[], reader()).await, Err(Code::PermissionDenied));
    let first = set("admin", &[], reader()).await.unwrap();
    assert_eq!(reads().await, Ok(()));
    let asked = TestPermissions {
        resource: TABLE.into(),
        permissions: ["bigtable.tables.readRows", "bigtable.tables.mutateRows", "no.such"]
            .map(Into::into)
            .into(),
    };
    let held: Permissions =
        checked.call("nobody", &table_admin("TestIamPermissions"), asked).await.unwrap();
    assert_eq!(held.permissions, ["bigtable.tables.readRows"]);
    let request = SetPolicy { resource: TABLE.into(), policy: None };
    let read_back: Policy =
        checked.call("admin", &table_admin("GetIamPolicy"), request).await.unwrap();
    assert_eq!(read_back, first);
    let second =
        set("admin", &first.etag[..], binding("roles/bigtable.viewer", None)).await.unwrap();
    assert_eq!(reads().await, Err(Code::PermissionDenied));
    assert_eq!(set("admin", &first.etag[..], reader()).await, Err(Code::Aborted));
    assert_eq!(
        set("admin", &second.etag[..], binding("roles/owner", None)).await,
        Err(Code::InvalidArgument)
    );
    let conditional = binding("roles/bigtable.reader", Some(vec![]));
    assert_eq!(set("admin", &second.etag[..], conditional).await, Err(Code::InvalidArgument));
}

#[tokio::test]
async fn permissions_of_names_hold_for_principals_and_cannot_be_bypassed() {
    use stele_mounttable::proto::{
        GetPermissionsRequest, GetPermissionsResponse, MountRequest, MountResponse,
    };
    let checked = Checked::start(&[]);
    let names = |method: &str| format!("/stele.mounttable.v1.Mounttable/{method}");
    let mount = |name: &str| MountRequest {
        name: name.into(),
        server: "/127.0.0.1:1".into(),
        ttl_seconds: 60,
        ..Default::default()
    };
    let mounted: Result<MountResponse, Status> =
        checked.call("ada", &names("Mount"), mount("a/b")).await;
    mounted.unwrap();
    let mounted: Result<MountResponse, Status> =
        checked.call("nobody", &names("Mount"), mount("c")).await;
    assert_eq!(mounted.unwrap_err().code(), Code::PermissionDenied);
    // Who creates a node administers it, by the blessing of its principal.
    let request = GetPermissionsRequest { name: "a".into() };
    let found: Result<GetPermissionsResponse, Status> =
        checked.call("ada", &names("GetPermissions"), request).await;
    let shown = format!("{:?}", found.unwrap());
    assert!(shown.contains("user:ada") || shown.contains("..."), "{shown}");
    // The rows of names are out of reach, for administrators too.
    let rows = "projects/stele-system/instances/names/tables/mounttable";
    let read: Result<v2::ReadRowsResponse, Status> =
        checked.call("admin", &data("ReadRows"), read(rows)).await;
    assert_eq!(read.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn t11_changes_and_refusals_are_audited_without_secrets() {
    let checked = Checked::start(&[]);
    checked.create_table().await;
    let read: Result<v2::ReadRowsResponse, Status> =
        checked.call("tenant", &data("ReadRows"), read(TABLE)).await;
    assert!(read.is_err());
    let bad: Result<(), Status> =
        call(checked.channel("grpc").await, Some("stele_secret"), &data("ReadRows"), ()).await;
    assert!(bad.is_err());
    until("three records are written", async || checked.audited().lines().count() >= 3).await;
    let text = checked.audited();
    let records: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let created = records.iter().find(|one| one["decision"] == "allowed").unwrap();
    assert_eq!(created["rpc"], table_admin("CreateTable"));
    assert_eq!(
        (&created["principal"], &created["resource"]),
        (&"user:admin".into(), &INSTANCE.into())
    );
    assert_eq!((&created["code"], &created["auth"]), (&0.into(), &"token".into()));
    let denied = records.iter().find(|one| one["principal"] == "user:tenant").unwrap();
    assert_eq!((&denied["resource"], &denied["decision"]), (&TABLE.into(), &"denied".into()));
    assert!(records.iter().any(|one| one["reason"] == "a damaged token"), "{text}");
    for token in checked.tokens.values() {
        let secret = token.split('_').nth(2).unwrap();
        assert!(!text.contains(secret) && !text.contains("stele_secret"));
    }
}
