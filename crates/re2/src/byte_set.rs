//! A set of bytes: the representation of a character class in Latin-1. Classes
//! are united, case-folded and negated here before they become transitions.

use regex_syntax::hir::{ClassBytes, ClassBytesRange};

/// Inclusive ranges of bytes.
pub(super) type Ranges = &'static [(u8, u8)];

/// One bit for each of the 256 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ByteSet([u64; 4]);

/// The positions of the letters within their word of 64 bits: `A` is byte 0x41
/// and `a` is byte 0x61, both in the second word and 32 bits apart.
const UPPER: u64 = 0x07FF_FFFE;
const LOWER: u64 = UPPER << 32;

impl ByteSet {
    pub const EMPTY: ByteSet = ByteSet([0; 4]);

    pub fn from_ranges(ranges: &[(u8, u8)]) -> ByteSet {
        let mut set = ByteSet::EMPTY;
        for &(first, last) in ranges {
            set.insert_range(first, last);
        }
        set
    }

    pub fn insert_range(&mut self, first: u8, last: u8) {
        for byte in first..=last {
            self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
        }
    }

    pub fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
    }

    pub fn union(self, other: ByteSet) -> ByteSet {
        ByteSet(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    pub fn complement(self) -> ByteSet {
        ByteSet(self.0.map(|word| !word))
    }

    /// Adds the other case of every letter from a to z.
    pub fn fold(mut self) -> ByteSet {
        let letters = self.0[1];
        self.0[1] |= (letters & UPPER) << 32 | (letters & LOWER) >> 32;
        self
    }

    /// Converts the set to the form of the regex engine: sorted, non-adjacent
    /// ranges.
    pub fn to_class(self) -> ClassBytes {
        let mut ranges = Vec::new();
        let mut first = 0;
        for byte in (0..=u8::MAX).filter(|&byte| self.contains(byte)) {
            if byte == 0 || !self.contains(byte - 1) {
                first = byte;
            }
            if byte == u8::MAX || !self.contains(byte + 1) {
                ranges.push(ClassBytesRange::new(first, byte));
            }
        }
        ClassBytes::new(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(set: ByteSet) -> Vec<(u8, u8)> {
        set.to_class().ranges().iter().map(|range| (range.start(), range.end())).collect()
    }

    #[test]
    fn a_set_becomes_the_ranges_it_was_made_of() {
        for given in [&[][..], &[(0, 255)], &[(0, 0), (63, 64), (200, 255)], &[(65, 65)]] {
            assert_eq!(ranges(ByteSet::from_ranges(given)), given);
        }
        assert_eq!(ranges(ByteSet::from_ranges(&[(3, 9), (10, 12), (5, 6)])), [(3, 12)]);
    }

    #[test]
    fn a_complement_holds_exactly_the_other_bytes() {
        let set = ByteSet::from_ranges(&[(1, 9), (11, 254)]);
        assert_eq!(ranges(set.complement()), [(0, 0), (10, 10), (255, 255)]);
    }

    #[test]
    fn folding_adds_the_other_case_of_ascii_letters_only() {
        for byte in 0..=u8::MAX {
            let expected: Vec<u8> =
                (0..=u8::MAX).filter(|b| b.eq_ignore_ascii_case(&byte)).collect();
            let folded = ByteSet::from_ranges(&[(byte, byte)]).fold();
            let members: Vec<u8> = (0..=u8::MAX).filter(|&b| folded.contains(b)).collect();
            assert_eq!(members, expected);
        }
    }
}
