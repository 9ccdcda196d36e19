//! Tables that are kept but not open: backups and deleted tables. Each change is one
//! edit of the config. Their references are counted before an edit that adds them and
//! released after one that removes them, so a file that the config names exists.

use std::sync::Arc;

use super::publish::Publishing;
use super::table::Table;
use super::tables::{Tables, load_table};
use crate::cell::commit::TableId;
use crate::config::{ConfigEdit, Configs, TableConfig, TableState};
use crate::error::{Error, Result};
use crate::txn::Txn;

impl Tables {
    /// Creates a backup of a table, whose commits up to the txn of `state` are in files.
    /// The caller excludes flushes and has a turn for the whole table. Returns the
    /// backup.
    pub fn back_up(
        &self,
        table: &Table,
        _turn: &Publishing<'_>,
        name: &str,
        state: TableState,
    ) -> Result<Arc<TableConfig>> {
        let copy = ConfigEdit::CopyTable { source: table.id, name: name.to_string(), state };
        let configs = self.edit_keeping(table.id, &[copy])?;
        let backup = configs.backup_named(name).expect("the backup was just created");
        Ok(backup.clone())
    }

    /// Creates a copy of a backup, durably. `state` returns its state, given the backup.
    pub fn copy_backup(
        &self,
        backup: &str,
        name: &str,
        state: impl FnOnce(&TableConfig) -> TableState,
    ) -> Result<Arc<TableConfig>> {
        // The files of the backup stay while its lock is held.
        let _keeping = self.keeping.lock();
        let configs = self.config.read()?;
        let source = configs.backup_named(backup);
        let source = source.ok_or_else(|| Error::UnknownBackup(backup.to_string()))?;
        let (name, state) = (name.to_string(), state(source));
        let copy = ConfigEdit::CopyTable { source: source.id, name: name.clone(), state };
        let configs = self.edit_keeping(source.id, &[copy])?;
        let copied = configs.backup_named(&name).expect("the backup was just created");
        Ok(copied.clone())
    }

    /// Changes the state of a backup, durably. `state` returns the new one, given the
    /// backup.
    pub fn change_backup(
        &self,
        backup: &str,
        state: impl FnOnce(&TableConfig) -> TableState,
    ) -> Result<Arc<TableConfig>> {
        let _keeping = self.keeping.lock();
        let configs = self.config.read()?;
        let old = configs.backup_named(backup);
        let old = old.ok_or_else(|| Error::UnknownBackup(backup.to_string()))?;
        let edit = ConfigEdit::SetState { table: old.id, state: state(old) };
        let configs = self.config.edit(&[edit])?;
        Ok(configs.tables[&old.id].clone())
    }

    /// Creates a table from a backup, durably. Whatever was read before `loaded_at`
    /// counts as changed.
    pub fn restore(&self, backup: &str, name: &str, loaded_at: Txn) -> Result<Arc<Table>> {
        // The files of the backup stay while its lock is held.
        let _keeping = self.keeping.lock();
        let configs = self.config.read()?;
        let source = configs.backup_named(backup);
        let source = source.ok_or_else(|| Error::UnknownBackup(backup.to_string()))?.id;
        let (name, state) = (name.to_string(), TableState::Active);
        let configs =
            self.config.edit(&[ConfigEdit::CopyTable { source, name: name.clone(), state }])?;
        let config = configs.table_named(&name).expect("the table was just created");
        self.open_table(config, loaded_at)
    }

    /// Deletes a table, durably, but keeps its files. Everything up to `flushed` is in
    /// files, and later commits were refused.
    pub fn delete(&self, table: &Table, flushed: Txn) -> Result<()> {
        let turn = table.publish();
        turn.check_exists()?;
        let groups = 0..table.version().memory.len();
        let edits =
            groups.map(|group| ConfigEdit::SetFlushed { table: table.id, group, txn: flushed });
        let state = TableState::Deleted { since: self.world.clock.now_micros() };
        let edits = edits.chain([ConfigEdit::SetState { table: table.id, state }]);
        self.edit_keeping(table.id, &edits.collect::<Vec<_>>())?;
        self.close_table(table);
        Ok(())
    }

    /// Brings a deleted table back, durably. Whatever was read before `loaded_at` counts
    /// as changed.
    pub fn undelete(&self, table: TableId, loaded_at: Txn) -> Result<Arc<Table>> {
        let _keeping = self.keeping.lock();
        let configs = self.config.read()?;
        let deleted = configs.tables.get(&table);
        let deleted = deleted.filter(|table| matches!(table.state, TableState::Deleted { .. }));
        let unknown = || Error::UnknownDeletedTable(format!("number {}", table.0));
        let deleted = deleted.ok_or_else(unknown)?;
        let edit = ConfigEdit::SetState { table, state: TableState::Active };
        let configs = self.config.edit(&[edit])?;
        let opened = self.open_table(&configs.tables[&table], loaded_at)?;
        self.fragments.release(deleted.files());
        Ok(opened)
    }

    /// Removes the backups and deleted tables that `chosen` accepts, in one edit. Files
    /// that only they needed are removed. Returns what was removed.
    pub fn remove_kept(
        &self,
        chosen: impl Fn(&TableConfig) -> bool,
    ) -> Result<Vec<Arc<TableConfig>>> {
        let _keeping = self.keeping.lock();
        let configs = self.config.read()?;
        let kept = configs.tables.values().filter(|table| !table.is_active());
        let removed: Vec<Arc<TableConfig>> = kept.filter(|table| chosen(table)).cloned().collect();
        let edits = removed.iter().map(|table| ConfigEdit::DropTable { table: table.id });
        self.config.edit(&edits.collect::<Vec<_>>())?;
        for table in &removed {
            self.fragments.release(table.files());
        }
        Ok(removed)
    }

    /// Applies edits that make the config refer to the files of a table once more. The
    /// caller has a turn for the whole table.
    fn edit_keeping(&self, table: TableId, edits: &[ConfigEdit]) -> Result<Arc<Configs>> {
        let configs = self.config.read()?;
        let unknown = || Error::UnknownTable(format!("number {}", table.0));
        let config = configs.tables.get(&table).ok_or_else(unknown)?;
        self.fragments.keep(config.files());
        self.config.edit(edits).inspect_err(|_| {
            // Otherwise the config may name them after the next open.
            if self.config.edit_left_no_trace() {
                self.fragments.release(config.files());
            }
        })
    }

    /// Opens a table that is in the config and shows it.
    fn open_table(&self, config: &TableConfig, loaded_at: Txn) -> Result<Arc<Table>> {
        let table = load_table(config, loaded_at, &self.world, &self.fragments, &self.resources)?;
        table.loaded(loaded_at);
        let table = Arc::new(table);
        self.map.insert(&table);
        Ok(table)
    }
}
