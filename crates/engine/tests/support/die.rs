//! Seeded randomness, for tests that choose their own steps and can be replayed
//! exactly.

use stele_engine::world::{Random, SeededRandom};

/// A seeded source of random choices.
pub struct Die(SeededRandom);

impl Die {
    pub fn new(seed: u64) -> Die {
        Die(SeededRandom::new(seed))
    }

    /// Returns a number below `bound`.
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
