//! Chance from a seed, for tests that choose their own steps and can be run
//! again exactly as they were.

use stele_engine::world::{Random, SeededRandom};

/// Chance from a seed.
pub struct Die(SeededRandom);

impl Die {
    pub fn new(seed: u64) -> Die {
        Die(SeededRandom::new(seed))
    }

    /// A number below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    pub fn one_in(&self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
