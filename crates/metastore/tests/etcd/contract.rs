//! Details of etcd's contract that clients rely on.

use bytes::Bytes;
use stele_metastore::etcd::Options;
use stele_metastore::etcd::proto::watch_request::RequestUnion;
use stele_metastore::etcd::proto::*;
use tonic::{Code, Streaming};

use crate::etcd::peer::Peer;

async fn put(peer: &Peer, key: &'static str, value: &'static str) -> i64 {
    let request = PutRequest { key: key.into(), value: value.into(), ..Default::default() };
    let answer: PutResponse = peer.call("/etcdserverpb.KV/Put", request).await.unwrap();
    answer.header.unwrap().revision
}

async fn compact(peer: &Peer, revision: i64) {
    let request = CompactionRequest { revision, physical: false };
    let path = "/etcdserverpb.KV/Compact";
    peer.call::<_, CompactionResponse>(path, request).await.unwrap();
}

/// Watches from a revision on. Returns the answers after the first.
async fn watch(peer: &Peer, start_revision: i64) -> Streaming<WatchResponse> {
    let create =
        WatchCreateRequest { key: "k".into(), start_revision, prev_kv: true, ..Default::default() };
    let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let requests = tokio_stream::once(request);
    let mut answers = peer.stream("/etcdserverpb.Watch/Watch", requests).await;
    let created: WatchResponse = answers.message().await.unwrap().unwrap();
    assert!(created.created && !created.canceled, "{created:?}");
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_catches_up_learns_the_newest_revision() {
    let peer = Peer::ours().await;
    let first = put(&peer, "k", "1").await;
    let newest = put(&peer, "other", "2").await;
    let mut answers = watch(&peer, first).await;
    let answer = answers.message().await.unwrap().unwrap();
    assert_eq!((answer.events.len(), answer.header.unwrap().revision), (1, newest));
    // Afterwards, the header has the revision of the events.
    let live = put(&peer, "k", "3").await;
    let answer = answers.message().await.unwrap().unwrap();
    assert_eq!((answer.events.len(), answer.header.unwrap().revision), (1, live));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_previous_value_is_absent_when_its_revision_is_compacted() {
    let peer = Peer::ours().await;
    put(&peer, "k", "1").await;
    let second = put(&peer, "k", "2").await;
    let third = put(&peer, "k", "3").await;
    compact(&peer, second).await;
    let mut answers = watch(&peer, second).await;
    let mut events = Vec::new();
    while events.len() < 2 {
        events.extend(answers.message().await.unwrap().unwrap().events);
    }
    let told: Vec<(i64, Option<Bytes>)> = events
        .into_iter()
        .map(|event| (event.kv.unwrap().mod_revision, event.prev_kv.map(|prev| prev.value)))
        .collect();
    assert_eq!(told, [(second, None), (third, Some("2".into()))]);
}

async fn hash(peer: &Peer, revision: i64) -> u32 {
    let request = HashKvRequest { revision };
    let path = "/etcdserverpb.Maintenance/HashKV";
    let answer: HashKvResponse = peer.call(path, request).await.unwrap();
    answer.hash
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hash_is_the_same_before_and_after_its_revision_is_compacted() {
    let peer = Peer::ours().await;
    put(&peer, "a", "1").await;
    put(&peer, "a", "2").await;
    put(&peer, "b", "1").await;
    let delete = DeleteRangeRequest { key: "b".into(), ..Default::default() };
    let deleted: DeleteRangeResponse =
        peer.call("/etcdserverpb.KV/DeleteRange", delete).await.unwrap();
    let deleted = deleted.header.unwrap().revision;
    let put_after = put(&peer, "c", "1").await;
    put(&peer, "a", "3").await;
    let before = (hash(&peer, deleted).await, hash(&peer, put_after).await);
    assert_ne!(before.0, before.1);
    for (revision, expected) in [(deleted, before.0), (put_after, before.1)] {
        compact(&peer, revision).await;
        assert_eq!(hash(&peer, revision).await, expected, "{revision}");
    }
}

async fn alarm(peer: &Peer, action: alarm_request::AlarmAction, member_id: u64) -> usize {
    let alarm = AlarmType::Nospace.into();
    let request = AlarmRequest { action: action.into(), member_id, alarm };
    let path = "/etcdserverpb.Maintenance/Alarm";
    peer.call::<_, AlarmResponse>(path, request).await.unwrap().alarms.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_that_an_operator_raised_stays_until_it_is_cleared() {
    use alarm_request::AlarmAction::{Activate, Deactivate, Get};
    // With a quota of which almost nothing is used, an alarm of the member
    // itself would be cleared at once.
    let peer = Peer::of_quota(1 << 30).await;
    let path = "/etcdserverpb.Cluster/MemberList";
    let members: MemberListResponse = peer.call(path, MemberListRequest::default()).await.unwrap();
    let member = members.members[0].id;
    alarm(&peer, Activate, member).await;
    let delete = DeleteRangeRequest { key: "a".into(), ..Default::default() };
    for _ in 0..50 {
        let path = "/etcdserverpb.KV/DeleteRange";
        peer.call::<_, DeleteRangeResponse>(path, delete.clone()).await.unwrap();
    }
    assert_eq!(alarm(&peer, Get, 0).await, 1);
    let refused = peer
        .call::<_, PutResponse>(
            "/etcdserverpb.KV/Put",
            PutRequest { key: "k".into(), ..Default::default() },
        )
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(alarm(&peer, Deactivate, member).await, 1);
    put(&peer, "k", "v").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limits_of_requests_can_be_set() {
    let options = Options { request_bytes_max: 3 << 20, txn_ops_max: 2, ..Options::default() };
    let peer = Peer::with(options).await;
    let large = |bytes: usize| PutRequest {
        key: "k".into(),
        value: vec![7; bytes].into(),
        prev_kv: true,
        ..Default::default()
    };
    let path = "/etcdserverpb.KV/Put";
    for _ in 0..2 {
        peer.call::<_, PutResponse>(path, large(2900 << 10)).await.unwrap();
    }
    let refused = peer.call::<_, PutResponse>(path, large(3 << 20)).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: request is too large");
    let refused = peer.call::<_, PutResponse>(path, large(4 << 20)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let ops = |count: usize| {
        let put = |at: usize| PutRequest { key: format!("k{at}").into(), ..Default::default() };
        let op = |at| RequestOp { request: Some(request_op::Request::RequestPut(put(at))) };
        TxnRequest { success: (0..count).map(op).collect(), ..Default::default() }
    };
    let path = "/etcdserverpb.KV/Txn";
    peer.call::<_, TxnResponse>(path, ops(2)).await.unwrap();
    let refused = peer.call::<_, TxnResponse>(path, ops(3)).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: too many operations in txn request");
}
