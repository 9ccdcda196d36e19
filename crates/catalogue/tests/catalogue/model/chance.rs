//! Random requests over few enough names that they collide often.

use bytes::Bytes;
use stele_catalogue::Fid;
use stele_engine::world::{Random, SeededRandom};

pub struct Chance(SeededRandom);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(SeededRandom::new(seed))
    }

    pub fn below(&self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    pub fn one_in(&self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    pub fn of<'a, T>(&self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    pub fn fid(&self) -> Fid {
        // Some differ in the first word only.
        let id = 256 + u128::from(self.below(4));
        Fid::of_id(if self.one_in(2) { id << 64 } else { id }).unwrap()
    }

    pub fn key(&self) -> Bytes {
        let length = self.below(4);
        (0..length).map(|_| *self.of(&[0u8, 1, b'a', 0xFF])).collect::<Vec<_>>().into()
    }

    /// Returns a few keys, some of them twice.
    pub fn keys(&self) -> Vec<Bytes> {
        (0..1 + self.below(6)).map(|_| self.key()).collect()
    }

    pub fn value(&self) -> Bytes {
        let length = if self.one_in(20) { 5_000 } else { self.below(4) };
        vec![self.below(3) as u8; length as usize].into()
    }

    /// Returns any of these flags, each with even odds.
    pub fn flags(&self, flags: &[u32]) -> u32 {
        flags.iter().filter(|_| self.one_in(3)).sum()
    }
}
