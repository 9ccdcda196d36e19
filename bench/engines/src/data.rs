//! The data every engine gets: keys of 16 random bytes, values half random and
//! half zero. All of it follows from numbers, so nothing has to be kept.

/// Pairs of one commit in the batched workloads.
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
    /// Whether a block holds but a few values.
    pub fn has_large_values(self) -> bool {
        self.value_bytes >= 512
    }
}

/// The key of a number; different for different numbers.
pub fn key(number: u64) -> Key {
    let mut rng = Rng::new(number);
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&rng.next().to_be_bytes());
    key[8..].copy_from_slice(&rng.next().to_be_bytes());
    key
}

/// A small and fast generator (splitmix64); the same seed gives the same
/// numbers.
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

    /// Fills the first half with random bytes; the rest stays as it is.
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

/// The pairs of one commit, in buffers that are used again.
pub struct Batch {
    value_bytes: usize,
    keys: Vec<Key>,
    /// All values, one after the other.
    values: Vec<u8>,
}

impl Batch {
    pub fn new(value_bytes: usize) -> Batch {
        Batch { value_bytes, keys: Vec::new(), values: Vec::new() }
    }

    /// Replaces the pairs by those of `count` numbers from `first` on, which
    /// wrap around at `keys`. Neighbouring numbers have unrelated keys, so
    /// this is a random choice without repeats.
    pub fn refill(&mut self, first: u64, count: u64, keys: u64, rng: &mut Rng) {
        self.fill((first..first + count).map(|number| key(number % keys)), rng);
    }

    /// Replaces the pairs by those of `count` numbers from `first` on, with
    /// keys in the order of the numbers.
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

/// Reads a byte of every cache line, so that nobody gets away with handing out
/// a pointer.
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
