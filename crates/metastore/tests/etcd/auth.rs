//! Users, roles and permissions over the wire: what a comparison with etcd does
//! not show.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use stele_engine::world::World;
use stele_metastore::client::Client;
use stele_metastore::etcd::proto::permission::Type;
use stele_metastore::etcd::proto::watch_request::RequestUnion;
use stele_metastore::etcd::proto::*;
use stele_metastore::etcd::{Options, proto};
use stele_metastore::node::NodeSettings;
use stele_metastore::snapshot::restore;
use stele_metastore::{Node, auth};
use tonic::{Code, Status};

use crate::etcd::gateway;
use crate::etcd::peer::Peer;

pub fn options() -> Options {
    let password_rounds = NonZeroU32::new(5).unwrap();
    Options { password_rounds, ..Options::default() }
}

/// Calls a method of the Auth service whose answer has only a header.
pub async fn change<Q: Message + 'static>(
    peer: &Peer,
    path: &'static str,
    request: Q,
) -> Result<AuthEnableResponse, Status> {
    peer.call(path, request).await
}

pub fn user_add(name: &str, password: &str) -> AuthUserAddRequest {
    AuthUserAddRequest { name: name.into(), password: password.into(), ..Default::default() }
}

pub fn permission(role: &str, kind: Type, key: &str, end: &str) -> AuthRoleGrantPermissionRequest {
    let (key, range_end) = (Bytes::from(key.to_owned()), Bytes::from(end.to_owned()));
    let perm = Some(Permission { perm_type: kind.into(), key, range_end });
    AuthRoleGrantPermissionRequest { name: role.into(), perm }
}

async fn login(peer: &Peer, name: &str, password: &str) -> Result<Peer, Status> {
    let request = AuthenticateRequest { name: name.into(), password: password.into() };
    let answer: AuthenticateResponse =
        peer.call("/etcdserverpb.Auth/Authenticate", request).await?;
    Ok(peer.with_token(&answer.token))
}

/// Adds root, and Ada, who may read a..c and write b..d. Enables the checks.
async fn prepare(peer: &Peer) -> (Peer, Peer) {
    for (name, password) in [("root", "toor"), ("ada", "secret")] {
        change(peer, "/etcdserverpb.Auth/UserAdd", user_add(name, password)).await.unwrap();
    }
    let role = AuthRoleAddRequest { name: "ab".into() };
    change(peer, "/etcdserverpb.Auth/RoleAdd", role).await.unwrap();
    for (user, role) in [("root", "root"), ("ada", "ab")] {
        let request = AuthUserGrantRoleRequest { user: user.into(), role: role.into() };
        change(peer, "/etcdserverpb.Auth/UserGrantRole", request).await.unwrap();
    }
    for (kind, key, end) in [(Type::Read, "a", "c"), (Type::Write, "b", "d")] {
        let request = permission("ab", kind, key, end);
        change(peer, "/etcdserverpb.Auth/RoleGrantPermission", request).await.unwrap();
    }
    change(peer, "/etcdserverpb.Auth/AuthEnable", AuthEnableRequest {}).await.unwrap();
    (login(peer, "root", "toor").await.unwrap(), login(peer, "ada", "secret").await.unwrap())
}

async fn put(peer: &Peer, key: &str, lease: i64) -> Result<PutResponse, Status> {
    let request =
        PutRequest { key: key.to_owned().into(), value: "v".into(), lease, ..Default::default() };
    peer.call("/etcdserverpb.KV/Put", request).await
}

async fn get(peer: &Peer, key: &str, end: &str) -> Result<RangeResponse, Status> {
    let (key, range_end) = (Bytes::from(key.to_owned()), Bytes::from(end.to_owned()));
    let request = RangeRequest { key, range_end, ..Default::default() };
    peer.call("/etcdserverpb.KV/Range", request).await
}

