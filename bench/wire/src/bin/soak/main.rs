//! A soak test: ordinary load and hostile clients on one server for a long time, while
//! a well-behaved client measures its own latency and the server's memory is sampled.
//! Writes a sample per second as CSV and a plot next to it, and fails if a call of the
//! well-behaved client failed or the memory limit was exceeded.
//!
//! With `--scans N --stalled M` there is no ordinary load, and N scans without a match
//! and M stalled readers run at all times instead of random attacks.

mod attack;
mod honest;
mod load;
mod record;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2 as bt;
use stele_bench_wire::Flags;
use tonic::transport::{Channel, Endpoint};

pub type Client = bt::bigtable_client::BigtableClient<Channel>;

const FLAGS: &[&str] = &[
    "target",
    "server-pid",
    "seconds",
    "memory-mib",
    "csv",
    "seed",
    "attacks",
    "scans",
    "stalled",
];
const INSTANCE: &str = "projects/p/instances/i";
pub const TABLE: &str = "projects/p/instances/i/tables/soak";
pub const FAMILY: &str = "cf";
/// Number of rows in the table that all clients read and write.
pub const ROWS: u64 = 20_000;
/// The largest message that a client sends or receives.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let flags = Flags::parse(FLAGS);
    let target = flags.text("target", "127.0.0.1:8086");
    let pid: u32 = flags.get("server-pid", 0);
    ensure!(pid != 0, "missing --server-pid: the soak samples the memory of that process");
    let seconds = Duration::from_secs(flags.get("seconds", 1200));
    let memory_bytes = flags.get::<u64>("memory-mib", 512) << 20;
    let csv = PathBuf::from(flags.text("csv", "docs/soak.csv"));
    let seed: u64 = flags.get("seed", 1);

    load::prepare(&target).await.context("preparing the table")?;
    let until = Instant::now() + seconds;
    let mut tasks = tokio::task::JoinSet::new();
    let (scans, stalled) = (flags.get("scans", 0), flags.get("stalled", 0));
    if scans + stalled > 0 {
        attack::spawn_steady(&mut tasks, &target, scans, stalled, until);
    } else {
        load::spawn(&mut tasks, &target, seed, until).await?;
        for (number, attack) in attack::chosen(&flags.text("attacks", "all"))?.enumerate() {
            let seed = seed + 1_000 + number as u64;
            tasks.spawn(attack::repeat(attack, target.clone(), seed, until));
        }
    }
    let course = honest::run(&target, pid, until).await?;
    tasks.shutdown().await;

    record::write(&course.samples, &csv)?;
    let bound = memory_bytes * 5 / 4 + (64 << 20) + 3 * MESSAGE_BYTES_MAX;
    record::judge(&course, bound)
}

/// Opens a new connection.
pub async fn connect(target: &str) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{target}"))?;
    Ok(endpoint.tcp_nodelay(true).connect_timeout(Duration::from_secs(10)).connect().await?)
}

pub async fn client(target: &str) -> Result<Client> {
    Ok(Client::new(connect(target).await?).max_decoding_message_size(256 << 20))
}

pub fn key(number: u64) -> bytes::Bytes {
    format!("row{number:08}").into()
}

pub fn set_cell(qualifier: &str, value: bytes::Bytes) -> bt::Mutation {
    let cell = bt::mutation::SetCell {
        family_name: FAMILY.into(),
        column_qualifier: qualifier.to_string().into(),
        // The server's clock.
        timestamp_micros: -1,
        value,
    };
    bt::Mutation { mutation: Some(bt::mutation::Mutation::SetCell(cell)) }
}

pub fn rows_of(keys: Vec<bytes::Bytes>) -> Option<bt::RowSet> {
    Some(bt::RowSet { row_keys: keys, row_ranges: vec![] })
}

pub fn filter(filter: bt::row_filter::Filter) -> Option<bt::RowFilter> {
    Some(bt::RowFilter { filter: Some(filter) })
}
