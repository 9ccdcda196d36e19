//! Backups, restored tables, and deleted tables that can be brought back. None of them
//! copies a file: a backup is a table that is never opened and refers to the files of its
//! source, a restored table refers to those of its backup.

use std::sync::Arc;
use std::time::Duration;

use super::handle::Store;
use crate::cell::commit::TableId;
use crate::config::{BackupOrigin, TableConfig, TableState};
use crate::error::{Error, Result};
use crate::txn::Txn;

/// Maximum length of the name of a backup.
const NAME_BYTES_MAX: usize = 512;

/// A backup as callers see it. Times are in microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    pub id: TableId,
    pub name: String,
    /// The table that it was made of, and its name then.
    pub source: TableId,
    pub source_name: String,
    /// It has exactly the commits up to this txn.
    pub txn: Txn,
    pub created_micros: i64,
    /// When it is removed; `None` for never.
    pub expires_micros: Option<i64>,
    pub tablets: usize,
    /// Approximate size on disk, which other tables may share.
    pub disk_bytes: u64,
}

/// A deleted table as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedInfo {
    pub id: TableId,
    pub name: String,
    /// In microseconds since 1970.
    pub deleted_micros: i64,
    pub tablets: usize,
    /// Approximate size on disk, which other tables may share.
    pub disk_bytes: u64,
}

impl BackupInfo {
    fn of(config: &TableConfig) -> Option<BackupInfo> {
        let TableState::Backup(origin) = &config.state else { return None };
        Some(BackupInfo {
            id: config.id,
            name: config.name.clone(),
            source: origin.table,
            source_name: origin.name.clone(),
            txn: origin.txn,
            created_micros: origin.created,
            expires_micros: origin.expires,
            tablets: config.tablets.len(),
            disk_bytes: disk_bytes(config),
        })
    }
}

impl DeletedInfo {
    fn of(config: &TableConfig) -> Option<DeletedInfo> {
        let TableState::Deleted { since } = config.state else { return None };
        Some(DeletedInfo {
            id: config.id,
            name: config.name.clone(),
            deleted_micros: since,
            tablets: config.tablets.len(),
            disk_bytes: disk_bytes(config),
        })
    }
}

fn disk_bytes(config: &TableConfig) -> u64 {
    config.files().fold(0u64, |sum, file| sum.saturating_add(file.share))
}

impl Store {
    /// Creates a backup of a table, with all commits up to one txn and its schema at that
    /// moment. Durable on return. Costs a flush of the table's memory; readers and writers
    /// go on. The name must not be that of another backup. The backup stays until it is
    /// deleted or, if `expires_micros` is given, until `remove_expired` is called after
    /// that time.
    pub fn create_backup(
        &self,
        table: TableId,
        name: &str,
        expires_micros: Option<i64>,
    ) -> Result<BackupInfo> {
        self.check_kept_tables()?;
        let engine = &self.engine;
        let created = engine.tables.world.clock.now_micros();
        check_backup(name, created, expires_micros)?;
        if engine.tables.config.read()?.backup_named(name).is_some() {
            return Err(Error::BackupExists(name.to_string()));
        }
        let table = engine.tables.map.get(table)?;
        let tables = [table.clone()];
        loop {
            // Later commits stay in memory until the backup refers to the files.
            let _flushes = self.engine.claim_flushes(&tables);
            let schema = table.version().schema.clone();
            let txn = self.flush_sealed(&tables)?;
            let turn = table.publish();
            turn.check_exists()?;
            // A backup has the schema of its txn.
            if !Arc::ptr_eq(&schema, &table.version().schema) {
                continue;
            }
            let origin = BackupOrigin {
                table: table.id,
                name: table.name.clone(),
                txn,
                created,
                expires: expires_micros,
            };
            let state = TableState::Backup(origin);
            let backup = engine.tables.back_up(&table, &turn, name, state)?;
            return Ok(BackupInfo::of(&backup).expect("it was created as a backup"));
        }
    }

    /// Returns all backups, oldest first.
    pub fn backups(&self) -> Result<Vec<BackupInfo>> {
        let configs = self.engine.tables.config.read()?;
        Ok(configs.tables.values().filter_map(|table| BackupInfo::of(table)).collect())
    }

    /// Returns the named backup.
    pub fn backup(&self, name: &str) -> Result<BackupInfo> {
        let configs = self.engine.tables.config.read()?;
        let found = configs.backup_named(name).and_then(|table| BackupInfo::of(table));
        found.ok_or_else(|| Error::UnknownBackup(name.to_string()))
    }

    /// Copies a backup under another name; the copy has the same rows and its own expiry.
    /// Durable on return; copies no file.
    pub fn copy_backup(
        &self,
        backup: &str,
        name: &str,
        expires_micros: Option<i64>,
    ) -> Result<BackupInfo> {
        self.check_kept_tables()?;
        let created = self.engine.tables.world.clock.now_micros();
        check_backup(name, created, expires_micros)?;
        let state = |source: &TableConfig| {
            with_origin(source, |origin| BackupOrigin {
                created,
                expires: expires_micros,
                ..origin
            })
        };
        let copy = self.engine.tables.copy_backup(backup, name, state)?;
        Ok(BackupInfo::of(&copy).expect("it was created as a backup"))
    }

