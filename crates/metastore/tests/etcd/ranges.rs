//! Ranges of all sizes return the same keys in every form.

use bytes::Bytes;
use stele_metastore::etcd::Options;
use stele_metastore::etcd::proto::*;

use crate::etcd::peer::Peer;

const KEYS: usize = 600;

/// Starts a server with `KEYS` keys of 4 KiB.
async fn filled(options: Options) -> Peer {
    let peer = Peer::with(options).await;
    for batch in 0..KEYS / 100 {
        let put = |number: usize| {
            let key = format!("key/{:05}", batch * 100 + number).into();
            let value = Bytes::from(vec![number as u8; 4 << 10]);
            let request = PutRequest { key, value, ..Default::default() };
            RequestOp { request: Some(request_op::Request::RequestPut(request)) }
        };
        let request = TxnRequest { success: (0..100).map(put).collect(), ..Default::default() };
        let answer: TxnResponse = peer.call("/etcdserverpb.KV/Txn", request).await.unwrap();
        assert!(answer.succeeded);
    }
    peer
}

fn all() -> RangeRequest {
    RangeRequest { key: "key/".into(), range_end: "key0".into(), ..Default::default() }
}

async fn range(peer: &Peer, request: RangeRequest) -> RangeResponse {
    peer.call("/etcdserverpb.KV/Range", request).await.unwrap()
}

fn check(response: &RangeResponse) {
    assert_eq!((response.kvs.len(), response.count, response.more), (KEYS, KEYS as i64, false));
    for (number, kv) in response.kvs.iter().enumerate() {
        assert_eq!(kv.key, format!("key/{number:05}"));
        assert_eq!(kv.value, vec![(number % 100) as u8; 4 << 10]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_that_does_not_fit_in_memory_is_answered_all_the_same() {
    let gathered = filled(Options::default()).await;
    let expected = range(&gathered, all()).await;
    check(&expected);
    let squeezed = filled(Options { response_bytes_max: 64 << 10, ..Options::default() }).await;
    let response = range(&squeezed, all()).await;
    assert_eq!(response.kvs, expected.kvs);
    check(&response);
    let limited = range(&squeezed, RangeRequest { limit: 400, ..all() }).await;
    assert_eq!((limited.kvs.len(), limited.count, limited.more), (400, KEYS as i64, true));
    let sorted = RangeRequest { sort_order: 2, ..all() };
    let mut backwards = range(&squeezed, sorted).await.kvs;
    backwards.reverse();
    assert_eq!(backwards, expected.kvs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_streamed_range_is_the_range_in_pieces() {
    let peer = filled(Options::default()).await;
    let expected = range(&peer, all()).await;
    for limit in [0, 1, 250, 5000] {
        let request = RangeRequest { limit, ..all() };
        let expected = range(&peer, request.clone()).await;
        let pieces: Vec<RangeStreamResponse> =
            peer.ask("/etcdserverpb.KV/RangeStream", request).await.unwrap();
        let pieces: Vec<RangeResponse> =
            pieces.into_iter().map(|piece| piece.range_response.unwrap()).collect();
        let (last, others) = pieces.split_last().unwrap();
        assert!(others.iter().all(|piece| piece.header.is_none() && piece.count == 0));
        assert_eq!((last.header, last.more), (expected.header, expected.more));
        assert_eq!(last.count, expected.count);
        let kvs: Vec<KeyValue> = pieces.iter().flat_map(|piece| piece.kvs.clone()).collect();
        assert_eq!(kvs, expected.kvs);
    }
    assert_eq!(expected.kvs.len(), KEYS);
    let sorted = RangeRequest { sort_target: 1, ..all() };
    let refused = peer.ask::<_, RangeStreamResponse>("/etcdserverpb.KV/RangeStream", sorted).await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::Unimplemented);
}
