//! Gives out transaction numbers.

use crate::config::ConfigEdit;
use crate::error::Result;
use crate::tables::Tables;
use crate::txn::Txn;

/// The order of commits. Kept under the store's apply lock.
pub struct Sequencer {
    last: Txn,
    generation_commits_max: u32,
}

impl Sequencer {
    /// Starts after `base`, the first number of a fresh generation.
    pub fn new(base: Txn, generation_commits_max: u32) -> Sequencer {
        assert!(generation_commits_max > 0, "a generation has at least one commit");
        Sequencer { last: base, generation_commits_max }
    }

    /// The number the next commit will have. A spent counter takes a new,
    /// durable generation.
    pub fn next(&mut self, tables: &Tables) -> Result<Txn> {
        if self.last.counter() >= self.generation_commits_max {
            let configs = tables.edit(&[ConfigEdit::TakeEpoch])?;
            self.last = Txn::base(configs.epoch);
        }
        Ok(self.last.next())
    }

    /// The commit has been applied.
    pub fn advance(&mut self, txn: Txn) {
        assert!(txn > self.last, "txns only rise");
        self.last = txn;
    }
}
