//! RocksDB: a log-structured merge tree in C++, configured as in the comparison of
//! engines.

use std::path::Path;

use anyhow::Result;
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, ColumnFamilyDescriptor, CompactOptions,
    DB, DBCompressionType, DataBlockIndexType, Options, ReadOptions, WaitForCompactOptions,
    WriteBatch, WriteOptions,
};

use super::Rival;
use crate::data::{CACHE_BYTES, Key, VALUE_BYTES, key, touch, value};

const COLUMN: &str = "default";
const BLOCK_BYTES: usize = 4 << 10;
const WRITE_BUFFER_BYTES: usize = 64 << 20;

pub struct Rocks {
    db: DB,
    reads: ReadOptions,
    records: u64,
}

fn reads() -> ReadOptions {
    let mut reads = ReadOptions::default();
    reads.set_readahead_size(0);
    reads.set_verify_checksums(false);
    reads
}

impl Rocks {
    pub fn open(dir: &Path, records: u64) -> Result<Rocks> {
        let dir = dir.join(format!("rocksdb-{records}"));
        let is_loaded = dir.exists();
        let rocks = Rocks { records, ..Rocks::open_empty(&dir)? };
        super::fill(&rocks, is_loaded, records)?;
        Ok(rocks)
    }
}

impl Rival for Rocks {
    fn open_empty(dir: &Path) -> Result<Rocks> {
        let cache = Cache::new_hyper_clock_cache(CACHE_BYTES as usize, BLOCK_BYTES);
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_block_size(BLOCK_BYTES);
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
        // Opened by name, because a batched read has to name its column family.
        let column = ColumnFamilyDescriptor::new(COLUMN, options.clone());
        let db = DB::open_cf_descriptors(&options, dir, [column])?;
        Ok(Rocks { db, reads: reads(), records: 0 })
    }

    fn name(&self) -> &'static str {
        "RocksDB"
    }

    fn records(&self) -> u64 {
        self.records
    }

    fn get(&self, keys: &[Key]) -> Result<u64> {
        if let [key] = keys {
            let found = self.db.get_pinned_opt(key, &self.reads)?;
            return Ok(found.map_or(0, |value| {
                touch(&value);
                1
            }));
        }
        let snapshot = self.db.snapshot();
        let mut reads = reads();
        reads.set_snapshot(&snapshot);
        let column =
            self.db.cf_handle(COLUMN).expect("the column family was opened with the database");
        let mut found = 0;
        for value in self.db.batched_multi_get_cf_opt(column, keys, false, &reads) {
            if let Some(value) = value? {
                touch(&value);
                found += 1;
            }
        }
        Ok(found)
    }

    fn next(&self, start: &Key, count: usize) -> Result<u64> {
        let mut options = reads();
        options.set_auto_readahead_size(false);
        let mut pairs = self.db.raw_iterator_opt(options);
        pairs.seek(start);
        let mut found = 0;
        while found < count as u64
            && let Some(value) = pairs.value()
        {
            touch(value);
            found += 1;
            pairs.next();
        }
        pairs.status()?;
        Ok(found)
    }

    fn put(&self, numbers: &mut dyn Iterator<Item = u64>) -> Result<()> {
        let mut options = WriteOptions::default();
        options.set_sync(true);
        let mut writes = WriteBatch::with_capacity_bytes(100 * (VALUE_BYTES + 32));
        for number in numbers {
            writes.put(key(number), value(number));
        }
        Ok(self.db.write_opt(writes, &options)?)
    }

    fn compact(&self) -> Result<()> {
        let mut wait = WaitForCompactOptions::default();
        wait.set_flush(true);
        self.db.wait_for_compact(&wait)?;
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(self.db.wait_for_compact(&wait)?)
    }
}
