//! RocksDB: a log-structured merge tree in C++.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompressionType,
    DataBlockIndexType, Options, ReadOptions, WaitForCompactOptions, WriteBatch, WriteOptions,
};

use crate::data::{Batch, KEY_BYTES, Key, Shape, touch};
use crate::engine::{CACHE_BYTES, Engine, Safety, WRITE_BUFFER_BYTES, file_bytes};

/// Block sizes for small and for large values. Of 4, 8 and 16 KiB, these give the
/// fastest point reads and good scans. `--block-bytes` overrides them.
const BLOCK_BYTES: u32 = 4 << 10;
const BLOCK_BYTES_LARGE: u32 = 8 << 10;

pub struct Rocks {
    db: DB,
    dir: PathBuf,
    reads: ReadOptions,
}

impl Rocks {
    pub fn open(dir: &Path, shape: Shape, block_bytes: Option<u32>) -> Result<Rocks> {
        let suits = if shape.has_large_values() { BLOCK_BYTES_LARGE } else { BLOCK_BYTES };
        let block_bytes = block_bytes.unwrap_or(suits) as usize;
        let cache = Cache::new_hyper_clock_cache(CACHE_BYTES as usize, block_bytes);
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_block_size(block_bytes);
        table.set_bloom_filter(10.0, false);
        table.set_format_version(6);
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_size(WRITE_BUFFER_BYTES);
        options.set_max_write_buffer_number(8);
        options.set_max_background_jobs(4);
        options.set_target_file_size_base(256 << 20);
        options.set_recycle_log_file_num(4);
        options.set_stats_dump_period_sec(0);
        let mut reads = ReadOptions::default();
        reads.set_readahead_size(0);
        reads.set_verify_checksums(false);
        Ok(Rocks { db: DB::open(&options, dir)?, dir: dir.to_path_buf(), reads })
    }

    /// Waits for running flushes and compactions.
    fn wait_idle(&self) -> Result<()> {
        let mut options = WaitForCompactOptions::default();
        options.set_flush(true);
        Ok(self.db.wait_for_compact(&options)?)
    }
}

impl Engine for Rocks {
    fn write(&self, batch: &Batch, safety: Safety) -> Result<()> {
        let mut options = WriteOptions::default();
        options.set_sync(safety == Safety::Durable);
        if batch.len() == 1 {
            let (key, value) = batch.pair(0);
            return Ok(self.db.put_opt(key, value, &options)?);
        }
        let pair_bytes = KEY_BYTES + batch.pair(0).1.len() + 8;
        let mut writes = WriteBatch::with_capacity_bytes(batch.len() * pair_bytes);
        for (key, value) in batch.pairs() {
            writes.put(key, value);
        }
        Ok(self.db.write_opt(writes, &options)?)
    }

    fn get(&self, key: &Key) -> Result<Option<usize>> {
        Ok(self.db.get_pinned_opt(key, &self.reads)?.map(|value| {
            touch(&value);
            value.len()
        }))
    }

    fn scan(&self) -> Result<u64> {
        let mut options = ReadOptions::default();
        options.set_readahead_size(0);
        options.set_auto_readahead_size(false);
        options.set_verify_checksums(false);
        let mut pairs = self.db.raw_iterator_opt(options);
        pairs.seek_to_first();
        let mut count = 0;
        while let Some(value) = pairs.value() {
            touch(value);
            count += 1;
            pairs.next();
        }
        pairs.status()?;
        Ok(count)
    }

    fn compact(&self) -> Result<()> {
        self.wait_idle()?;
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        self.wait_idle()
    }

    fn data_bytes(&self) -> Result<u64> {
        file_bytes(&self.dir, ".sst")
    }
}