#[track_caller]
fn denied<T: std::fmt::Debug>(answer: Result<T, Status>) {
    let status = answer.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::PermissionDenied, "etcdserver: permission denied")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_auth_clients_are_told_that_they_need_no_token() {
    let peer = Peer::with(options()).await;
    let refused = login(&peer, "root", "toor").await.err().unwrap();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::FailedPrecondition, "etcdserver: authentication is not enabled")
    );
    let status: AuthStatusResponse =
        peer.call("/etcdserverpb.Auth/AuthStatus", AuthStatusRequest {}).await.unwrap();
    assert_eq!((status.enabled, status.auth_revision), (false, 1));
    put(&peer.with_token("any"), "k", 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_do_what_their_roles_permit_and_nothing_else() {
    let peer = Peer::with(options()).await;
    let (root, ada) = prepare(&peer).await;
    put(&ada, "b", 0).await.unwrap();
    denied(put(&ada, "a", 0).await);
    get(&ada, "a", "c").await.unwrap();
    denied(get(&ada, "a", "d").await);
    put(&root, "a", 0).await.unwrap();
    // The request is refused before the token is looked at.
    let refused = get(&peer, "a", "").await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::InvalidArgument, "etcdserver: user name is empty")
    );
    let refused = get(&peer.with_token("x.1"), "a", "").await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::Unauthenticated, "etcdserver: invalid auth token")
    );
    // Nested transactions, both branches and compares are checked.
    let forbidden = RequestOp {
        request: Some(request_op::Request::RequestPut(PutRequest {
            key: "z".into(),
            ..Default::default()
        })),
    };
    let inner = TxnRequest { failure: vec![forbidden], ..Default::default() };
    let nested = RequestOp { request: Some(request_op::Request::RequestTxn(inner)) };
    let txn = TxnRequest { success: vec![nested], ..Default::default() };
    denied(ada.call::<_, TxnResponse>("/etcdserverpb.KV/Txn", txn.clone()).await);
    root.call::<_, TxnResponse>("/etcdserverpb.KV/Txn", txn).await.unwrap();
    // Management and maintenance.
    let compact = CompactionRequest { revision: 2, physical: false };
    denied(ada.call::<_, CompactionResponse>("/etcdserverpb.KV/Compact", compact).await);
    let hash = HashKvRequest { revision: 0 };
    denied(ada.call::<_, HashKvResponse>("/etcdserverpb.Maintenance/HashKV", hash).await);
    denied(
        ada.ask::<_, SnapshotResponse>("/etcdserverpb.Maintenance/Snapshot", SnapshotRequest {})
            .await,
    );
    let alarm = AlarmRequest { action: 1, member_id: 1, alarm: 1 };
    denied(ada.call::<_, AlarmResponse>("/etcdserverpb.Maintenance/Alarm", alarm).await);
    let alarm = AlarmRequest { action: 2, ..alarm };
    denied(ada.call::<_, AlarmResponse>("/etcdserverpb.Maintenance/Alarm", alarm).await);
    denied(change(&ada, "/etcdserverpb.Auth/UserAdd", user_add("eve", "e")).await);
    denied(change(&ada, "/etcdserverpb.Auth/AuthDisable", AuthDisableRequest {}).await);
    let own = AuthUserGetRequest { name: "ada".into() };
    let own: AuthUserGetResponse = ada.call("/etcdserverpb.Auth/UserGet", own).await.unwrap();
    assert_eq!(own.roles, ["ab"]);
    let other = AuthUserGetRequest { name: "root".into() };
    denied(ada.call::<_, AuthUserGetResponse>("/etcdserverpb.Auth/UserGet", other).await);
    let status = StatusRequest {};
    ada.call::<_, StatusResponse>("/etcdserverpb.Maintenance/Status", status).await.unwrap();
    let refused = peer.call::<_, StatusResponse>("/etcdserverpb.Maintenance/Status", status).await;
    assert_eq!(refused.unwrap_err().message(), "etcdserver: user name is empty");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_used_only_by_those_who_may_write_all_of_its_keys() {
    let peer = Peer::with(options()).await;
    let (root, ada) = prepare(&peer).await;
    let grant = LeaseGrantRequest { id: 7, ttl: 600 };
    ada.call::<_, LeaseGrantResponse>("/etcdserverpb.Lease/LeaseGrant", grant).await.unwrap();
    put(&ada, "b", 7).await.unwrap();
    put(&root, "z", 7).await.unwrap();
    denied(put(&ada, "c", 7).await);
    let revoke = LeaseRevokeRequest { id: 7 };
    denied(ada.call::<_, LeaseRevokeResponse>("/etcdserverpb.Lease/LeaseRevoke", revoke).await);
    let shown = LeaseTimeToLiveRequest { id: 7, keys: true };
    let path = "/etcdserverpb.Lease/LeaseTimeToLive";
    denied(ada.call::<_, LeaseTimeToLiveResponse>(path, shown).await);
    let hidden = LeaseTimeToLiveRequest { id: 7, keys: false };
    ada.call::<_, LeaseTimeToLiveResponse>(path, hidden).await.unwrap();
    let renew = tokio_stream::once(LeaseKeepAliveRequest { id: 7 });
    let mut renewed =
        ada.stream::<_, LeaseKeepAliveResponse>("/etcdserverpb.Lease/LeaseKeepAlive", renew).await;
    denied(renewed.message().await);
    root.call::<_, LeaseRevokeResponse>("/etcdserverpb.Lease/LeaseRevoke", revoke).await.unwrap();
}

