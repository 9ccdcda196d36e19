//! Random keys and values.

/// SplitMix64: fast, seedable, and good enough to choose keys.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }

    /// Returns `size` bytes, the first half random and the rest zero, so that they
    /// compress to about half their size.
    pub fn value(&mut self, size: usize) -> Vec<u8> {
        let mut v = vec![0u8; size];
        for chunk in v[..size.div_ceil(2)].chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
        v
    }
}

/// Returns the i-th element of a fixed pseudo-random permutation of 0..n.
pub fn permute(i: u64, n: u64) -> u64 {
    fn gcd(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    let mut step = (n as f64 * 0.618_033_988_75) as u64 | 1;
    while gcd(step, n) != 1 {
        step += 2;
    }
    ((i as u128 * step as u128) % n as u128) as u64
}
