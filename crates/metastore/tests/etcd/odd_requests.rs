//! Invalid requests, and requests that have crashed other servers.

use bytes::Bytes;
use stele_metastore::etcd::proto::*;
use tonic::Code;

use crate::etcd::peer::Peer;

fn put(key: &'static str) -> PutRequest {
    PutRequest { key: key.into(), value: "v".into(), ..Default::default() }
}

fn op(request: request_op::Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeping_the_value_of_a_missing_key_is_refused_within_a_transaction_too() {
    let peer = Peer::ours().await;
    let keeping = PutRequest { key: "none".into(), ignore_value: true, ..Default::default() };
    let request = TxnRequest {
        success: vec![
            op(request_op::Request::RequestPut(put("other"))),
            op(request_op::Request::RequestPut(keeping)),
        ],
        ..Default::default()
    };
    let refused = peer.call::<_, TxnResponse>("/etcdserverpb.KV/Txn", request).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::InvalidArgument, "etcdserver: key not found")
    );
    let range = RangeRequest { key: "other".into(), ..Default::default() };
    let found: RangeResponse = peer.call("/etcdserverpb.KV/Range", range).await.unwrap();
    assert_eq!((found.count, found.header.unwrap().revision), (0, 1), "nothing was done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_too_large_is_refused_and_the_connection_goes_on() {
    let peer = Peer::ours().await;
    let sized = |bytes: usize| PutRequest { value: Bytes::from(vec![0; bytes]), ..put("k") };
    let refused = peer.call::<_, PutResponse>("/etcdserverpb.KV/Put", sized(1600 << 10)).await;
    let refused = refused.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::InvalidArgument, "etcdserver: request is too large")
    );
    let refused = peer.call::<_, PutResponse>("/etcdserverpb.KV/Put", sized(3 << 20)).await;
    assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    peer.call::<_, PutResponse>("/etcdserverpb.KV/Put", sized(1500 << 10)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_served_says_so() {
    let peer = Peer::ours().await;
    for path in
        ["/etcdserverpb.Cluster/MemberMove", "/v3lockpb.Lock/Wait", "/etcdserverpb.KV/Nothing"]
    {
        let refused = peer.call::<_, PutResponse>(path, PutRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alarms_are_raised_listed_and_cleared() {
    let peer = Peer::ours().await;
    let status: StatusResponse =
        peer.call("/etcdserverpb.Maintenance/Status", StatusRequest {}).await.unwrap();
    let member_id = status.header.unwrap().member_id;
    assert_eq!((status.leader, status.errors.len()), (member_id, 0));
    let alarm = async |action: i32, alarm: i32| -> Vec<AlarmMember> {
        let request = AlarmRequest { action, member_id, alarm };
        let answer: AlarmResponse =
            peer.call("/etcdserverpb.Maintenance/Alarm", request).await.unwrap();
        answer.alarms
    };
    let raised = vec![AlarmMember { member_id, alarm: AlarmType::Corrupt.into() }];
    assert_eq!(alarm(1, 2).await, raised);
    assert_eq!(alarm(0, 0).await, raised);
    assert_eq!(alarm(0, 1).await, []);
    let refused = peer.call::<_, PutResponse>("/etcdserverpb.KV/Put", put("k")).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::DataLoss, "etcdserver: corrupt cluster")
    );
    assert_eq!(alarm(2, 2).await, raised);
    assert_eq!(alarm(0, 0).await, []);
    peer.call::<_, PutResponse>("/etcdserverpb.KV/Put", put("k")).await.unwrap();
}
