//! Transaction numbers: the total order of commits.

use std::fmt;

/// The number of a commit: a 31-bit generation above a 32-bit counter.
///
/// A generation is taken durably at every open (and when the counter is
/// exhausted), so the numbers of a store always increase, even across restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Txn(u64);

impl Txn {
    /// Less than every commit.
    pub const ZERO: Txn = Txn(0);
    /// Greater than every commit; as a `commit_max_txn` it means
    /// "unconditionally".
    pub const MAX: Txn = Txn(i64::MAX as u64);
    /// The largest generation that fits in 31 bits.
    pub const GENERATION_MAX: u64 = (1 << 31) - 1;

    /// Returns the first number of a generation. No commit has it: it stands
    /// for everything before this generation.
    pub fn base(generation: u64) -> Txn {
        assert!(
            generation <= Self::GENERATION_MAX,
            "generation {generation} does not fit in 31 bits"
        );
        Txn(generation << 32)
    }

    /// Converts a stored number; `None` if it is out of range.
    pub fn from_raw(raw: u64) -> Option<Txn> {
        (raw <= Self::MAX.0).then_some(Txn(raw))
    }

    pub fn raw(self) -> u64 {
        self.0
    }

    pub fn generation(self) -> u64 {
        self.0 >> 32
    }

    pub fn counter(self) -> u32 {
        self.0 as u32
    }

    /// Returns the next number. The sequencer prevents the counter from
    /// overflowing into the next generation.
    pub fn next(self) -> Txn {
        assert!(self.0 < Self::MAX.0, "transaction numbers are spent");
        Txn(self.0 + 1)
    }
}

impl fmt::Display for Txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Txn::MAX {
            return f.write_str("max");
        }
        write!(f, "{}.{}", self.generation(), self.counter())
    }
}

impl fmt::Debug for Txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Txn({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_later_generation_are_larger() {
        let last = Txn::from_raw(Txn::base(8).raw() - 1).unwrap();
        assert!(last < Txn::base(8));
        assert_eq!((last.generation(), last.counter()), (7, u32::MAX));
        assert_eq!(Txn::base(8).next().to_string(), "8.1");
    }

    #[test]
    fn a_number_above_the_maximum_is_rejected() {
        assert_eq!(Txn::from_raw(u64::MAX), None);
        assert_eq!(Txn::from_raw(i64::MAX as u64), Some(Txn::MAX));
    }
}
