//! The Lock and Election services, and the answers to requests about leaders and
//! downgrades.

use bytes::Bytes;
use serde_json::json;
use stele_metastore::etcd::proto::v3electionpb::*;
use stele_metastore::etcd::proto::v3lockpb::*;
use stele_metastore::etcd::proto::*;
use tonic::{Code, Status};

use crate::etcd::gateway;
use crate::etcd::peer::{Peer, TIMEOUT};

async fn lease(peer: &Peer, id: i64) {
    let grant = LeaseGrantRequest { id, ttl: 600 };
    peer.call::<_, LeaseGrantResponse>("/etcdserverpb.Lease/LeaseGrant", grant).await.unwrap();
}

async fn revoke(peer: &Peer, id: i64) {
    let request = LeaseRevokeRequest { id };
    let path = "/etcdserverpb.Lease/LeaseRevoke";
    peer.call::<_, LeaseRevokeResponse>(path, request).await.unwrap();
}

async fn lock(peer: &Peer, name: &'static str, lease: i64) -> Result<LockResponse, Status> {
    peer.call("/v3lockpb.Lock/Lock", LockRequest { name: name.into(), lease }).await
}

async fn keys(peer: &Peer, prefix: &'static str, end: &'static str) -> Vec<Bytes> {
    let request = RangeRequest { key: prefix.into(), range_end: end.into(), ..Default::default() };
    let found: RangeResponse = peer.call("/etcdserverpb.KV/Range", request).await.unwrap();
    found.kvs.into_iter().map(|kv| kv.key).collect()
}