async fn watch(peer: &Peer, key: &'static str, end: &'static str) -> WatchResponse {
    let create =
        WatchCreateRequest { key: key.into(), range_end: end.into(), ..Default::default() };
    let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let requests = tokio_stream::once(request);
    let mut answers = peer.stream("/etcdserverpb.Watch/Watch", requests).await;
    answers.message().await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_needs_read_permission_on_its_whole_range() {
    let peer = Peer::with(options()).await;
    let (_, ada) = prepare(&peer).await;
    assert!(!watch(&ada, "a", "c").await.canceled);
    for (key, end) in [("a", "d"), ("a", "\0"), ("", "\0"), ("c", "")] {
        let refused = watch(&ada, key, end).await;
        assert!(refused.created && refused.canceled && refused.watch_id == -1, "{refused:?}");
        let reason = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
        assert_eq!(refused.cancel_reason, reason);
    }
    let refused = watch(&peer, "a", "").await;
    assert!(refused.cancel_reason.ends_with("user name is empty"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_ends_with_the_password_and_permissions_end_at_once() {
    let peer = Peer::with(options()).await;
    let (root, ada) = prepare(&peer).await;
    let revoke = AuthRoleRevokePermissionRequest {
        role: "ab".into(),
        key: "b".into(),
        range_end: "d".into(),
    };
    change(&root, "/etcdserverpb.Auth/RoleRevokePermission", revoke).await.unwrap();
    denied(put(&ada, "b", 0).await);
    get(&ada, "a", "").await.unwrap();
    let other = AuthUserChangePasswordRequest {
        name: "ada".into(),
        password: "other".into(),
        ..Default::default()
    };
    change(&root, "/etcdserverpb.Auth/UserChangePassword", other).await.unwrap();
    assert_eq!(get(&ada, "a", "").await.unwrap_err().code(), Code::Unauthenticated);
    let refused = login(&peer, "ada", "secret").await.err().unwrap();
    assert_eq!(refused.message(), "etcdserver: authentication failed, invalid user ID or password");
    let ada = login(&peer, "ada", "other").await.unwrap();
    get(&ada, "a", "").await.unwrap();
    let delete = AuthUserDeleteRequest { name: "ada".into() };
    change(&root, "/etcdserverpb.Auth/UserDelete", delete).await.unwrap();
    assert_eq!(get(&ada, "a", "").await.unwrap_err().code(), Code::Unauthenticated);
    change(&root, "/etcdserverpb.Auth/AuthDisable", AuthDisableRequest {}).await.unwrap();
    get(&peer, "z", "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signed_tokens_are_valid_until_users_or_roles_change() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let kind = format!("jwt,sign-method=HS256,priv-key={}", secret.display());
    let tokens = auth::TokenKind::parse(&kind).unwrap();
    let peer = Peer::with(Options { tokens, ..options() }).await;
    let (root, ada) = prepare(&peer).await;
    put(&ada, "b", 0).await.unwrap();
    denied(put(&ada, "z", 0).await);
    change(&root, "/etcdserverpb.Auth/UserAdd", user_add("eve", "e")).await.unwrap();
    let old = put(&ada, "b", 0).await.unwrap_err();
    assert_eq!(
        (old.code(), old.message()),
        (Code::InvalidArgument, "etcdserver: revision of auth store is old")
    );
    put(&login(&peer, "ada", "secret").await.unwrap(), "b", 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_native_api_and_json_check_callers_too() {
    let peer = Peer::with(options()).await;
    let (root, ada) = prepare(&peer).await;
    put(&root, "z", 0).await.unwrap();
    let client = async |peer: &Peer| {
        let client = Client::connect(&format!("http://{}", peer.address)).await.unwrap();
        client.with_token(peer.token())
    };
    let (anyone, ada) = (client(&peer).await, client(&ada).await);
    assert!(anyone.get("a", 0).await.unwrap_err().to_string().contains("user name is empty"));
    let refused = |error: stele_metastore::client::Error| {
        assert!(error.to_string().contains("permission denied"), "{error}");
    };
    ada.get("a", 0).await.unwrap();
    refused(ada.get("z", 0).await.unwrap_err());
    refused(ada.put("a", "v").await.unwrap_err());
    ada.put("b", "v").await.unwrap();
    refused(ada.history("z", 0).await.unwrap_err());
    refused(ada.compact(2, false).await.unwrap_err());
    let session = ada.session(60).await.unwrap();
    refused(
        session.acquire("z", stele_metastore::client::Mode::Exclusive).await.map(drop).unwrap_err(),
    );
    session.acquire("b", stele_metastore::client::Mode::Exclusive).await.unwrap();
    // JSON: a token in the header `authorization`.
    let body = serde_json::json!({ "name": "ada", "password": "secret" });
    let (_, answer) = gateway::post(&peer, "/v3/auth/authenticate", body).await;
    let token = answer["token"].as_str().unwrap().to_owned();
    let read = serde_json::json!({ "key": "YQ==" });
    let (status, answer) = gateway::post(&peer, "/v3/kv/range", read.clone()).await;
    assert_eq!((status, &answer["code"]), (400, &serde_json::json!(3)));
    let (status, _) = gateway::post_as(&peer, "/v3/kv/range", read, &token).await;
    assert_eq!(status, 200);
    let write = serde_json::json!({ "key": "YQ==" });
    let (status, _) = gateway::post_as(&peer, "/v3/kv/put", write, &token).await;
    assert_eq!(status, 403);
}

async fn open(dir: &std::path::Path) -> Arc<Node> {
    Arc::new(Node::open(NodeSettings::new(dir.to_path_buf(), World::real())).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_and_roles_survive_restarts_snapshots_and_restores() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    let file = {
        let peer = Peer::on(&old, options()).await;
        let (root, _) = prepare(&peer).await;
        root.ask::<_, SnapshotResponse>("/etcdserverpb.Maintenance/Snapshot", SnapshotRequest {})
            .await
            .unwrap()
            .into_iter()
            .flat_map(|part| part.blob)
            .collect::<Vec<u8>>()
    };
    let state = |node: &Node| proto_of(&node.auth().get());
    // Replayed from the log, then read from the flushed store.
    let copy = dir.path().join("copy");
    copy_dir(&old, &copy);
    let node = open(&copy).await;
    let expected = state(&node);
    assert!(expected.contains("enabled: true") && expected.contains("ada"), "{expected}");
    Arc::into_inner(node).unwrap().close().await.unwrap();
    let node = open(&copy).await;
    assert_eq!(state(&node), expected);
    Arc::into_inner(node).unwrap().close().await.unwrap();
    let new = dir.path().join("new");
    restore(std::io::Cursor::new(&file), &new, None, 1).await.unwrap();
    let node = open(&new).await;
    assert_eq!(state(&node), expected);
}

fn proto_of(auth: &auth::AuthState) -> String {
    format!("{auth:?}")
}

fn copy_dir(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(&entry.path(), &target),
            // A lock file is held by the running member.
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_of_a_key_names_its_users() {
    let peer = Peer::with(options()).await;
    put(&peer, "b", 0).await.unwrap();
    let (root, ada) = prepare(&peer).await;
    put(&ada, "b", 0).await.unwrap();
    let delete = DeleteRangeRequest { key: "b".into(), ..Default::default() };
    root.call::<_, DeleteRangeResponse>("/etcdserverpb.KV/DeleteRange", delete).await.unwrap();
    let client = Client::connect(&format!("http://{}", peer.address)).await.unwrap();
    let client = client.with_token(ada.token());
    let history = client.history("b", 0).await.unwrap();
    let told: Vec<(&str, bool, i64)> = history
        .entries
        .iter()
        .map(|entry| (entry.user.as_str(), entry.value.is_some(), entry.version))
        .collect();
    assert_eq!(told, [("root", false, 0), ("ada", true, 2), ("", true, 1)]);
    assert!(history.entries.iter().all(|entry| entry.time_micros > 0));
    let page = client.history("b", 1).await.unwrap();
    assert!(page.more && page.entries.len() == 1);
    let _: proto::AuthStatusResponse =
        peer.call("/etcdserverpb.Auth/AuthStatus", AuthStatusRequest {}).await.unwrap();
}
