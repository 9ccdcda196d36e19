//! Assigns transaction numbers.

use crate::txn::Txn;

/// The order of commits. Guarded by the store's apply lock, under which a generation
/// cannot be taken from the config: the caller provides one ahead of time.
pub struct Sequencer {
    last: Txn,
    generation_commits_max: u32,
    /// A generation to go on with.
    spare: Option<u64>,
}

impl Sequencer {
    /// Starts after `base`, the first number of a new generation.
    pub fn new(base: Txn, generation_commits_max: u32) -> Sequencer {
        assert!(generation_commits_max > 0, "a generation has at least one commit");
        Sequencer { last: base, generation_commits_max, spare: None }
    }

    /// Returns the number of the next commit; `None` if the counter is exhausted and
    /// no spare generation is available.
    pub fn next(&mut self) -> Option<Txn> {
        if self.last.counter() >= self.generation_commits_max {
            self.raise(self.spare?);
        }
        Some(self.last.next())
    }

    /// Records that a commit was applied. Returns whether it is time to take a spare
    /// generation.
    pub fn advance(&mut self, txn: Txn) -> bool {
        assert!(txn > self.last, "txns only rise");
        self.last = txn;
        txn.counter() == self.generation_commits_max.div_ceil(2) && self.spare.is_none()
    }

    /// Provides a generation that was taken durably and is used for nothing else.
    pub fn provide(&mut self, generation: u64) {
        let newer = generation > self.last.generation();
        self.spare = self.spare.max(newer.then_some(generation));
    }

    /// Continues with a generation that was taken durably. Returns false, without any
    /// effect, if there are commits in it or in a newer one.
    pub fn raise(&mut self, generation: u64) -> bool {
        let base = Txn::base(generation);
        if base < self.last {
            return false;
        }
        self.last = base;
        // A spare of an older generation is useless.
        self.spare = self.spare.filter(|&spare| spare > generation);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_3_8_a_spare_generation_is_asked_for_at_half_and_used_at_the_end() {
        let mut sequencer = Sequencer::new(Txn::base(3), 4);
        let mut asked = Vec::new();
        while let Some(txn) = sequencer.next() {
            asked.push(sequencer.advance(txn));
        }
        assert_eq!(asked, [false, true, false, false]);
        sequencer.provide(5);
        assert_eq!(sequencer.next(), Some(Txn::base(5).next()));
        assert_eq!(sequencer.spare, None);
    }

    #[test]
    fn scale_3_8_a_spare_that_is_older_than_the_present_generation_is_dropped() {
        let mut sequencer = Sequencer::new(Txn::base(3), 4);
        sequencer.provide(4);
        assert!(sequencer.raise(7));
        assert_eq!(sequencer.next(), Some(Txn::base(7).next()));
        assert_eq!(sequencer.spare, None);
        sequencer.provide(6);
        assert_eq!(sequencer.spare, None);
        sequencer.advance(Txn::base(7).next());
        assert!(!sequencer.raise(7), "there are commits in it");
        assert!(!sequencer.raise(6));
        assert!(sequencer.raise(8));
    }
}
