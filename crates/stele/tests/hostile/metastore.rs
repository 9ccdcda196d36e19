//! Attacks on the metastore: keys over the limits, huge deletions, stalled watchers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stele_metastore::client::{At, Client, Error, Mode, Range, Transaction};
use tonic::Code;

use crate::support::{Server, TIMEOUT};

const MEMORY_MIB: u64 = 256;

fn start(dir: &std::path::Path) -> Server {
    Server::with_data(dir, &["--metastore-port", "0", "--memory", &format!("{MEMORY_MIB}MiB")])
}

async fn client(server: &Server) -> Client {
    Client::connect(&format!("http://{}", server.address("metastore"))).await.unwrap()
}

/// Asserts the bound on resident memory when no message is larger than a few MiB.
fn assert_memory(server: &Server) {
    let (peak, limit) = (server.peak_rss() >> 20, MEMORY_MIB * 5 / 4 + 64 + 24);
    assert!(peak <= limit, "{peak} MiB resident, at most {limit} MiB are allowed");
}

fn code<T>(outcome: Result<T, Error>) -> Option<Code> {
    match outcome {
        Err(Error::Refused { code, .. }) => Some(Code::from_i32(code)),
        _ => None,
    }
}

#[tokio::test]
async fn poisoned_keys_are_refused_and_the_server_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let client = client(&server).await;
    client.put("before", "1").await.unwrap();
    let session = client.session(60).await.unwrap();
    let long = |bytes: usize| vec![b'k'; bytes];
    for bytes in [(4 << 20) + 1, 5 << 20, 7 << 20] {
        assert_eq!(code(client.put(long(bytes), "").await), Some(Code::InvalidArgument), "{bytes}");
        let acquired = session.try_acquire(long(bytes), Mode::Exclusive).await.map(drop);
        assert_eq!(code(acquired), Some(Code::InvalidArgument), "{bytes}");
        let put = async |transaction: Transaction| {
            transaction.put(long(bytes), "");
            Ok(())
        };
        assert!(client.transact(put).await.is_err(), "{bytes}");
    }
    // The maximum length of a row key, and so too long for the rows of a lock.
    let acquired = session.try_acquire(long(4 << 20), Mode::Exclusive).await.map(drop);
    assert_eq!(code(acquired), Some(Code::InvalidArgument));
    client.put("after", "2").await.unwrap();
    assert!(server.get("/health").0.contains("200"));
    drop(server);
    let server = start(dir.path());
    let client = self::client(&server).await;
    assert_eq!(client.get("after", 0).await.unwrap().unwrap().value, "2");
    client.put("again", "3").await.unwrap();
}

/// Puts many keys under a prefix.
async fn fill(client: &Client, keys: usize) {
    const BATCH: usize = 4_000;
    for first in (0..keys).step_by(BATCH) {
        let put = async |transaction: Transaction| {
            for at in first..keys.min(first + BATCH) {
                transaction.put(format!("many/{at:08}"), format!("value of key {at}"));
            }
            Ok(())
        };
        client.transact(put).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_of_very_many_keys_keeps_memory_and_other_clients() {
    let keys = if std::env::var_os("STELE_LONG").is_some() { 1_000_000 } else { 60_000 };
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let client = client(&server).await;
    fill(&client, keys).await;
    client.put("other", "1").await.unwrap();
    let deleted = Arc::new(AtomicBool::new(false));
    let (reader, done) = (client.clone(), deleted.clone());
    let reads = tokio::spawn(async move {
        let mut reads = 0;
        while !done.load(Ordering::Acquire) {
            assert_eq!(reader.get("other", 0).await.unwrap().unwrap().value, "1");
            reads += 1;
        }
        reads
    });
    let before = client.snapshot(At::Newest).await.unwrap();
    let mut watch = client.watch(&Range::prefix("many/"), before + 1).await.unwrap();
    let count = tokio::time::timeout(10 * TIMEOUT, client.delete(&Range::prefix("many/"))).await;
    assert_eq!(count.unwrap().unwrap(), keys as i64);
    deleted.store(true, Ordering::Release);
    assert!(reads.await.unwrap() > 0, "others are answered meanwhile");
    assert_eq!(client.snapshot(At::Newest).await.unwrap(), before + 1, "it is one revision");
    for at in 0..keys {
        let event = tokio::time::timeout(TIMEOUT, watch.next()).await.unwrap().unwrap();
        assert_eq!(event.key, format!("many/{at:08}"));
    }
    client.put("other", "2").await.unwrap();
    assert_memory(&server);
    drop(server);
    let server = start(dir.path());
    let client = self::client(&server).await;
    let left = client.get_range(&Range::prefix(""), 0, 10).await.unwrap();
    assert_eq!(left.count, 1);
    assert_memory(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_watchers_of_large_values_cost_no_memory() {
    const VALUES: usize = 96;
    const WATCHERS: usize = 16;
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let client = client(&server).await;
    let first = client.put("large", vec![0; 1 << 20]).await.unwrap();
    let mut watches = Vec::new();
    for _ in 0..WATCHERS {
        watches.push(self::client(&server).await.watch(&Range::key("large"), first).await.unwrap());
    }
    for at in 1..VALUES {
        client.put("large", vec![at as u8; 1 << 20]).await.unwrap();
    }
    // Nobody has read yet, so all watchers lag behind the events kept in memory.
    assert_memory(&server);
    let mut watch = watches.pop().unwrap();
    for at in 0..VALUES as i64 {
        let event = tokio::time::timeout(TIMEOUT, watch.next()).await.unwrap().unwrap();
        assert_eq!(event.revision, first + at);
    }
    assert_memory(&server);
}
