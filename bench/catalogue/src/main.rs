//! Catalogues measured: in process beside LMDB, and over gRPC beside a server
//! that streams the same bytes without any work. Records of 16 B + 100 B.
//!
//!     stele-bench-catalogue [RECORDS [SECONDS]]

mod data;
mod lmdb;
mod local;
mod meter;
mod remote;

use anyhow::Result;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let records = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let seconds = args.next().map_or(Ok(2.0), |text| text.parse())?;
    let dir = tempfile::tempdir()?;
    println!("{records} records, {seconds} s each\n\nin process");
    let loaded = local::Local::load(&dir.path().join("stele"), records)?;
    local::measure(&loaded, seconds)?;
    lmdb::measure(&dir.path().join("lmdb"), records, seconds)?;
    println!("\nover gRPC");
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(remote::measure(&loaded, seconds))
}
