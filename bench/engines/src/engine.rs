//! The interface that a benchmark needs from an engine, and the engines by name.

use std::path::Path;

use anyhow::{Result, bail};

use crate::data::{Batch, Key, Shape};
use crate::ours::Ours;
use crate::rivals;

/// Cache size of every engine in bytes; all data fits.
pub const CACHE_BYTES: u64 = 1 << 30;
/// Bytes of a memory fragment, memtable or write buffer.
pub const WRITE_BUFFER_BYTES: usize = 64 << 20;

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// After it was written to the kernel: it survives a crash of the process.
    Written,
    /// After it was synced: it survives a crash of the machine.
    Durable,
}

pub trait Engine: Send + Sync {
    /// Writes the pairs in one commit.
    fn write(&self, batch: &Batch, safety: Safety) -> Result<()>;

    /// Reads the value of a key and returns its length.
    fn get(&self, key: &Key) -> Result<Option<usize>>;

    /// Reads every value in key order and returns the number of values.
    fn scan(&self) -> Result<u64>;

    /// Flushes and fully compacts the data, so that no background work is left.
    fn compact(&self) -> Result<()>;

    /// Returns the bytes of data files on disk, excluding logs.
    fn data_bytes(&self) -> Result<u64>;
}

/// All engines, Stele first.
pub const NAMES: &[&str] = &[
    OURS,
    #[cfg(feature = "rocksdb")]
    "rocksdb",
    "fjall",
    "redb",
    "lmdb",
];

pub const OURS: &str = "stele";

/// The earlier build of Stele's engine.
pub const BEFORE: &str = "before";

/// The engines whose better result Stele is measured against.
pub const PEERS: &[&str] = &["rocksdb", "fjall"];

/// Opens an engine in an empty directory, for data of `shape`. `block_bytes` overrides
/// the block size of RocksDB and fjall.
#[cfg_attr(
    not(feature = "rocksdb"),
    expect(unused_variables, reason = "only RocksDB uses the block size")
)]
pub fn open(
    name: &str,
    dir: &Path,
    shape: Shape,
    block_bytes: Option<u32>,
) -> Result<Box<dyn Engine>> {
    Ok(match name {
        OURS => Box::new(Ours::open(dir)?),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(rivals::rocks::Rocks::open(dir, shape, block_bytes)?),
        "fjall" => Box::new(rivals::fjalls::Fjall::open(dir, block_bytes)?),
        "redb" => Box::new(rivals::redbs::Redb::open(dir)?),
        "lmdb" => Box::new(rivals::lmdb::Lmdb::open(dir)?),
        other => bail!("unknown engine {other:?}: use {}", NAMES.join(", ")),
    })
}

/// Returns the total size of the files below a directory whose names end in `suffix`.
#[cfg(feature = "rocksdb")]
pub fn file_bytes(dir: &Path, suffix: &str) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            bytes += file_bytes(&entry.path(), suffix)?;
        } else if entry.file_name().to_string_lossy().ends_with(suffix) {
            bytes += metadata.len();
        }
    }
    Ok(bytes)
}
