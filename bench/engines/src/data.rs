//! The data of the benchmark: keys of 16 pseudo-random bytes, values half random and
//! half zero. Everything is derived from numbers, so none of it has to be stored.

/// Pairs per commit in the batched workloads.
pub const BATCH_PAIRS: u64 = 100;
pub const KEY_BYTES: usize = 16;

pub type Key = [u8; KEY_BYTES];

/// The size of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub keys: u64,
    pub value_bytes: usize,
}

impl Shape {
    /// Returns whether a block holds only a few values.
    pub fn has_large_values(self) -> bool {
        self.value_bytes >= 512
    }
}

/// Returns the key of a number; different numbers have different keys.
pub fn key(number: u64) -> Key {
    let mut rng = Rng::new(number);
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&rng.next().to_be_bytes());
    key[8..].copy_from_slice(&rng.next().to_be_bytes());
    key
}

/// A small and fast random number generator (splitmix64), deterministic for a given
/// seed.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

    pub fn new(seed: u64) -> Rng {
        Rng(mix(seed.wrapping_add(1)))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Rng::STEP);
        mix(self.0)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// Fills the first half with random bytes and leaves the rest unchanged.
    fn fill_half(&mut self, value: &mut [u8]) {
        let half = value.len().div_ceil(2);
        for chunk in value[..half].chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The pairs of one commit, in reusable buffers.
pub struct Batch {
    value_bytes: usize,
    keys: Vec<Key>,
    /// All values, concatenated.
    values: Vec<u8>,
}

impl Batch {
    pub fn new(value_bytes: usize) -> Batch {
        Batch { value_bytes, keys: Vec::new(), values: Vec::new() }
    }

    /// Replaces the pairs with those of `count` numbers from `first` on, wrapping
    /// around at `keys`. Keys of consecutive numbers are unrelated, so this is a random
    /// choice without repeats.
    pub fn refill(&mut self, first: u64, count: u64, keys: u64, rng: &mut Rng) {
        self.fill((first..first + count).map(|number| key(number % keys)), rng);
    }

    /// Replaces the pairs with those of `count` numbers from `first` on, with keys in
    /// the order of the numbers.
    pub fn refill_in_order(&mut self, first: u64, count: u64, rng: &mut Rng) {
        let key = |number| u128::from(number).to_be_bytes();
        self.fill((first..first + count).map(key), rng);
    }

    fn fill(&mut self, keys: impl Iterator<Item = Key>, rng: &mut Rng) {
        self.keys.clear();
        self.keys.extend(keys);
        self.values.resize(self.keys.len() * self.value_bytes, 0);
        for value in self.values.chunks_mut(self.value_bytes.max(1)) {
            rng.fill_half(value);
        }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn pair(&self, at: usize) -> (&Key, &[u8]) {
        (&self.keys[at], &self.values[at * self.value_bytes..][..self.value_bytes])
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&Key, &[u8])> {
        (0..self.len()).map(|at| self.pair(at))
    }
}

/// Reads a byte of every cache line, so that an engine cannot win by returning a
/// pointer to data that is not loaded.
#[inline]
pub fn touch(bytes: &[u8]) {
    let sum = bytes.iter().step_by(64).fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    std::hint::black_box(sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pairs_of_a_batch_have_different_keys_and_different_half_zero_values() {
        let mut batch = Batch::new(100);
        batch.refill(990, BATCH_PAIRS, 1_000, &mut Rng::new(1));
        let mut keys: Vec<&Key> = batch.pairs().map(|(key, _)| key).collect();
        let mut values: Vec<&[u8]> = batch.pairs().map(|(_, value)| value).collect();
        keys.sort();
        keys.dedup();
        values.sort();
        values.dedup();
        assert_eq!((keys.len(), values.len()), (100, 100));
        assert!(values.iter().all(|value| value[50..] == [0; 50] && value[..50] != [0; 50]));
        assert!(keys.contains(&&key(0)) && keys.contains(&&key(999)));
    }
}
