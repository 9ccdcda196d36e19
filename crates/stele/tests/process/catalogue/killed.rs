//! kill -9 in the middle of a DELETE of many records, and of a streamed PUT.

use std::path::Path;

use bytes::Bytes;
use stele_catalogue::client::{Client, NewRecord, RecordKey};
use stele_catalogue::proto::catalogues_client::CataloguesClient;
use stele_catalogue::proto::{Code, Flag, PutRequest, Record, Target};
use stele_engine::world::World;
use stele_engine::{Options, ScanSpec, Store};
use tokio_stream::wrappers::ReceiverStream;

use super::server::{connect, fid, with_data};

fn is_long() -> bool {
    std::env::var_os("STELE_LONG").is_some()
}

/// Counts the records in all record tables, without a server.
fn stored_records(dir: &Path) -> usize {
    let store = Store::open(dir, Options::default(), World::real()).unwrap();
    let mut rows = 0;
    for (table, name) in store.tables() {
        if name.starts_with("catalogue/records/") {
            store.read(table, ScanSpec::default(), |_| rows += 1).unwrap();
        }
    }
    rows
}

async fn fill(client: &Client, id: u128, records: u32) {
    const COMMIT: u32 = 50_000;
    let catalogue = client.catalogue(fid(id));
    for first in (0..records).step_by(COMMIT as usize) {
        let batch = first..records.min(first + COMMIT);
        let batch = batch.map(|n| NewRecord::new(n.to_be_bytes().to_vec(), vec![n as u8; 20]));
        let flags = Flag::CreateCatalogue as u32 | Flag::NoCookies as u32;
        catalogue.put(batch.collect(), flags).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_of_many_records_goes_on_after_every_kill() {
    let records = if is_long() { 1_000_000 } else { 200_000 };
    let dir = tempfile::tempdir().unwrap();
    let server = with_data(dir.path());
    let client = connect(&server).await;
    fill(&client, 1, records).await;
    fill(&client, 2, 10).await;
    assert_eq!(client.stat(&[fid(1)]).await.unwrap()[0].records, u64::from(records));
    assert_eq!(client.delete(&[fid(1)], 0).await.unwrap().count, 1);
    server.kill();
    // Killed again after every restart, the removal still completes.
    for _ in 0..2 {
        let server = with_data(dir.path());
        let client = connect(&server).await;
        let gone = client.catalogue(fid(1)).get_one("k").await.unwrap_err();
        assert_eq!(gone.code(), tonic::Code::NotFound);
        server.kill();
    }
    let server = with_data(dir.path());
    let client = connect(&server).await;
    client.await_deathrow().await.unwrap();
    let codes = client.lookup(&[fid(1), fid(2)]).await.unwrap().codes;
    assert_eq!(codes, [Code::Retired as i32, Code::Ok as i32]);
    assert_eq!(client.catalogue(fid(2)).count(None, 0).await.unwrap().records, 10);
    server.kill();
    // Ten records and their two totals.
    assert_eq!(stored_records(dir.path()), 12);
}

const MESSAGES: u32 = 20;
const MESSAGE_RECORDS: u32 = 500;

/// Returns one message of a PUT in which every record has the number of the round.
fn message(round: u8, number: u32) -> PutRequest {
    let record = |n: u32| Record {
        key: Bytes::copy_from_slice(&(number * MESSAGE_RECORDS + n).to_be_bytes()),
        value: vec![round; 200].into(),
        ..Default::default()
    };
    let target = Target { fid: fid(1).bytes().to_vec().into(), ..Default::default() };
    PutRequest {
        catalogue: (number == 0).then_some(target),
        records: (0..MESSAGE_RECORDS).map(record).collect(),
        flags: 0,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_put_is_there_whole_or_not_at_all_after_a_kill() {
    let rounds: u8 = if is_long() { 60 } else { 8 };
    let dir = tempfile::tempdir().unwrap();
    let server = with_data(dir.path());
    connect(&server).await.create(&[fid(1)], 0).await.unwrap();
    server.kill();
    let mut kept = 0;
    for round in 1..=rounds {
        let server = with_data(dir.path());
        let mut calls = CataloguesClient::new(server.channel().await);
        let (send, receive) = tokio::sync::mpsc::channel(1);
        let call =
            tokio::spawn(async move { calls.put_stream(ReceiverStream::new(receive)).await });
        // In every other round the server dies before it has received everything.
        let sent = if round % 2 == 0 { MESSAGES } else { u32::from(round) * 2 % MESSAGES };
        for number in 0..sent {
            send.send(message(round, number)).await.unwrap();
        }
        let acknowledged = if sent == MESSAGES {
            drop(send);
            if round % 4 == 0 {
                call.await.unwrap().unwrap();
                server.kill();
                true
            } else {
                // The server dies somewhere in the middle of the work.
                for _ in 0..u32::from(round) * 500 {
                    tokio::task::yield_now().await;
                }
                server.kill();
                call.await.unwrap().is_ok()
            }
        } else {
            server.kill();
            drop(send);
            assert!(call.await.unwrap().is_err());
            false
        };
        let server = with_data(dir.path());
        let catalogue = connect(&server).await.catalogue(fid(1));
        let keys =
            (0..MESSAGES * MESSAGE_RECORDS).map(|n| RecordKey::from(n.to_be_bytes().to_vec()));
        let found = catalogue.get(keys.collect(), Flag::NoCookies as u32, 0).await.unwrap();
        let values: Vec<u8> = found
            .into_iter()
            .map(|found| found.value.joined().first().copied().unwrap_or(0))
            .collect();
        let now = values[0];
        assert!(values.iter().all(|value| *value == now), "round {round}: not whole");
        let whole = sent == MESSAGES && now == round;
        assert!(whole || now == kept, "round {round}: {now} after {kept}");
        assert!(!acknowledged || now == round, "round {round} was acknowledged");
        let stat = connect(&server).await.stat(&[fid(1)]).await.unwrap()[0];
        let records = if now == 0 { 0 } else { u64::from(MESSAGES * MESSAGE_RECORDS) };
        assert_eq!(stat.records, records, "round {round}");
        kept = now;
        server.kill();
    }
}
