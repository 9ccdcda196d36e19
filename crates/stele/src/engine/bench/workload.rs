//! The data of a benchmark: pseudo-random keys, values that compress by half, and the
//! store that holds them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use stele_engine::schema::{Family, Schema};
use stele_engine::world::World;
use stele_engine::{CommitBuilder, Durability, Options, ScanSpec, Store, TableId, Txn};

const FAMILY: &[u8] = b"f";
const QUALIFIER: &[u8] = b"q";
const SETTLE_PAUSE: Duration = Duration::from_millis(10);
const SETTLE_TRIES_MAX: usize = 60_000;

/// The number of keys and the size of values.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub keys: u64,
    pub value_bytes: usize,
}

impl Shape {
    pub fn user_bytes(self) -> u64 {
        self.keys * (16 + self.value_bytes as u64)
    }
}

/// A small, fast generator (splitmix64); the same seed gives the same numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Fills the value, half random and half zero.
    fn fill(&mut self, value: &mut [u8]) {
        let half = value.len().div_ceil(2);
        for chunk in value[..half].chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

/// Returns the key with this number: 16 bytes in no particular order.
pub fn key(number: u64) -> [u8; 16] {
    let mut random = Random::new(number.wrapping_add(1));
    let mut key = [0; 16];
    key[..8].copy_from_slice(&random.next().to_be_bytes());
    key[8..].copy_from_slice(&random.next().to_be_bytes());
    key
}

/// An open store with one table.
pub struct Workload {
    pub shape: Shape,
    store: Store,
    table: TableId,
}

impl Workload {
    pub fn open(dir: &Path, shape: Shape) -> anyhow::Result<Workload> {
        let store = Store::open(dir, Options::default(), World::real())?;
        let table = store.create_table("bench", Schema::with_families([Family::new(FAMILY)])?)?;
        Ok(Workload { shape, store, table })
    }

    pub fn close(self) -> anyhow::Result<()> {
        Ok(self.store.close()?)
    }

    /// Returns the number of log syncs so far.
    pub fn syncs(&self) -> u64 {
        self.store.stats().log.syncs
    }

    /// Writes these keys in one commit.
    pub fn put(
        &self,
        mut keys: Vec<[u8; 16]>,
        random: &mut Random,
        durability: Durability,
    ) -> anyhow::Result<u64> {
        keys.sort_unstable();
        keys.dedup();
        let mut value = vec![0; self.shape.value_bytes];
        let mut commit = CommitBuilder::new();
        commit.table(self.table);
        for key in &keys {
            random.fill(&mut value);
            commit.row(key).set(FAMILY, QUALIFIER, 0, &value);
        }
        self.store.apply(&commit.finish(), Txn::MAX, durability)?;
        Ok(keys.len() as u64)
    }

    /// Overwrites `count` random keys in one commit.
    pub fn overwrite(
        &self,
        count: usize,
        random: &mut Random,
        durability: Durability,
    ) -> anyhow::Result<u64> {
        let keys = (0..count).map(|_| key(random.below(self.shape.keys))).collect();
        self.put(keys, random, durability)
    }

    /// Reads one random key.
    pub fn read(&self, random: &mut Random) -> anyhow::Result<u64> {
        let key = key(random.below(self.shape.keys));
        let mut found = 0;
        self.store.read(self.table, ScanSpec::row(&key), |cell| found += cell.value.len() + 1)?;
        ensure!(found == self.shape.value_bytes + 1, "a key that was written was not found");
        Ok(1)
    }

    /// Reads everything; `warm` leaves it in the cache.
    pub fn scan(&self, warm: bool) -> anyhow::Result<u64> {
        let rows_max = warm.then_some(usize::MAX);
        let mut cells = 0;
        self.store
            .read(self.table, ScanSpec { rows_max, ..ScanSpec::default() }, |_| cells += 1)?;
        ensure!(cells == self.shape.keys, "a scan found {cells} cells");
        Ok(cells)
    }

    /// Flushes and compacts everything into one fragment.
    pub fn flush_and_compact(&self) -> anyhow::Result<u64> {
        self.store.flush(self.table).context("flushing")?;
        for _ in 0..SETTLE_TRIES_MAX {
            if self.store.stats().chain_longest <= 1 {
                return Ok(self.shape.keys);
            }
            self.store.compact(self.table).context("compacting")?;
            // A background compaction may be using the chain right now.
            std::thread::sleep(SETTLE_PAUSE);
        }
        bail!("the background compaction does not finish")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_all_different_and_values_half_zero() {
        let keys: std::collections::BTreeSet<_> = (0..10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
        let mut value = [0; 99];
        Random::new(1).fill(&mut value);
        assert!(value[..50].iter().filter(|byte| **byte != 0).count() > 40);
        assert_eq!(value[50..], [0; 49]);
    }
}
