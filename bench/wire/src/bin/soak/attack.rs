//! Hostile clients. Each attack misbehaves in one way on its own connections for a
//! while, and is repeated until the soak ends.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as bt;
use stele_bench_wire::Rng;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::Streaming;

use crate::load::LARGE_ROW;
use crate::{FAMILY, ROWS, TABLE, client, filter, key, rows_of, set_cell};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Scans with a filter that matches nothing, some of them cancelled.
    NoMatchScans,
    /// Messages of empty mutations, small on the wire and large after decoding.
    DecodeBombs,
    /// Readers of a large cell that stop reading.
    StalledReaders,
    /// Calls that announce 256 MiB and send nothing more.
    SlowBodies,
    /// Connections that send only part of the HTTP/2 preface.
    HalfPrefaces,
    /// Filters with many expensive patterns.
    ExpensiveFilters,
    /// Conditional writes that all contend for one row.
    ContendedRow,
    /// One column that is repeatedly set and deleted.
    Tombstones,
}

const ALL: [Attack; 8] = [
    Attack::NoMatchScans,
    Attack::DecodeBombs,
    Attack::StalledReaders,
    Attack::SlowBodies,
    Attack::HalfPrefaces,
    Attack::ExpensiveFilters,
    Attack::ContendedRow,
    Attack::Tombstones,
];

/// Returns the attacks in a list of names, or all of them.
pub fn chosen(names: &str) -> Result<impl Iterator<Item = Attack>> {
    let mut chosen = Vec::new();
    for name in names.split(',') {
        match ALL.iter().find(|attack| format!("{attack:?}").eq_ignore_ascii_case(name)) {
            Some(attack) => chosen.push(*attack),
            None if name == "all" => chosen.extend(ALL),
            None if name == "none" => {}
            None => bail!("unknown attack {name:?}: use all, none, or names from {ALL:?}"),
        }
    }
    Ok(chosen.into_iter())
}

/// Repeats an attack with random pauses. The server is expected to terminate or reject
/// it.
pub async fn repeat(attack: Attack, target: String, seed: u64, until: Instant) {
    let mut rng = Rng::new(seed);
    while Instant::now() < until {
        let _ = timeout(Duration::from_secs(90), once(attack, &target, &mut rng)).await;
        sleep(Duration::from_millis(100 + rng.below(3_000))).await;
    }
}

/// Keeps `scans` scans that match nothing and `readers` stalled readers of a large cell
/// running: each one that ends is started again.
pub fn spawn_steady(
    tasks: &mut JoinSet<()>,
    target: &str,
    scans: usize,
    readers: usize,
    until: Instant,
) {
    for _ in 0..scans {
        let target = target.to_string();
        tasks.spawn(async move {
            while Instant::now() < until {
                if no_match_scan(&target).await.is_err() {
                    sleep(Duration::from_millis(100)).await;
                }
            }
        });
    }
    for _ in 0..readers {
        let target = target.to_string();
        tasks.spawn(async move {
            while Instant::now() < until {
                let stalled = stalled_reader(&target).await;
                // Longer than the server lets a reader stall.
                sleep(Duration::from_secs(if stalled.is_ok() { 70 } else { 1 })).await;
            }
        });
    }
}

async fn once(attack: Attack, target: &str, rng: &mut Rng) -> Result<()> {
    match attack {
        Attack::NoMatchScans => no_match_scans(target, rng).await,
        Attack::DecodeBombs => decode_bomb(target, rng).await,
        Attack::StalledReaders => stalled_readers(target, rng).await,
        Attack::SlowBodies => slow_body(target, rng).await,
        Attack::HalfPrefaces => half_prefaces(target, rng).await,
        Attack::ExpensiveFilters => expensive_filter(target, rng).await,
        Attack::ContendedRow => contended_row(target).await,
        Attack::Tombstones => tombstones(target).await,
    }
}

async fn no_match_scans(target: &str, rng: &mut Rng) -> Result<()> {
    let mut scans = JoinSet::new();
    for _ in 0..8 {
        let target = target.to_string();
        let limit = Duration::from_millis(if rng.below(2) == 0 { 30 } else { 60_000 });
        scans.spawn(async move {
            let _ = timeout(limit, no_match_scan(&target)).await;
        });
    }
    while scans.join_next().await.is_some() {}
    Ok(())
}

async fn no_match_scan(target: &str) -> Result<()> {
    let pattern = Bytes::from_static(b"nothing has this value");
    let request = bt::ReadRowsRequest {
        table_name: TABLE.into(),
        filter: filter(bt::row_filter::Filter::ValueRegexFilter(pattern)),
        ..Default::default()
    };
    let mut rows = client(target).await?.read_rows(request).await?.into_inner();
    while rows.message().await?.is_some() {}
    Ok(())
}

