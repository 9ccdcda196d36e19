//! Assigns transaction numbers.

use crate::config::{ConfigEdit, ConfigEditor};
use crate::error::Result;
use crate::txn::Txn;

/// The order of commits. Guarded by the store's apply lock.
pub struct Sequencer {
    last: Txn,
    generation_commits_max: u32,
}

impl Sequencer {
    /// Starts after `base`, the first number of a new generation.
    pub fn new(base: Txn, generation_commits_max: u32) -> Sequencer {
        assert!(generation_commits_max > 0, "a generation has at least one commit");
        Sequencer { last: base, generation_commits_max }
    }

    /// Returns the number of the next commit. When the counter is exhausted,
    /// takes a new generation durably.
    pub fn next(&mut self, config: &ConfigEditor) -> Result<Txn> {
        if self.last.counter() >= self.generation_commits_max {
            let configs = config.edit(&[ConfigEdit::TakeGeneration])?;
            self.last = Txn::base(configs.generation);
        }
        Ok(self.last.next())
    }

    /// Records that a commit was applied.
    pub fn advance(&mut self, txn: Txn) {
        assert!(txn > self.last, "txns only rise");
        self.last = txn;
    }
}
