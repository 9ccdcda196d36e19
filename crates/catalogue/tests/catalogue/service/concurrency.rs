//! Concurrent readers and writers.

use super::served::*;
use bytes::Bytes;
use stele_catalogue::client::{NewRecord, RecordKey};
use stele_catalogue::proto::*;

const WRITERS: u64 = 4;
const ROUNDS: u64 = 60;

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

/// Returns records with these keys and the same value.
fn vector(keys: &[String], value: u64) -> Vec<NewRecord> {
    let value = value.to_be_bytes().to_vec();
    keys.iter().map(|key| NewRecord::new(key.clone().into_bytes(), value.clone())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_vector_is_seen_whole_or_not_at_all() {
    let served = Served::new();
    let handle = served.filled(1, 0).await;
    let keys: Vec<String> = (0..8).map(|n| format!("key{n}")).collect();
    handle.put(vector(&keys, 0), 0).await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (handle, keys) = (handle.clone(), keys.clone());
        writers.spawn(async move {
            for round in 1..=ROUNDS {
                handle.put(vector(&keys, round * WRITERS + writer), 0).await.unwrap();
            }
        });
    }
    while !writers.is_empty() {
        while let Some(written) = writers.try_join_next() {
            written.unwrap();
        }
        let found = handle.get(keys.iter().map(|k| key(k)).collect(), 0, 0).await.unwrap();
        let values: Vec<u64> =
            found.into_iter().map(|found| number(&found.value.joined())).collect();
        assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
        let walked = handle.next(from(vec![start("key0", 8)], 0)).await.unwrap();
        assert_eq!(groups(walked).await[0].0.len(), 8);
        tokio::task::yield_now().await;
    }
    let stat = served.client.stat(&[fid(1)]).await.unwrap()[0];
    assert_eq!((stat.records, stat.bytes), (8, 8 * (4 + 8)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_conditional_puts_lose_no_increment() {
    let served = Served::new();
    let handle = served.filled(1, 0).await;
    handle.put(vec![NewRecord::new("n", 0u64.to_be_bytes().to_vec())], 0).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..WRITERS {
        let handle = handle.clone();
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                loop {
                    let value = handle.get_one("n").await.unwrap().unwrap().joined();
                    let next = (number(&value) + 1).to_be_bytes().to_vec();
                    let put =
                        NewRecord { expected: Some(value.into()), ..NewRecord::new("n", next) };
                    let reply = handle.put(vec![put], 0).await.unwrap();
                    if reply.count == 1 {
                        break;
                    }
                    assert_eq!(codes(reply.codes()), [Code::Unexpected]);
                }
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let value = handle.get_one("n").await.unwrap().unwrap().joined();
    assert_eq!(number(&value), WRITERS * ROUNDS);
}

/// Each task owns keys in shared catalogues and knows their values, while catalogues of
/// other tasks are created and deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_find_their_records_while_catalogues_are_created_and_deleted() {
    let served = Served::new();
    let handle = served.filled(1, 0).await;
    stele_catalogue::Collector::start(&served.service).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..WRITERS {
        let (handle, client) = (handle.clone(), served.client.clone());
        tasks.spawn(async move {
            let mut kept = std::collections::BTreeMap::new();
            for round in 0..ROUNDS {
                let key = |n: u64| Bytes::from(format!("task{task}/{:02}", n % 7));
                let put = vec![
                    NewRecord::new(key(round), round.to_be_bytes().to_vec()),
                    NewRecord::new(key(round * 3), round.to_be_bytes().to_vec()),
                ];
                handle.put(put, 0).await.unwrap();
                kept.insert(key(round), round);
                kept.insert(key(round * 3), round);
                if round % 5 == 4 {
                    let gone = RecordKey::from(key(round));
                    let reply = handle.del(vec![gone], 0).await.unwrap();
                    assert_eq!(reply.count, 1);
                    kept.remove(&key(round));
                }
                if round % 10 == 0 {
                    let own = fid(100 + u128::from(task * ROUNDS + round));
                    client.create(&[own], 0).await.unwrap();
                    client.catalogue(own).put(vec![record("k", "v")], 0).await.unwrap();
                    assert_eq!(client.delete(&[own], 0).await.unwrap().count, 1);
                }
                let within = Range { prefix: format!("task{task}/").into(), ..Default::default() };
                let count = handle.count(Some(within), 0).await.unwrap();
                assert_eq!(count.records as usize, kept.len());
            }
            for (key, value) in &kept {
                let found = handle.get_one(key.clone()).await.unwrap().unwrap();
                assert_eq!(number(&found.joined()), *value);
            }
            kept.len() as u64
        });
    }
    let mut records = 0;
    while let Some(task) = tasks.join_next().await {
        records += task.unwrap();
    }
    assert_eq!(served.client.stat(&[fid(1)]).await.unwrap()[0].records, records);
    served.client.await_deathrow().await.unwrap();
    let listed = served.client.list(None, 100, 0).await.unwrap();
    assert_eq!(listed.catalogues.len(), 4, "the catalogues of the service, and the shared one");
}

/// Writers race with the deletion of their catalogue: each write succeeds before it or
/// fails after it, and no records are left.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_record_survives_the_deletion_that_it_races_with() {
    let served = Served::new();
    for round in 0..10 {
        let handle = served.filled(round, 0).await;
        let (began, mut begun) = tokio::sync::mpsc::channel(1);
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let (handle, began) = (handle.clone(), began.clone());
            writers.spawn(async move {
                for number in 0.. {
                    let key = format!("{writer}/{number}").into_bytes();
                    match handle.put(vec![NewRecord::new(key, "v")], 0).await {
                        Ok(reply) => assert_eq!(reply.count, 1),
                        Err(status) => return status.code(),
                    }
                    // Only the first one is awaited.
                    let _ = began.try_send(());
                }
                unreachable!("the catalogue is deleted before the numbers run out")
            });
        }
        begun.recv().await.unwrap();
        assert_eq!(served.client.delete(&[fid(round)], 0).await.unwrap().count, 1);
        while let Some(ended) = writers.join_next().await {
            assert_eq!(ended.unwrap(), tonic::Code::NotFound);
        }
        while served.service.collect_step().unwrap() {}
        assert_eq!(stored_records(&served), 0, "round {round}");
    }
}