/// Sends one call as raw frames, with the given method and message.
async fn call_raw(target: &str, method: &str, frame: Bytes, hold: Duration) -> Result<()> {
    let tcp = TcpStream::connect(target).await?;
    let (sender, connection) = h2::client::handshake(tcp).await?;
    let connection = tokio::spawn(connection);
    let request =
        http::Request::post(format!("http://{target}/google.bigtable.v2.Bigtable/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
    let (response, mut body) = sender.ready().await?.send_request(request, false)?;
    body.send_data(frame, false)?;
    let _ = timeout(hold, response).await;
    connection.abort();
    Ok(())
}

fn framed(announced: usize, sent: &[u8]) -> Bytes {
    let length = u32::try_from(announced).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], sent].concat().into()
}

async fn decode_bomb(target: &str, rng: &mut Rng) -> Result<()> {
    // Field 3 of MutateRow is a mutation; this one is empty.
    let empty: &[u8] = &[0x1A, 0x00];
    let bytes = 1usize << (16 + rng.below(7));
    let message = empty.repeat(bytes / 2);
    call_raw(target, "MutateRow", framed(message.len(), &message), Duration::from_secs(20)).await
}

async fn stalled_readers(target: &str, rng: &mut Rng) -> Result<()> {
    let mut readers = Vec::new();
    for _ in 0..32 {
        readers.extend(stalled_reader(target).await);
    }
    sleep(Duration::from_secs(rng.below(70))).await;
    drop(readers);
    Ok(())
}

/// Starts to read a large cell. The reader stalls until it is dropped.
async fn stalled_reader(target: &str) -> Result<Streaming<bt::ReadRowsResponse>> {
    let rows = rows_of(vec![LARGE_ROW.into()]);
    let request = bt::ReadRowsRequest { table_name: TABLE.into(), rows, ..Default::default() };
    let mut client = client(target).await?;
    let answer = timeout(Duration::from_secs(5), client.read_rows(request)).await??;
    Ok(answer.into_inner())
}

async fn slow_body(target: &str, rng: &mut Rng) -> Result<()> {
    let hold = Duration::from_secs(5 + rng.below(60));
    call_raw(target, "MutateRows", framed(256 << 20, &[]), hold).await
}

async fn half_prefaces(target: &str, rng: &mut Rng) -> Result<()> {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let mut connections = Vec::new();
    for _ in 0..64 {
        let mut connection = TcpStream::connect(target).await?;
        let sent = rng.below(preface.len() as u64) as usize;
        connection.write_all(&preface[..sent]).await?;
        connections.push(connection);
    }
    sleep(Duration::from_secs(rng.below(30))).await;
    drop(connections);
    Ok(())
}

async fn expensive_filter(target: &str, rng: &mut Rng) -> Result<()> {
    let pattern = |number: u64| Bytes::from(format!("{}{number}", r"\pP{1000}".repeat(30)));
    let one = |number| bt::RowFilter {
        filter: Some(bt::row_filter::Filter::ValueRegexFilter(pattern(number))),
    };
    let chain = bt::row_filter::Chain { filters: (0..50 + rng.below(20)).map(one).collect() };
    let request = bt::ReadRowsRequest {
        table_name: TABLE.into(),
        filter: filter(bt::row_filter::Filter::Chain(chain)),
        ..Default::default()
    };
    let mut client = client(target).await?;
    let mut rows = client.read_rows(request).await?.into_inner();
    while rows.message().await?.is_some() {}
    Ok(())
}

async fn contended_row(target: &str) -> Result<()> {
    let mut callers = JoinSet::new();
    for _ in 0..32 {
        let mut client = client(target).await?;
        callers.spawn(async move {
            for _ in 0..50 {
                let request = bt::CheckAndMutateRowRequest {
                    table_name: TABLE.into(),
                    row_key: key(ROWS),
                    predicate_filter: filter(bt::row_filter::Filter::PassAllFilter(true)),
                    true_mutations: vec![set_cell("n", Bytes::from_static(b"1"))],
                    false_mutations: vec![set_cell("n", Bytes::from_static(b"0"))],
                    ..Default::default()
                };
                let _ = client.check_and_mutate_row(request).await;
            }
        });
    }
    while callers.join_next().await.is_some() {}
    Ok(())
}

async fn tombstones(target: &str) -> Result<()> {
    let delete = bt::mutation::DeleteFromColumn {
        family_name: FAMILY.into(),
        column_qualifier: Bytes::from_static(b"hot"),
        time_range: None,
    };
    let delete = bt::Mutation { mutation: Some(bt::mutation::Mutation::DeleteFromColumn(delete)) };
    let pair = [delete, set_cell("hot", Bytes::from_static(b"value"))];
    let request = bt::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: key(ROWS + 1),
        mutations: pair.iter().cycle().take(20_000).cloned().collect(),
        ..Default::default()
    };
    client(target).await?.mutate_row(request).await?;
    Ok(())
}