    /// Changes when a backup is removed; `None` for never. Durable on return.
    pub fn set_backup_expiry(&self, name: &str, expires_micros: Option<i64>) -> Result<BackupInfo> {
        self.check_kept_tables()?;
        check_backup(name, self.engine.tables.world.clock.now_micros(), expires_micros)?;
        let state = |backup: &TableConfig| {
            with_origin(backup, |origin| BackupOrigin { expires: expires_micros, ..origin })
        };
        let changed = self.engine.tables.change_backup(name, state)?;
        Ok(BackupInfo::of(&changed).expect("it stays a backup"))
    }

    /// Deletes a backup and the files that only it needed. Durable on return.
    pub fn delete_backup(&self, name: &str) -> Result<()> {
        self.check_kept_tables()?;
        let is_named = |table: &TableConfig| table.name == name && BackupInfo::of(table).is_some();
        let removed = self.engine.tables.remove_kept(is_named)?;
        if removed.is_empty() { Err(Error::UnknownBackup(name.to_string())) } else { Ok(()) }
    }

    /// Creates a table with the rows and the schema of a backup. Durable on return; copies
    /// no file. The backup does not change, whatever happens to the table.
    pub fn restore_table(&self, backup: &str, name: &str) -> Result<TableId> {
        self.check_kept_tables()?;
        let restored = self.engine.tables.restore(backup, name, self.engine.latest())?;
        self.engine.claims.raise();
        Ok(restored.id)
    }

    /// Deletes a table, but keeps its rows until `remove_expired` removes them; until then
    /// `undelete_table` brings it back. Durable on return. Its name is free at once. Costs
    /// a flush of its memory; if that fails, the table is served as before.
    pub fn delete_table(&self, table: TableId) -> Result<()> {
        self.check_kept_tables()?;
        let engine = &self.engine;
        let table = engine.tables.map.get(table)?;
        let _loads = table.lock_loads();
        // Most memory is flushed before commits are refused, in case it fails.
        engine.flush_up_to(&table, engine.latest())?;
        let stopped_at = {
            let _no_writers = engine.sequencer.lock();
            table.set_dropping(true);
            engine.latest()
        };
        let deleted = engine
            .flush_up_to(&table, stopped_at)
            .and_then(|()| engine.tables.delete(&table, stopped_at));
        deleted.inspect_err(|_| self.set_dropping(&table, false))?;
        self.forget_work(&table);
        Ok(())
    }

    /// Returns all deleted tables that can be brought back, ordered by id.
    pub fn deleted_tables(&self) -> Result<Vec<DeletedInfo>> {
        let configs = self.engine.tables.config.read()?;
        Ok(configs.tables.values().filter_map(|table| DeletedInfo::of(table)).collect())
    }

    /// Brings a deleted table back with all its rows. Durable on return. Fails if another
    /// table has its name.
    pub fn undelete_table(&self, table: TableId) -> Result<()> {
        self.check_kept_tables()?;
        self.engine.tables.undelete(table, self.engine.latest())?;
        self.engine.claims.raise();
        Ok(())
    }

    /// Removes backups whose time has come, and tables that were deleted at least
    /// `keep_deleted` ago. Returns how many of each.
    pub fn remove_expired(&self, keep_deleted: Duration) -> Result<(usize, usize)> {
        self.check_kept_tables()?;
        let now = self.engine.tables.world.clock.now_micros();
        let keep = i64::try_from(keep_deleted.as_micros()).unwrap_or(i64::MAX);
        let is_expired = |table: &TableConfig| match &table.state {
            TableState::Active => false,
            TableState::Backup(origin) => origin.expires.is_some_and(|expires| expires <= now),
            TableState::Deleted { since } => since.saturating_add(keep) <= now,
        };
        let removed = self.engine.tables.remove_kept(is_expired)?;
        for table in &removed {
            let (id, name) = (table.id.0, &table.name);
            tracing::info!(id, name, "removed an expired backup or deleted table");
        }
        let backups = removed.iter().filter(|table| BackupInfo::of(table).is_some()).count();
        Ok((backups, removed.len() - backups))
    }

    fn check_kept_tables(&self) -> Result<()> {
        self.check_alone("keep backups and deleted tables")?;
        // Commits of an external log, which may be replayed, name tables that exist.
        if self.engine.log.external().is_some() { Err(Error::HasExternalLog) } else { Ok(()) }
    }
}

/// Returns the state of a backup with another origin.
fn with_origin(
    backup: &TableConfig,
    change: impl FnOnce(BackupOrigin) -> BackupOrigin,
) -> TableState {
    match &backup.state {
        TableState::Backup(origin) => TableState::Backup(change(origin.clone())),
        other => other.clone(),
    }
}

fn check_backup(name: &str, created: i64, expires: Option<i64>) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let what = format!("a name of {} bytes: use 1 to {NAME_BYTES_MAX}", name.len());
        return Err(Error::InvalidBackup(what));
    }
    if expires.is_some_and(|expires| expires <= created) {
        return Err(Error::InvalidBackup("it would expire at once: use a later time".into()));
    }
    Ok(())
}
