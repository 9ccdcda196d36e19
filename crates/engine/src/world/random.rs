//! The random number interface of the engine.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

pub trait Random: Send + Sync {
    fn next_u64(&self) -> u64;
}

/// A reproducible sequence (splitmix64).
pub struct SeededRandom {
    state: AtomicU64,
}

impl SeededRandom {
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom { state: AtomicU64::new(seed) }
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// A sequence seeded by the operating system.
pub struct SystemRandom(SeededRandom);

impl SystemRandom {
    pub fn new() -> SystemRandom {
        SystemRandom(SeededRandom::new(RandomState::new().hash_one(0u64)))
    }
}

impl Default for SystemRandom {
    fn default() -> Self {
        SystemRandom::new()
    }
}

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        self.0.next_u64()
    }
}
