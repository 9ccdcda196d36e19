//! A value is copied once on the write path and once on the read path.

use super::served::*;
use bytes::Bytes;
use prost::Message;
use stele_catalogue::client::{NewRecord, RecordKey, Step, WalkStart};
use stele_catalogue::proto::{Code, GetReply, NextReply, PutRequest, Record};

const BYTES: usize = 300_000;

fn in_pieces(byte: u8, bytes: usize) -> Vec<Bytes> {
    vec![Bytes::from(vec![byte; bytes / 3]); 3]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_copied_once_in_each_direction() {
    let served = Served::new();
    let handle = served.filled(1, 0).await;
    let copied = || served.service.counts().copied_bytes as usize;
    let before = copied();
    handle.put(vec![NewRecord::new("k", in_pieces(1, BYTES))], 0).await.unwrap();
    assert_eq!(copied() - before, BYTES, "from the message into the commit");
    let value = handle.get_one("k").await.unwrap().unwrap();
    assert_eq!((value.len(), copied() - before), (BYTES, 2 * BYTES), "from the engine to the wire");
    groups(handle.next(from(vec![start("k", 1)], 0)).await.unwrap()).await;
    assert_eq!(copied() - before, 3 * BYTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_values_in_segments_equal_the_joined_ones() {
    const KEY_BYTES: usize = 30_000;
    let served = Served::new();
    let handle = served.filled(1, 0).await;
    let key = || in_pieces(7, KEY_BYTES);
    handle.put(vec![NewRecord::new(key(), in_pieces(1, BYTES))], 0).await.unwrap();
    assert_eq!(handle.get_one(key()).await.unwrap().unwrap(), vec![1; BYTES]);
    assert_eq!(handle.get_one(vec![7; KEY_BYTES]).await.unwrap().unwrap(), vec![1; BYTES]);
    let mut records = handle.next(from(vec![WalkStart::at(key(), 1)], 0)).await.unwrap();
    let Some(Step::Record { key: found, .. }) = records.next().await.unwrap() else {
        panic!("the start exists");
    };
    assert_eq!(found, vec![7; KEY_BYTES]);
    let copied = served.service.counts().copied_bytes;
    let other = RecordKey { expected: Some(in_pieces(2, BYTES).into()), ..key().into() };
    let kept = handle.del(vec![other], 0).await.unwrap();
    assert_eq!(codes(kept.codes()), [Code::Unexpected]);
    let same = RecordKey { expected: Some(in_pieces(1, BYTES).into()), ..key().into() };
    assert_eq!(handle.del(vec![same], 0).await.unwrap().count, 1);
    assert_eq!(served.service.counts().copied_bytes, copied, "no value was copied");
}

#[test]
fn decoded_keys_and_values_are_slices_of_their_message() {
    let value = Bytes::from(vec![7; 100_000]);
    let record = Record { key: "key".into(), value: value.clone(), ..Default::default() };
    let wire =
        Bytes::from(PutRequest { records: vec![record], ..Default::default() }.encode_to_vec());
    let read = PutRequest::decode(wire.clone()).unwrap();
    let inside = |piece: &Bytes, wire: &Bytes| wire.as_ptr_range().contains(&piece.as_ptr());
    assert!(inside(&read.records[0].value, &wire) && inside(&read.records[0].key, &wire));

    let found = stele_catalogue::proto::Found { value: value.clone(), ..Default::default() };
    let wire = Bytes::from(GetReply { found: vec![found], ..Default::default() }.encode_to_vec());
    assert!(inside(&GetReply::decode(wire.clone()).unwrap().found[0].value, &wire));

    let item = stele_catalogue::proto::Item { value, ..Default::default() };
    let group = stele_catalogue::proto::Group { records: vec![item], ..Default::default() };
    let wire = Bytes::from(NextReply { groups: vec![group], ..Default::default() }.encode_to_vec());
    assert!(inside(&NextReply::decode(wire.clone()).unwrap().groups[0].records[0].value, &wire));
}
