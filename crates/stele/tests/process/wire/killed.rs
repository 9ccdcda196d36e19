//! A server that is killed under load repeatedly, at random points: acknowledged writes
//! survive, no write is partial, and every client's history is linearizable.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stele_bigtable::proto::v2;
use stele_bigtable::proto::v2::mutate_rows_request::Entry;
use stele_bigtable::proto::v2::row_range::{EndKey, StartKey};
use tokio::sync::Semaphore;
use tonic::Status;

use super::calls::{Client, send, set};
use super::linear::{self, Event};
use super::row::Call;
use super::server::{make_table, with_data};
use crate::support::{Server, TABLE};

const CLIENTS: u64 = 8;
/// The number of rows that all clients contend for.
const ROWS: u64 = 4;
/// The maximum number of acknowledged calls in a round before the server is killed.
const ACKS_MAX: u64 = 400;
const BULK_ROWS: usize = 20;
const BULK_VALUE_BYTES: usize = 2000;
const BULK_COLUMNS: [&str; 3] = ["x", "y", "z"];

fn rounds() -> u64 {
    if std::env::var_os("STELE_LONG").is_some() { 1000 } else { 40 }
}

/// A seeded pseudo-random generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The state that all clients of a round share.
struct Round {
    clock: Arc<AtomicU64>,
    /// One permit for each acknowledged call.
    acks: Semaphore,
    /// Set before the kill: from then on, calls may fail.
    dying: AtomicBool,
}

impl Round {
    /// Returns the next tick, larger than all earlier ones on any thread.
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Counts a call. Returns whether the client continues.
    fn ended<T>(&self, outcome: &Result<T, Status>) -> bool {
        match outcome {
            Ok(_) => self.acks.add_permits(1),
            Err(status) => {
                assert!(self.dying.load(Ordering::SeqCst), "failed while all was well: {status}");
            }
        }
        outcome.is_ok()
    }
}

type Histories = BTreeMap<String, Vec<Event>>;

/// Reads and writes rows in contention with other clients until the server is gone. A
/// call without a response ends with the server, at `u64::MAX`.
async fn contend(round: Arc<Round>, mut client: Client, mut dice: Dice) -> Histories {
    let mut histories = Histories::new();
    loop {
        let key = format!("row/{}", dice.below(ROWS));
        let value = dice.below(5);
        let call = match dice.below(10) {
            0..3 => Call::Set(value),
            3 => Call::Delete,
            4..6 => Call::Increment(1),
            6..8 => Call::Swap { from: value, to: dice.below(5) },
            _ => Call::Read,
        };
        let begun = round.tick();
        let answer = send(&mut client, &key, call).await;
        let ended = if answer.is_ok() { round.tick() } else { u64::MAX };
        let goes_on = round.ended(&answer);
        // An unanswered read observes nothing and has no effect.
        if goes_on || call != Call::Read {
            let event = Event { call, begun, ended, answer: answer.ok() };
            histories.entry(key).or_default().push(event);
        }
        if !goes_on {
            return histories;
        }
    }
}

/// Writes new rows in bulk until the server is gone. Returns the acknowledged rows.
async fn fill(round: Arc<Round>, mut client: Client, number: u64) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    for batch in 0.. {
        let keys: Vec<String> =
            (0..BULK_ROWS).map(|row| format!("bulk/{number:04}/{batch:06}/{row:02}")).collect();
        let outcome = write_all(&mut client, &keys).await;
        if !round.ended(&outcome) {
            break;
        }
        acknowledged.extend(keys);
    }
    acknowledged
}

async fn write_all(client: &mut Client, keys: &[String]) -> Result<(), Status> {
    let entries = keys.iter().map(|key| Entry {
        row_key: key.clone().into(),
        mutations: BULK_COLUMNS.map(|column| set(column, bulk_value(key))).into(),
        ..Default::default()
    });
    let request = v2::MutateRowsRequest {
        table_name: TABLE.into(),
        entries: entries.collect(),
        ..Default::default()
    };
    let mut stream = client.mutate_rows(request).await?.into_inner();
    let mut answered = 0;
    while let Some(message) = stream.message().await? {
        answered += message.entries.len();
        assert!(message.entries.iter().all(|entry| entry.status.as_ref().unwrap().code == 0));
    }
    assert_eq!(answered, keys.len(), "every entry is answered once");
    Ok(())
}

fn bulk_value(key: &str) -> Vec<u8> {
    key.bytes().cycle().take(BULK_VALUE_BYTES).collect()
}

