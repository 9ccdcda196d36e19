//! A member that runs out of space: from the quota through the alarm back to
//! writes, as etcd's clients see it.

use stele_metastore::etcd::proto::*;
use tonic::{Code, Status};

use crate::etcd::gateway;
use crate::etcd::peer::Peer;

const QUOTA: i64 = 20_000;
const VALUE_BYTES: usize = 1000;

async fn put(peer: &Peer, key: &str, bytes: usize) -> Result<PutResponse, Status> {
    let (key, value) = (key.to_string().into(), vec![b'v'; bytes].into());
    peer.call("/etcdserverpb.KV/Put", PutRequest { key, value, ..Default::default() }).await
}

async fn alarm(peer: &Peer, request: AlarmRequest) -> Vec<AlarmMember> {
    let answer: AlarmResponse =
        peer.call("/etcdserverpb.Maintenance/Alarm", request).await.unwrap();
    answer.alarms
}

async fn alarms(peer: &Peer) -> Vec<AlarmMember> {
    alarm(peer, AlarmRequest::default()).await
}

/// Lists the alarms and clears each, as etcdctl does.
async fn disarm(peer: &Peer) -> Vec<AlarmMember> {
    let mut cleared = Vec::new();
    let action = alarm_request::AlarmAction::Deactivate.into();
    for AlarmMember { member_id, alarm: kind } in alarms(peer).await {
        cleared.extend(alarm(peer, AlarmRequest { action, member_id, alarm: kind }).await);
    }
    cleared
}

async fn delete(peer: &Peer, key: &'static str, range_end: &'static str) -> i64 {
    let request =
        DeleteRangeRequest { key: key.into(), range_end: range_end.into(), prev_kv: false };
    let done: DeleteRangeResponse =
        peer.call("/etcdserverpb.KV/DeleteRange", request).await.unwrap();
    done.deleted
}

/// Writes until there is no space. Returns the number of keys.
async fn fill(peer: &Peer) -> i64 {
    for number in 0.. {
        if let Err(refused) = put(peer, &format!("k{number:03}"), VALUE_BYTES).await {
            assert_eq!(
                (refused.code(), refused.message()),
                (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded")
            );
            return number;
        }
    }
    unreachable!("the quota ends it")
}

fn txn(key: &'static str, request: request_op::Request) -> TxnRequest {
    let compare = Compare { key: key.into(), ..Default::default() };
    let op = RequestOp { request: Some(request) };
    TxnRequest { compare: vec![compare], success: vec![op.clone()], failure: vec![op] }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_alarm_up_nothing_is_put_and_everything_else_goes_on() {
    let peer = Peer::of_quota(QUOTA).await;
    let granted: LeaseGrantResponse = peer
        .call("/etcdserverpb.Lease/LeaseGrant", LeaseGrantRequest { ttl: 600, id: 9 })
        .await
        .unwrap();
    let keys = fill(&peer).await;
    assert!((15..20).contains(&keys), "{keys} keys of {VALUE_BYTES} bytes");
    let raised = alarms(&peer).await;
    assert_eq!((raised.len(), raised[0].alarm), (1, AlarmType::Nospace.into()));

    // Probes and the status report it.
    let ill = gateway::send(&peer, "GET", "/health", "").await;
    assert_eq!(ill.status(), 503);
    assert!(gateway::text(ill).await.contains("ALARM NOSPACE"));
    assert_eq!(gateway::send(&peer, "GET", "/health?exclude=NOSPACE", "").await.status(), 200);
    let status: StatusResponse =
        peer.call("/etcdserverpb.Maintenance/Status", StatusRequest {}).await.unwrap();
    assert!(status.errors.iter().any(|error| error.contains("NOSPACE")), "{:?}", status.errors);
    assert_eq!(status.db_size_quota, QUOTA);

    // Refused: every request that puts something, however small.
    let code = |refused: Status| refused.code();
    assert_eq!(put(&peer, "small", 1).await.map_err(code), Err(Code::ResourceExhausted));
    let grant = LeaseGrantRequest { ttl: 600, id: 10 };
    let refused = peer.call::<_, LeaseGrantResponse>("/etcdserverpb.Lease/LeaseGrant", grant).await;
    assert_eq!(refused.map_err(code), Err(Code::ResourceExhausted));
    let inside = PutRequest { key: "t".into(), ..Default::default() };
    let request = txn("t", request_op::Request::RequestPut(inside));
    let refused = peer.call::<_, TxnResponse>("/etcdserverpb.KV/Txn", request).await;
    assert_eq!(refused.map_err(code), Err(Code::ResourceExhausted));

    // Allowed: reads, deletions, also within a transaction, compaction,
    // defragmentation, leases.
    let all = RangeRequest { key: "k".into(), range_end: "l".into(), ..Default::default() };
    let found: RangeResponse = peer.call("/etcdserverpb.KV/Range", all).await.unwrap();
    assert_eq!(found.count, keys);
    let one = DeleteRangeRequest { key: "k000".into(), ..Default::default() };
    let request = txn("k000", request_op::Request::RequestDeleteRange(one));
    peer.call::<_, TxnResponse>("/etcdserverpb.KV/Txn", request).await.unwrap();
    let revision = found.header.unwrap().revision;
    for physical in [false, true] {
        let revision = revision - 1 + i64::from(physical);
        let compact = CompactionRequest { revision, physical };
        peer.call::<_, CompactionResponse>("/etcdserverpb.KV/Compact", compact).await.unwrap();
    }
    let defragment = DefragmentRequest {};
    peer.call::<_, DefragmentResponse>("/etcdserverpb.Maintenance/Defragment", defragment)
        .await
        .unwrap();
    let revoke = LeaseRevokeRequest { id: granted.id };
    peer.call::<_, LeaseRevokeResponse>("/etcdserverpb.Lease/LeaseRevoke", revoke).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disarmed_without_space_the_alarm_is_raised_by_the_next_put() {
    let peer = Peer::of_quota(QUOTA).await;
    fill(&peer).await;
    let cleared = disarm(&peer).await;
    assert_eq!((cleared.len(), alarms(&peer).await), (1, Vec::new()));
    put(&peer, "big", VALUE_BYTES).await.unwrap_err();
    assert_eq!(alarms(&peer).await, cleared);
    // A write that fits is accepted once the alarm is cleared.
    disarm(&peer).await;
    put(&peer, "k000", 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_whose_reason_is_deleted_clears_itself_and_writes_go_on() {
    let peer = Peer::of_quota(QUOTA).await;
    let keys = fill(&peer).await;
    assert_eq!(delete(&peer, "k", "l").await, keys);
    // The alarm is cleared in the background, so retry until it is.
    let again = async {
        while let Err(refused) = put(&peer, "again", VALUE_BYTES).await {
            assert_eq!(refused.code(), Code::ResourceExhausted);
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::etcd::peer::TIMEOUT, again).await.expect("the alarm clears itself");
    assert_eq!(alarms(&peer).await, []);
}
