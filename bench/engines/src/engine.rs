//! What a benchmark needs of an engine, and the engines by name.

use std::path::Path;

use anyhow::{Result, bail};

use crate::data::{Batch, Key, Shape};
use crate::ours::Ours;
use crate::rivals;

/// Bytes of cache every engine gets: all data fits.
pub const CACHE_BYTES: u64 = 1 << 30;
/// Bytes of a memory fragment, memtable or write buffer.
pub const WRITE_BUFFER_BYTES: usize = 64 << 20;

/// How safe a commit is when it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// In the kernel: it survives the process.
    Written,
    /// Synced: it survives the machine.
    Durable,
}

pub trait Engine: Send + Sync {
    /// Writes the pairs in one commit.
    fn write(&self, batch: &Batch, safety: Safety) -> Result<()>;

    /// Touches the value of a key and tells its length.
    fn get(&self, key: &Key) -> Result<Option<usize>>;

    /// Touches every value in key order and tells how many there were.
    fn scan(&self) -> Result<u64>;

    /// Writes everything out and brings it into its most compact form, so that
    /// no work is left in the background.
    fn compact(&self) -> Result<()>;

    /// Bytes of data files on disk, without logs.
    fn data_bytes(&self) -> Result<u64>;
}

/// All engines, ours first.
pub const NAMES: &[&str] = &[
    OURS,
    #[cfg(feature = "rocksdb")]
    "rocksdb",
    "fjall",
    "redb",
    "lmdb",
];

pub const OURS: &str = "stele";

/// Ours as an earlier build has it.
pub const BEFORE: &str = "before";

/// The engines that ours is measured against.
pub const PEERS: &[&str] = &["rocksdb", "fjall"];

/// Opens an engine in a fresh directory, for data of `shape`. `block_bytes` is for RocksDB
/// and fjall, instead of the size that suits them best.
#[cfg_attr(not(feature = "rocksdb"), expect(unused_variables, reason = "only RocksDB asks"))]
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
        other => bail!("there is no engine {other}; there are {}", NAMES.join(", ")),
    })
}

/// The bytes of the files below a directory whose names end in
/// `suffix`.
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
