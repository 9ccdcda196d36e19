//! Checksums of the current keys, by which members are compared and a member
//! checks itself.
//!
//! Each key belongs to one bucket. The hash of a bucket is the sum of the hashes
//! of its keys and values, so a change updates it without reading other keys,
//! and the order of changes does not matter. The hashes are stored with the
//! watermarks of every entry.

use stele_engine::BatchLimits;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{MemberState, value_spec};
use crate::error::Result;

/// The number of buckets. Each adds 8 bytes to every entry.
pub const BUCKETS: usize = 8;

/// The hashes of all buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buckets(pub [u64; BUCKETS]);

/// The hashes as of one log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketHashes {
    pub index: u64,
    pub revision: i64,
    pub buckets: Buckets,
}

/// The bucket of a key, and the hash of the key and its tail.
#[derive(Clone, Copy, Debug)]
pub struct KeyHash {
    bucket: usize,
    hash: u64,
}

impl KeyHash {
    pub fn of(key: &[u8], tail: &[u8]) -> KeyHash {
        let of_key = xxh3_64(key);
        let bucket = (of_key % BUCKETS as u64) as usize;
        KeyHash { bucket, hash: xxh3_64_with_seed(tail, of_key) }
    }
}

impl Buckets {
    pub fn add(&mut self, key: KeyHash) {
        self.0[key.bucket] = self.0[key.bucket].wrapping_add(key.hash);
    }

    pub fn remove(&mut self, key: KeyHash) {
        self.0[key.bucket] = self.0[key.bucket].wrapping_sub(key.hash);
    }

    /// Returns the numbers of the buckets that differ.
    pub fn differing(&self, other: &Buckets) -> Vec<usize> {
        (0..BUCKETS).filter(|at| self.0[*at] != other.0[*at]).collect()
    }
}

impl MemberState {
    /// Computes the hashes from the stored keys at a retained revision. Returns
    /// `None` if `goes_on` returned false.
    pub fn recompute_buckets(
        &self,
        revision: i64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Buckets>> {
        let mut buckets = Buckets::default();
        let mut scan = self.store().scan(self.tables.user, value_spec(revision))?;
        loop {
            let end = scan.next_batch(BatchLimits::default(), &mut |cell| {
                buckets.add(KeyHash::of(cell.row, cell.value));
            })?;
            if end.done {
                return Ok(Some(buckets));
            }
            if !goes_on() {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_changes_makes_no_difference_and_every_change_does() {
        let (mut one, mut other) = (Buckets::default(), Buckets::default());
        let keys: Vec<String> = (0..100).map(|number| format!("key{number}")).collect();
        for key in &keys {
            one.add(KeyHash::of(key.as_bytes(), b"value"));
        }
        for key in keys.iter().rev() {
            other.add(KeyHash::of(key.as_bytes(), b"value"));
        }
        assert_eq!(one, other);
        assert!(one.0.iter().all(|hash| *hash != 0), "every bucket has keys");
        other.remove(KeyHash::of(b"key7", b"value"));
        assert_eq!(one.differing(&other).len(), 1);
        other.add(KeyHash::of(b"key7", b"valuf"));
        assert_eq!(one.differing(&other).len(), 1);
    }
}
