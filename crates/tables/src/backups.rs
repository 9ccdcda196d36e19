//! Backups of tables, and deleted tables that can be brought back. All changes are durable
//! on return and block this thread.

use stele_engine::{BackupInfo, DeletedInfo, Error, Result, TableId};

use crate::Tables;

impl Tables {
    /// Creates a backup of a table under a name that no other backup has. It shares the
    /// files of the table and stays until it is deleted or, if a time is given in
    /// microseconds since 1970, until then.
    pub fn create_backup(
        &self,
        table: TableId,
        name: &str,
        expires_micros: Option<i64>,
    ) -> Result<BackupInfo> {
        self.store.create_backup(table, name, expires_micros)
    }

    /// Returns all backups, oldest first.
    pub fn backups(&self) -> Result<Vec<BackupInfo>> {
        self.store.backups()
    }

    /// Returns the named backup.
    pub fn backup(&self, name: &str) -> Result<BackupInfo> {
        self.store.backup(name)
    }

    /// Copies a backup under another name; the copy has its own expiry.
    pub fn copy_backup(
        &self,
        backup: &str,
        name: &str,
        expires_micros: Option<i64>,
    ) -> Result<BackupInfo> {
        self.store.copy_backup(backup, name, expires_micros)
    }

    /// Changes when a backup is removed; `None` for never.
    pub fn set_backup_expiry(&self, name: &str, expires_micros: Option<i64>) -> Result<BackupInfo> {
        self.store.set_backup_expiry(name, expires_micros)
    }

    /// Deletes a backup and the files that only it needed.
    pub fn delete_backup(&self, name: &str) -> Result<()> {
        self.store.delete_backup(name)
    }

    /// Creates a table with the rows and the schema of a backup, which stays.
    pub fn restore(&self, backup: &str, name: &str) -> Result<TableId> {
        self.store.restore_table(backup, name)
    }

    /// Deletes a table. Its rows are kept as long as these tables keep deleted ones, and
    /// until then `undelete` brings it back.
    pub fn delete(&self, table: TableId) -> Result<()> {
        if self.keep_deleted.is_zero() {
            self.store.drop_table(table)
        } else {
            self.store.delete_table(table)
        }
    }

    /// Returns all deleted tables that can be brought back, ordered by id.
    pub fn deleted(&self) -> Result<Vec<DeletedInfo>> {
        self.store.deleted_tables()
    }

    /// Brings back the table of this name that was deleted last. Fails if a table in use
    /// has the name.
    pub fn undelete(&self, name: &str) -> Result<TableId> {
        let deleted = self.deleted()?.into_iter().filter(|table| table.name == name);
        let last = deleted.max_by_key(|table| (table.deleted_micros, table.id));
        let id = last.ok_or_else(|| Error::UnknownDeletedTable(name.to_string()))?.id;
        self.store.undelete_table(id)?;
        Ok(id)
    }

    /// Returns when a deleted table will be removed, in microseconds since 1970.
    pub fn removed_at(&self, deleted: &DeletedInfo) -> i64 {
        let keep = i64::try_from(self.keep_deleted.as_micros()).unwrap_or(i64::MAX);
        deleted.deleted_micros.saturating_add(keep)
    }

    /// Removes the backups and deleted tables whose time has come. Returns how many of
    /// each.
    pub fn remove_expired(&self) -> Result<(usize, usize)> {
        self.store.remove_expired(self.keep_deleted)
    }
}
