//! Benchmarks catalogues: in process against LMDB and RocksDB, and over gRPC against a
//! server that streams the same bytes and does no other work. Records are 16 B + 100 B,
//! all cached.

mod data;
mod growth;
mod local;
mod meter;
mod remote;
mod rivals;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use self::local::Local;

#[derive(Parser)]
#[command(about = "Benchmark catalogues against LMDB, RocksDB and a stream that does no work")]
struct Args {
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// Seconds that each measurement takes.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// What to measure; everything if omitted.
    #[arg(long, value_enum, value_delimiter = ',')]
    parts: Vec<Part>,
    /// Directory for the data, reused by the next run instead of loading again; a
    /// temporary directory if omitted.
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Only load the data.
    Load,
    /// The service in process.
    Local,
    Lmdb,
    Rocksdb,
    /// The service over gRPC.
    Grpc,
    /// How much longer a GET takes than with 10,000 records.
    Growth,
}

fn main() -> Result<()> {
    let Args { records, seconds, parts, dir } = Args::parse();
    let temporary = tempfile::tempdir()?;
    let dir = dir.unwrap_or_else(|| temporary.path().into());
    let all = [Part::Local, Part::Lmdb, Part::Rocksdb, Part::Grpc, Part::Growth];
    let parts = if parts.is_empty() { all.to_vec() } else { parts };
    println!("{records} records, {seconds} s each");
    for part in parts {
        println!("\n{}", part.title());
        let open = || Local::open(&dir, records);
        match part {
            Part::Load => rivals::load(&dir, records).and(open().map(drop))?,
            Part::Local => local::measure(&open()?, seconds)?,
            Part::Lmdb => rivals::measure(&rivals::lmdb::Lmdb::open(&dir, records)?, seconds)?,
            Part::Rocksdb => rivals::measure_rocks(&dir, records, seconds)?,
            Part::Grpc => {
                let local = open()?;
                tokio::runtime::Runtime::new()?.block_on(remote::measure(&local, seconds))?;
            }
            Part::Growth => growth::measure(&dir, records, seconds)?,
        }
    }
    Ok(())
}

impl Part {
    fn title(self) -> &'static str {
        match self {
            Part::Load => "loading",
            Part::Local => "in process",
            Part::Lmdb => "LMDB",
            Part::Rocksdb => "RocksDB",
            Part::Grpc => "over gRPC",
            Part::Growth => "one GET, compared with 10,000 records",
        }
    }
}
