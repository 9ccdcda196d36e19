//! A config in memory, for what nobody reads after this process: the tables as a server of
//! a cluster knows them, and those into which a log is replayed. Their rows are stored
//! elsewhere.

use std::sync::Arc;

use super::{ConfigEdit, ConfigStore, Configs, TableConfig};
use crate::cell::commit::TableId;
use crate::error::{Error, Result};
use crate::sync::Mutex;

/// Returns a generation of txns that nobody has used. May block.
pub type TakeGeneration = Box<dyn Fn() -> Result<u64> + Send + Sync>;

pub struct VolatileConfig {
    configs: Mutex<Arc<Configs>>,
    take_generation: Option<TakeGeneration>,
}

impl VolatileConfig {
    /// Returns a config that begins with these contents. Without `take_generation` it has
    /// only the generation that it begins with.
    pub fn new(configs: Configs, take_generation: Option<TakeGeneration>) -> VolatileConfig {
        VolatileConfig { configs: Mutex::new(Arc::new(configs)), take_generation }
    }

    /// Adds a table, or replaces what is known of it.
    pub fn put_table(&self, table: TableConfig) {
        let mut configs = self.configs.lock();
        let mut next = Configs::clone(&configs);
        next.revision += 1;
        next.last_table = next.last_table.max(table.id.0);
        next.tables.insert(table.id, Arc::new(table));
        *configs = Arc::new(next);
    }

    pub fn remove_table(&self, table: TableId) {
        let mut configs = self.configs.lock();
        let mut next = Configs::clone(&configs);
        next.revision += 1;
        next.tables.remove(&table);
        *configs = Arc::new(next);
    }
}

impl ConfigStore for Arc<VolatileConfig> {
    fn read(&self) -> Result<Arc<Configs>> {
        Ok(self.configs.lock().clone())
    }

    fn edit(&self, expected: u64, edits: &[ConfigEdit]) -> Result<Arc<Configs>> {
        let mut taken = None;
        if edits.contains(&ConfigEdit::TakeGeneration) {
            let take = self.take_generation.as_ref().ok_or(Error::Closed)?;
            taken = Some(take()?);
        }
        let mut configs = self.configs.lock();
        let mut from = Configs::clone(&configs);
        if let Some(taken) = taken {
            from.generation = from.generation.max(taken.saturating_sub(1));
        }
        let edited = Arc::new(from.edited(expected, edits)?);
        *configs = edited.clone();
        Ok(edited)
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }

    fn failure(&self) -> Option<Error> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_one_that_nobody_else_has_taken() {
        let take: TakeGeneration = Box::new(|| Ok(17));
        let config = Arc::new(VolatileConfig::new(Configs::default(), Some(take)));
        let edited = config.edit(0, &[ConfigEdit::TakeGeneration]).unwrap();
        assert_eq!((edited.generation, edited.revision), (17, 1));
        let alone = Arc::new(VolatileConfig::new(Configs::default(), None));
        assert!(alone.edit(0, &[ConfigEdit::TakeGeneration]).is_err());
    }
}
