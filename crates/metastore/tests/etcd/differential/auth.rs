//! Random changes of users, roles and permissions, and requests of users, on both
//! servers. etcd's order of permissions with equal keys is undefined, so those of
//! a role are sorted. While callers are not checked, no tokens are sent: etcd 3.4
//! still refuses wrong ones then, later versions ignore them.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;
use stele_metastore::etcd::proto::v3electionpb::*;
use stele_metastore::etcd::proto::v3lockpb::*;
use stele_metastore::etcd::proto::*;

use super::answers::{clear, described};
use super::draw::Draw;
use crate::etcd::auth::options;
use crate::etcd::peer::{self, Peer};

const USERS: [&str; 4] = ["root", "ada", "bob", "eve"];
const ROLES: [&str; 4] = ["root", "reader", "writer", "owner"];
const PASSWORDS: [&str; 2] = ["one", "two"];
/// Ranges of permissions. Each has a key of its own, because etcd 3.4 may store a
/// permission twice otherwise.
const PERMITTED: [(&str, &str); 5] =
    [("a", ""), ("b", "d"), ("d", "dir0"), ("dir0", "\0"), ("c", "")];
/// Ranges of requests.
const REQUESTED: [(&str, &str); 7] =
    [("a", ""), ("b", ""), ("b", "c"), ("b", "dir/3"), ("c", "dir0"), ("a", "\0"), ("x", "\0")];

/// An answer whose header may be cleared.
trait Answer: Message + std::fmt::Debug + Default + 'static {
    fn settle(&mut self);
}

macro_rules! answers {
    ($($answer:ty),* $(,)?) => {
        $(impl Answer for $answer {
            fn settle(&mut self) {
                clear(&mut self.header);
            }
        })*
    };
}

answers!(
    AuthEnableResponse,
    AuthUserGetResponse,
    AuthUserListResponse,
    AuthRoleListResponse,
    PutResponse,
    RangeResponse,
    DeleteRangeResponse,
    TxnResponse,
    CompactionResponse,
    LockResponse,
    CampaignResponse,
    LeaderResponse,
    LeaseGrantResponse,
);

impl Answer for AuthRoleGetResponse {
    fn settle(&mut self) {
        clear(&mut self.header);
        self.perm.sort_by(|a, b| {
            (&a.key, &a.range_end, a.perm_type).cmp(&(&b.key, &b.range_end, b.perm_type))
        });
    }
}

impl Answer for AuthenticateResponse {
    fn settle(&mut self) {
        clear(&mut self.header);
        self.token.clear();
    }
}

/// Both servers, and the tokens that each of them gave to a user.
struct Pair {
    ours: Peer,
    etcd: Peer,
    tokens: HashMap<&'static str, (String, String)>,
    /// Whether callers are checked.
    checked: bool,
    steps: Vec<String>,
}

impl Pair {
    /// Sends a request of a user to both, and compares the answers.
    async fn ask<Q, A: Answer>(&mut self, user: &'static str, path: &'static str, request: Q)
    where
        Q: Message + std::fmt::Debug + Clone + 'static,
    {
        self.steps.push(format!("{user}: {path} {request:?}"));
        let none = (String::new(), String::new());
        let tokens = self.tokens.get(user).filter(|_| self.checked);
        let (our_token, their_token) = tokens.unwrap_or(&none);
        let settled = |answer: Result<A, tonic::Status>| {
            described(answer.map(|mut answer| {
                answer.settle();
                answer
            }))
        };
        let ours = self.ours.with_token(our_token).call(path, request.clone()).await;
        let theirs = self.etcd.with_token(their_token).call(path, request).await;
        match path {
            "/etcdserverpb.Auth/AuthEnable" if ours.is_ok() => self.checked = true,
            "/etcdserverpb.Auth/AuthDisable" if ours.is_ok() => self.checked = false,
            _ => {}
        }
        let (ours, theirs) = (settled(ours), settled(theirs));
        let recent = self.steps[self.steps.len().saturating_sub(15)..].join("\n");
        assert!(ours == theirs, "ours {ours}\netcd {theirs}\n{recent}");
    }

    async fn login(&mut self, user: &'static str, password: &'static str) {
        let request = AuthenticateRequest { name: user.into(), password: password.into() };
        let path = "/etcdserverpb.Auth/Authenticate";
        self.ask::<_, AuthenticateResponse>("", path, request.clone()).await;
        let ours = self.ours.call::<_, AuthenticateResponse>(path, request.clone()).await;
        let theirs = self.etcd.call::<_, AuthenticateResponse>(path, request).await;
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            self.tokens.insert(user, (ours.token, theirs.token));
        }
    }

    async fn change<Q: Message + std::fmt::Debug + Clone + 'static>(
        &mut self,
        path: &'static str,
        request: Q,
    ) {
        self.ask::<_, AuthEnableResponse>("root", path, request).await;
    }
}

