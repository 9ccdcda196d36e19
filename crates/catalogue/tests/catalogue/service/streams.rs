//! Vectors too large for one message are one request and one commit.

use super::served::*;
use bytes::Bytes;
use stele_catalogue::Server;
use stele_catalogue::client::{NewRecord, RecordKey};
use stele_catalogue::proto::catalogues_client::CataloguesClient;
use stele_catalogue::proto::*;
use tokio_stream::iter;
use tonic::Code as Status;

fn message(id: Option<u128>, keys: &[&str]) -> PutRequest {
    let fid = |id| Bytes::copy_from_slice(fid(id).bytes());
    PutRequest {
        catalogue: id.map(|id| Target { fid: fid(id), ..Default::default() }),
        records: keys
            .iter()
            .map(|key| Record { key: Bytes::copy_from_slice(key.as_bytes()), ..Default::default() })
            .collect(),
        flags: 0,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_vector_is_one_commit() {
    let served = Served::new();
    let handle = served.filled(1, 0).await;
    let store = &served.store;
    let before = store.progress().1;
    let records = |value: u8| {
        (0..5_000u32)
            .map(move |n| NewRecord::new(n.to_be_bytes().to_vec(), vec![value; 1000]))
            .collect::<Vec<_>>()
    };
    let reply = handle.put(records(1), Flag::NoCookies as u32).await.unwrap();
    assert_eq!((reply.count, reply.codes.len()), (5_000, 5_000));
    assert_eq!(store.progress().1, before.next(), "five megabytes, one txn");
    let one = NewRecord::new(3u32.to_be_bytes().to_vec(), "other");
    handle.put(vec![one], 0).await.unwrap();
    // One rejected record undoes all of it.
    let mut vector = records(2);
    for record in &mut vector {
        record.expected = Some(vec![1; 1000].into());
    }
    let reply = handle.put(vector, Flag::AllOrNothing as u32).await.unwrap();
    assert_eq!((reply.applied, reply.count), (false, 0));
    let value = handle.get_one(9u32.to_be_bytes().to_vec()).await.unwrap().unwrap();
    assert_eq!(value, vec![1; 1000]);
    let before = store.progress().1;
    let keys = (0..60_000u32).map(|n| RecordKey::from(n.to_be_bytes().to_vec()));
    let reply = handle.del(keys.collect(), 0).await.unwrap();
    assert_eq!((reply.count, reply.codes.len()), (5_000, 60_000));
    assert_eq!(store.progress().1, before.next());
    assert_eq!(handle.count(None, 0).await.unwrap().records, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_in_several_messages_reads_one_snapshot() {
    let served = Served::new();
    let handle = served.filled(1, 10).await;
    let pad = "x".repeat(300);
    let keys = (0..4_000).map(|n| RecordKey::from(format!("k{:03}{}", n % 10, pad).into_bytes()));
    let mut keys: Vec<RecordKey> = keys.collect();
    keys.extend((0..10).map(|n| key(&format!("k{n:03}"))));
    let found = handle.get(keys, Flag::NoCookies as u32, 0).await.unwrap();
    let (absent, there) = found.split_at(4_000);
    assert!(absent.iter().all(|found| found.code == Code::Absent));
    assert!(there.iter().enumerate().all(|(n, found)| found.value == format!("v{n}")));
    let held = served.service.pin().unwrap();
    assert!(served.service.unpin(held) && !served.service.unpin(held), "nothing stays pinned");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_or_interrupted_stream_applies_nothing() {
    let served = Served::new();
    let handle = served.filled(1, 0).await;
    let mut calls = CataloguesClient::new(Server::new(served.service.clone()).routes());
    let two = iter([message(Some(1), &["a"]), message(Some(2), &["b"])]);
    let refused = calls.put_stream(two).await.unwrap_err();
    assert_eq!(refused.code(), Status::InvalidArgument);
    assert!(refused.message().contains("different catalogues"), "{refused}");
    let none = calls.put_stream(iter([])).await.unwrap_err();
    assert_eq!(none.code(), Status::InvalidArgument);
    let empty = calls.put_stream(iter([message(Some(1), &[])])).await.unwrap_err();
    assert!(empty.message().contains("empty"), "{empty}");

    // A client that disconnects before the end of its stream.
    let (send, receive) = tokio::sync::mpsc::channel(1);
    let stream = tokio_stream::wrappers::ReceiverStream::new(receive);
    let mut broken = calls.clone();
    let call = tokio::spawn(async move { broken.put_stream(stream).await });
    send.send(message(Some(1), &["a"])).await.unwrap();
    send.send(message(None, &["b"])).await.unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    drop(send);
    assert_eq!(handle.count(None, 0).await.unwrap().records, 0);

    let whole = iter([message(Some(1), &["a"]), message(None, &["b"]), message(Some(1), &["c"])]);
    assert_eq!(calls.put_stream(whole).await.unwrap().into_inner().count, 3);
    assert_eq!(handle.count(None, 0).await.unwrap().records, 3);
}