/// Waits until there are this many keys of a lock.
async fn until_keys(peer: &Peer, count: usize) {
    let reached = async {
        while keys(peer, "m/", "m0").await.len() != count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, reached).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_granted_in_order_and_released_with_its_key_or_lease() {
    let peer = Peer::ours().await;
    for id in [0xab, 2, 3] {
        lease(&peer, id).await;
    }
    let first = lock(&peer, "m", 0xab).await.unwrap();
    assert_eq!((&first.key[..], first.header.unwrap().revision), (&b"m/ab"[..], 2));
    let again = lock(&peer, "m", 0xab).await.unwrap();
    assert_eq!(again.key, first.key, "the same lease holds it already");
    let waits = |id| {
        let peer = peer.clone();
        tokio::spawn(async move { lock(&peer, "m", id).await })
    };
    let second = waits(2);
    until_keys(&peer, 2).await;
    let third = waits(3);
    until_keys(&peer, 3).await;
    assert!(!second.is_finished() && !third.is_finished());
    let unlock = UnlockRequest { key: first.key };
    peer.call::<_, UnlockResponse>("/v3lockpb.Lock/Unlock", unlock.clone()).await.unwrap();
    assert_eq!(second.await.unwrap().unwrap().key, "m/2");
    assert!(!third.is_finished());
    revoke(&peer, 2).await;
    assert_eq!(third.await.unwrap().unwrap().key, "m/3");
    // No error if there is no such key.
    peer.call::<_, UnlockResponse>("/v3lockpb.Lock/Unlock", unlock).await.unwrap();
    let missing = lock(&peer, "m", 99).await.unwrap_err();
    assert_eq!(
        (missing.code(), missing.message()),
        (Code::Unknown, "etcdserver: requested lease not found")
    );
    let own = lock(&peer, "other", 0).await.unwrap();
    assert!(own.key.starts_with(b"other/"), "the server grants a lease");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_the_queue_or_loses_its_lease_does_not_get_the_lock() {
    let peer = Peer::ours().await;
    for id in [1, 2, 3] {
        lease(&peer, id).await;
    }
    let first = lock(&peer, "m", 1).await.unwrap();
    let waits = |id| {
        let peer = peer.clone();
        tokio::spawn(async move { lock(&peer, "m", id).await })
    };
    let second = waits(2);
    until_keys(&peer, 2).await;
    second.abort();
    until_keys(&peer, 1).await;
    let third = waits(3);
    until_keys(&peer, 2).await;
    revoke(&peer, 3).await;
    let unlock = UnlockRequest { key: first.key };
    peer.call::<_, UnlockResponse>("/v3lockpb.Lock/Unlock", unlock).await.unwrap();
    let lost = third.await.unwrap().unwrap_err();
    assert_eq!((lost.code(), lost.message()), (Code::Unknown, "mutex: session is expired"));
}

fn campaign(lease: i64, value: &'static str) -> CampaignRequest {
    CampaignRequest { name: "e".into(), lease, value: value.into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_lead_in_order_and_observers_see_every_value() {
    let peer = Peer::ours().await;
    for id in [1, 2] {
        lease(&peer, id).await;
    }
    let name = || LeaderRequest { name: "e".into() };
    let nobody =
        peer.call::<_, LeaderResponse>("/v3electionpb.Election/Leader", name()).await.unwrap_err();
    assert_eq!((nobody.code(), nobody.message()), (Code::Unknown, "election: no leader"));
    let observing = peer.clone();
    let (values, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let observer = tokio::spawn(async move {
        let path = "/v3electionpb.Election/Observe";
        let mut answers = observing.answers::<_, LeaderResponse>(path, name()).await.unwrap();
        while let Some(answer) = answers.message().await.unwrap() {
            values.send(answer.kv.unwrap().value).unwrap();
        }
    });
    let path = "/v3electionpb.Election/Campaign";
    let first: CampaignResponse = peer.call(path, campaign(1, "a")).await.unwrap();
    let leader = first.leader.unwrap();
    assert_eq!((&leader.key[..], leader.lease, leader.rev), (&b"e/1"[..], 1, 2));
    let mut next = async || tokio::time::timeout(TIMEOUT, seen.recv()).await.unwrap().unwrap();
    assert_eq!(next().await, "a");
    let again: CampaignResponse = peer.call(path, campaign(1, "b")).await.unwrap();
    assert_eq!(again.leader.unwrap(), leader, "another value of the same candidate");
    assert_eq!(next().await, "b");
    let proclaim = ProclaimRequest { leader: Some(leader.clone()), value: "c".into() };
    let path = "/v3electionpb.Election/Proclaim";
    peer.call::<_, ProclaimResponse>(path, proclaim.clone()).await.unwrap();
    assert_eq!(next().await, "c");
    let other = peer.clone();
    let second = tokio::spawn(async move {
        let path = "/v3electionpb.Election/Campaign";
        other.call::<_, CampaignResponse>(path, campaign(2, "d")).await
    });
    let resign = ResignRequest { leader: Some(leader) };
    let path = "/v3electionpb.Election/Resign";
    peer.call::<_, ResignResponse>(path, resign.clone()).await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.leader.unwrap().key, "e/2");
    assert_eq!(next().await, "d");
    observer.abort();
    // It no longer leads; resigning twice is not an error.
    peer.call::<_, ResignResponse>(path, resign).await.unwrap();
    let path = "/v3electionpb.Election/Proclaim";
    let lost = peer.call::<_, ProclaimResponse>(path, proclaim).await.unwrap_err();
    assert_eq!((lost.code(), lost.message()), (Code::Unknown, "election: not leader"));
    let none = ProclaimRequest { leader: None, value: "x".into() };
    let none = peer.call::<_, ProclaimResponse>(path, none).await.unwrap_err();
    assert_eq!(none.message(), "\"leader\" field must be provided");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_member_keeps_the_leadership_and_does_not_downgrade() {
    let peer = Peer::ours().await;
    let path = "/etcdserverpb.Cluster/MemberList";
    let members: MemberListResponse = peer.call(path, MemberListRequest::default()).await.unwrap();
    let path = "/etcdserverpb.Maintenance/MoveLeader";
    let own = MoveLeaderRequest { target_id: members.members[0].id };
    let moved: MoveLeaderResponse = peer.call(path, own).await.unwrap();
    assert_eq!(moved.header, None);
    let other = MoveLeaderRequest { target_id: 1 };
    let refused = peer.call::<_, MoveLeaderResponse>(path, other).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::FailedPrecondition, "etcdserver: bad leader transferee")
    );
    let downgrade = async |action: i32, version: &str| {
        let request = DowngradeRequest { action, version: version.into() };
        let path = "/etcdserverpb.Maintenance/Downgrade";
        let refused = peer.call::<_, DowngradeResponse>(path, request).await.unwrap_err();
        refused.message().to_owned()
    };
    assert_eq!(downgrade(0, "3.5.0").await, "etcdserver: invalid downgrade target version");
    assert_eq!(downgrade(1, "three").await, "etcdserver: wrong downgrade target version format");
    assert_eq!(downgrade(2, "").await, "etcdserver: no inflight downgrade job");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_elections_and_users_are_reached_as_json() {
    let peer = Peer::ours().await;
    let (status, held) = gateway::post(&peer, "/v3/lock/lock", json!({ "name": "bQ==" })).await;
    assert_eq!(status, 200);
    let unlock = json!({ "key": held["key"] });
    assert_eq!(gateway::post(&peer, "/v3/lock/unlock", unlock).await.0, 200);
    let candidate = json!({ "name": "ZQ==", "value": "YQ==" });
    let (_, elected) = gateway::post(&peer, "/v3/election/campaign", candidate).await;
    let (_, leader) = gateway::post(&peer, "/v3/election/leader", json!({ "name": "ZQ==" })).await;
    assert_eq!(leader["kv"]["value"], "YQ==");
    let resign = json!({ "leader": elected["leader"] });
    assert_eq!(gateway::post(&peer, "/v3/election/resign", resign).await.0, 200);
    let user = json!({ "name": "ada", "options": { "no_password": true } });
    assert_eq!(gateway::post(&peer, "/v3/auth/user/add", user).await.0, 200);
    let (_, users) = gateway::post(&peer, "/v3/auth/user/list", json!({})).await;
    assert_eq!(users["users"], json!(["ada"]));
    let (_, status) = gateway::post(&peer, "/v3/auth/status", json!({})).await;
    assert_eq!(status["authRevision"], "2");
    let (status, refused) = gateway::post(&peer, "/v3/auth/enable", json!({})).await;
    assert_eq!(
        (status, &refused["message"]),
        (400, &json!("etcdserver: root user does not exist"))
    );
    let downgrade = json!({ "action": "CANCEL" });
    assert_eq!(gateway::post(&peer, "/v3/maintenance/downgrade", downgrade).await.0, 400);
}