async fn pair() -> Option<Pair> {
    let Some(binary) = peer::etcd_binary() else {
        eprintln!("skipped: there is no etcd (put one on the path, or name it in STELE_ETCD)");
        return None;
    };
    let (ours, etcd) = (Peer::with(options()).await, Peer::etcd(&binary).await);
    Some(Pair { ours, etcd, tokens: HashMap::new(), checked: false, steps: Vec::new() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_users_are_managed_and_checked_as_etcd_does() {
    let long = std::env::var_os("STELE_LONG").is_some();
    let first: u64 = std::env::var("STELE_SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(1);
    for seed in first..first + if long { 10 } else { 2 } {
        let Some(mut pair) = pair().await else { return };
        let mut draw = Draw(seed);
        pair.steps.push(format!("seed {seed}"));
        for user in ["root", "ada"] {
            let (name, password) = (user.into(), PASSWORDS[0].into());
            let request = AuthUserAddRequest { name, password, ..Default::default() };
            pair.change("/etcdserverpb.Auth/UserAdd", request).await;
        }
        pair.change("/etcdserverpb.Auth/AuthEnable", AuthEnableRequest {}).await;
        let (user, role) = ("root".into(), "root".into());
        let request = AuthUserGrantRoleRequest { user, role };
        pair.change("/etcdserverpb.Auth/UserGrantRole", request).await;
        for _ in 0..if long { 3000 } else { 400 } {
            step(&mut pair, &mut draw).await;
        }
    }
}

async fn step(pair: &mut Pair, draw: &mut Draw) {
    let (user, role) = (draw.of(&USERS), draw.of(&ROLES));
    let caller = draw.of(&["root", "root", "ada", "bob", "eve"]);
    match draw.below(30) {
        0 => {
            let password = draw.of(&PASSWORDS).into();
            let request = AuthUserAddRequest { name: user.into(), password, ..Default::default() };
            pair.ask::<_, AuthEnableResponse>(caller, "/etcdserverpb.Auth/UserAdd", request).await;
        }
        1 => {
            let request = AuthUserDeleteRequest { name: user.into() };
            pair.ask::<_, AuthEnableResponse>(caller, "/etcdserverpb.Auth/UserDelete", request)
                .await;
        }
        2 => {
            let request = AuthUserGetRequest { name: user.into() };
            pair.ask::<_, AuthUserGetResponse>(caller, "/etcdserverpb.Auth/UserGet", request).await;
        }
        3 => {
            let request = AuthUserListRequest {};
            pair.ask::<_, AuthUserListResponse>(caller, "/etcdserverpb.Auth/UserList", request)
                .await;
        }
        4 | 5 => {
            let request = AuthUserGrantRoleRequest { user: user.into(), role: role.into() };
            pair.change("/etcdserverpb.Auth/UserGrantRole", request).await;
        }
        6 => {
            let request = AuthUserRevokeRoleRequest { name: user.into(), role: role.into() };
            pair.change("/etcdserverpb.Auth/UserRevokeRole", request).await;
        }
        7 => {
            let (name, password) = (user.into(), draw.of(&PASSWORDS).into());
            let request = AuthUserChangePasswordRequest { name, password, ..Default::default() };
            pair.change("/etcdserverpb.Auth/UserChangePassword", request).await;
        }
        8 | 9 => {
            let request = AuthRoleAddRequest { name: role.into() };
            pair.change("/etcdserverpb.Auth/RoleAdd", request).await;
        }
        10 => {
            let request = AuthRoleDeleteRequest { role: role.into() };
            pair.change("/etcdserverpb.Auth/RoleDelete", request).await;
        }
        11 => {
            let (path, request) =
                ("/etcdserverpb.Auth/RoleGet", AuthRoleGetRequest { role: role.into() });
            match role {
                // Only the header: etcd 3.4 shows what was granted to root, later
                // versions that it may do everything.
                "root" => pair.ask::<_, AuthEnableResponse>(caller, path, request).await,
                _ => pair.ask::<_, AuthRoleGetResponse>(caller, path, request).await,
            }
        }
        12 => {
            let request = AuthRoleListRequest {};
            pair.ask::<_, AuthRoleListResponse>(caller, "/etcdserverpb.Auth/RoleList", request)
                .await;
        }
        13..=15 => {
            let (key, range_end) = draw.of(&PERMITTED);
            let (perm_type, key, range_end) = (draw.below(3) as i32, key.into(), range_end.into());
            let perm = Some(Permission { perm_type, key, range_end });
            let request = AuthRoleGrantPermissionRequest { name: role.into(), perm };
            pair.change("/etcdserverpb.Auth/RoleGrantPermission", request).await;
        }
        16 => {
            let (key, range_end) = draw.of(&PERMITTED);
            let (key, range_end) = (key.into(), range_end.into());
            let request = AuthRoleRevokePermissionRequest { role: role.into(), key, range_end };
            pair.change("/etcdserverpb.Auth/RoleRevokePermission", request).await;
        }
        17 if draw.below(3) == 0 => {
            pair.change("/etcdserverpb.Auth/AuthDisable", AuthDisableRequest {}).await;
        }
        17..=19 => {
            pair.change("/etcdserverpb.Auth/AuthEnable", AuthEnableRequest {}).await;
        }
        20 | 21 => pair.login(user, draw.of(&PASSWORDS)).await,
        _ => request(pair, draw).await,
    }
}

/// Sends a request about keys.
async fn request(pair: &mut Pair, draw: &mut Draw) {
    let caller = draw.of(&["", "root", "ada", "ada", "bob", "bob", "eve"]);
    let (start, end) = draw.of(&REQUESTED);
    let (key, range_end): (Bytes, Bytes) = (start.into(), end.into());
    let prev_kv = draw.below(3) == 0;
    match draw.below(5) {
        0 => {
            let request = PutRequest { key, value: "v".into(), prev_kv, ..Default::default() };
            pair.ask::<_, PutResponse>(caller, "/etcdserverpb.KV/Put", request).await;
        }
        1 => {
            let request = DeleteRangeRequest { key, range_end, prev_kv };
            pair.ask::<_, DeleteRangeResponse>(caller, "/etcdserverpb.KV/DeleteRange", request)
                .await;
        }
        2 => {
            let compare = Compare { key: key.clone(), ..Default::default() };
            let range = RangeRequest { key, range_end, ..Default::default() };
            let put = PutRequest { key: draw.of(&["a", "b", "c"]).into(), ..Default::default() };
            let op = |request| RequestOp { request: Some(request) };
            let request = TxnRequest {
                compare: vec![compare],
                success: vec![op(request_op::Request::RequestRange(range))],
                failure: vec![op(request_op::Request::RequestPut(put))],
            };
            pair.ask::<_, TxnResponse>(caller, "/etcdserverpb.KV/Txn", request).await;
        }
        _ => {
            let request = RangeRequest { key, range_end, ..Default::default() };
            pair.ask::<_, RangeResponse>(caller, "/etcdserverpb.KV/Range", request).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_and_elections_are_answered_as_etcd_answers_them() {
    let Some(mut pair) = pair().await else { return };
    for id in [0x1f, 2] {
        let request = LeaseGrantRequest { id, ttl: 600 };
        pair.ask::<_, LeaseGrantResponse>("", "/etcdserverpb.Lease/LeaseGrant", request).await;
    }
    let all = RangeRequest { key: "\0".into(), range_end: "\0".into(), ..Default::default() };
    for lease in [0x1f, 0x1f, 77] {
        let request = LockRequest { name: "m".into(), lease };
        pair.ask::<_, LockResponse>("", "/v3lockpb.Lock/Lock", request).await;
        pair.ask::<_, RangeResponse>("", "/etcdserverpb.KV/Range", all.clone()).await;
    }
    for key in ["m/1f", "m/1f", "none"] {
        let request = UnlockRequest { key: key.into() };
        pair.ask::<_, AuthEnableResponse>("", "/v3lockpb.Lock/Unlock", request).await;
    }
    let named = LeaderRequest { name: "e".into() };
    pair.ask::<_, LeaderResponse>("", "/v3electionpb.Election/Leader", named.clone()).await;
    for value in ["one", "two", "two"] {
        let request = CampaignRequest { name: "e".into(), lease: 2, value: value.into() };
        pair.ask::<_, CampaignResponse>("", "/v3electionpb.Election/Campaign", request).await;
        pair.ask::<_, LeaderResponse>("", "/v3electionpb.Election/Leader", named.clone()).await;
    }
    let found = pair.ours.call::<_, LeaderResponse>("/v3electionpb.Election/Leader", named.clone());
    let rev = found.await.unwrap().kv.unwrap().create_revision;
    let leader = LeaderKey { name: "e".into(), key: "e/2".into(), rev, lease: 2 };
    let other = LeaderKey { rev: rev + 1, ..leader.clone() };
    for leader in [Some(leader.clone()), Some(other.clone()), None] {
        let request = ProclaimRequest { leader, value: "three".into() };
        pair.ask::<_, AuthEnableResponse>("", "/v3electionpb.Election/Proclaim", request).await;
        pair.ask::<_, LeaderResponse>("", "/v3electionpb.Election/Leader", named.clone()).await;
    }
    for leader in [Some(other), Some(leader.clone()), Some(leader), None] {
        let request = ResignRequest { leader };
        pair.ask::<_, AuthEnableResponse>("", "/v3electionpb.Election/Resign", request).await;
    }
    pair.ask::<_, RangeResponse>("", "/etcdserverpb.KV/Range", all).await;
}