/// Asserts that a round's rows are complete and that no acknowledged row is missing.
async fn check_bulk(client: &mut Client, number: u64, acknowledged: &BTreeSet<String>) {
    let range = v2::RowRange {
        start_key: Some(StartKey::StartKeyClosed(format!("bulk/{number:04}/").into())),
        end_key: Some(EndKey::EndKeyOpen(format!("bulk/{number:04}0").into())),
    };
    let request = v2::ReadRowsRequest {
        table_name: TABLE.into(),
        rows: Some(v2::RowSet { row_keys: vec![], row_ranges: vec![range] }),
        ..Default::default()
    };
    let mut stream = client.read_rows(request).await.unwrap().into_inner();
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut key = String::new();
    while let Some(message) = stream.message().await.unwrap() {
        for chunk in message.chunks {
            if !chunk.row_key.is_empty() {
                key = String::from_utf8(chunk.row_key.to_vec()).unwrap();
            }
            assert_eq!(chunk.value, bulk_value(&key), "the value of {key} is not what was written");
            *found.entry(key.clone()).or_default() += 1;
        }
    }
    for (key, cells) in &found {
        assert_eq!(*cells, BULK_COLUMNS.len(), "only a part of {key} was written");
    }
    let missing: Vec<_> = acknowledged.iter().filter(|key| !found.contains_key(*key)).collect();
    assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
}

/// Starts the clients of a round and kills the server under them. Returns what they
/// observed.
async fn load_and_kill(
    server: Server,
    clock: Arc<AtomicU64>,
    number: u64,
    dice: &mut Dice,
) -> (Histories, BTreeSet<String>) {
    let round = Arc::new(Round { clock, acks: Semaphore::new(0), dying: AtomicBool::new(false) });
    let filling = tokio::spawn(fill(round.clone(), server.client().await, number));
    let mut contending = Vec::new();
    for _ in 0..CLIENTS {
        let client = server.client().await;
        contending.push(tokio::spawn(contend(
            round.clone(),
            client,
            Dice(1 + dice.below(1 << 40)),
        )));
    }
    let acks = 1 + dice.below(ACKS_MAX);
    round.acks.acquire_many(acks.try_into().unwrap()).await.unwrap().forget();
    round.dying.store(true, Ordering::SeqCst);
    tokio::task::spawn_blocking(|| server.kill()).await.unwrap();
    // The server is dead, so unanswered calls can no longer take effect.
    let mut histories = Histories::new();
    for task in contending {
        for (key, mut events) in task.await.unwrap() {
            histories.entry(key).or_default().append(&mut events);
        }
    }
    let acknowledged = filling.await.unwrap();
    let dead = round.tick();
    for event in histories.values_mut().flatten() {
        event.ended = event.ended.min(dead);
    }
    (histories, acknowledged)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_has_a_history_that_some_order_explains_over_kills() {
    let seed = std::env::var("STELE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(42);
    println!("STELE_SEED={seed}");
    let mut dice = Dice(seed);
    let clock = Arc::new(AtomicU64::new(1));
    let dir = tempfile::tempdir().unwrap();
    let mut histories = Histories::new();
    let mut acknowledged = vec![BTreeSet::new()];
    for number in 0..=rounds() {
        let server = with_data(dir.path());
        let mut client = server.client().await;
        match number {
            0 => make_table(&server).await,
            _ => check_bulk(&mut client, number - 1, &acknowledged[number as usize]).await,
        }
        for row in 0..ROWS {
            let key = format!("row/{row}");
            let begun = clock.fetch_add(1, Ordering::SeqCst);
            let answer = Some(send(&mut client, &key, Call::Read).await.unwrap());
            let ended = clock.fetch_add(1, Ordering::SeqCst);
            let event = Event { call: Call::Read, begun, ended, answer };
            histories.entry(key).or_default().push(event);
        }
        if number == rounds() {
            for (at, acknowledged) in acknowledged.iter().skip(1).enumerate() {
                check_bulk(&mut client, at as u64, acknowledged).await;
            }
            break;
        }
        let (recorded, written) = load_and_kill(server, clock.clone(), number, &mut dice).await;
        for (key, mut events) in recorded {
            histories.entry(key).or_default().append(&mut events);
        }
        acknowledged.push(written);
    }
    for (key, history) in &histories {
        println!("{key}: {} calls", history.len());
        linear::check(history).unwrap_or_else(|stuck| panic!("{key}: {stuck:#?}"));
    }
    let verified = Command::new(env!("CARGO_BIN_EXE_stele"))
        .args(["engine", "verify", dir.path().to_str().unwrap()])
        .output()
        .unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}
