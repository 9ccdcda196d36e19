//! Backups and deleted tables: the work behind the calls of the service. Whoever may name
//! a table may see its backups; a backup that a caller may not see does not exist for it.

use stele_engine::{BackupInfo, DeletedInfo};
use tonic::Status;

use crate::admin::{Admin, cost, excerpt};
use crate::error::{Error, Result};
use crate::proto::{Backup, CreateBackupRequest, DeletedTable, RestoreTableRequest};

/// Maximum length of the name of a backup, and of the last part of that of a table.
const NAME_BYTES_MAX: usize = 50;

impl Admin {
    pub(crate) async fn back_up(
        &self,
        extensions: &http::Extensions,
        request: CreateBackupRequest,
    ) -> Result<Backup, Status> {
        let CreateBackupRequest { table, backup: name, expires_micros } = request;
        let source = self.find(extensions, &table)?;
        check_table_name(&table)?;
        check_name("backup", &name)?;
        let work = move |tables: &stele_tables::Tables| {
            tables.create_backup(source, &name, expires_micros)
        };
        Ok(self.run(cost::BACK_UP, work).await?.into())
    }

    /// Returns the backups that a caller may see, or those of one table.
    pub(crate) async fn backups(
        &self,
        extensions: &http::Extensions,
        table: &str,
    ) -> Result<Vec<Backup>, Status> {
        let backups = self.run(cost::LIST, |tables| tables.backups()).await?;
        let is_shown = |backup: &BackupInfo| {
            (table.is_empty() || backup.source_name == table)
                && self.check(extensions, &backup.source_name).is_ok()
        };
        Ok(backups.into_iter().filter(is_shown).map(Backup::from).collect())
    }

    /// Returns a backup that a caller may see.
    pub(crate) async fn backup(
        &self,
        extensions: &http::Extensions,
        name: String,
    ) -> Result<BackupInfo, Status> {
        let unknown = Error::UnknownBackup(excerpt(&name).to_string());
        let found = self.run(cost::LIST, move |tables| match tables.backup(&name) {
            Err(stele_engine::Error::UnknownBackup(_)) => Ok(None),
            found => found.map(Some),
        });
        let may_see = |backup: &BackupInfo| self.check(extensions, &backup.source_name).is_ok();
        Ok(found.await?.filter(may_see).ok_or(unknown)?)
    }

    pub(crate) async fn restore(
        &self,
        extensions: &http::Extensions,
        request: RestoreTableRequest,
    ) -> Result<(), Status> {
        let backup = self.backup(extensions, request.backup).await?;
        self.check(extensions, &request.table)?;
        check_table_name(&request.table)?;
        let work = move |tables: &stele_tables::Tables| {
            tables.restore(&backup.name, &request.table).map(drop)
        };
        self.add(work).await
    }

    /// Returns the deleted tables that a caller may see.
    pub(crate) async fn deleted(
        &self,
        extensions: &http::Extensions,
    ) -> Result<Vec<DeletedTable>, Status> {
        let deleted = self.run(cost::LIST, |tables| tables.deleted()).await?;
        let shown = deleted.into_iter().filter(|table| self.check(extensions, &table.name).is_ok());
        let message = |table: DeletedInfo| DeletedTable {
            removed_micros: self.tables.removed_at(&table),
            name: table.name,
            id: table.id.0,
            deleted_micros: table.deleted_micros,
            tablets: table.tablets as u64,
            disk_bytes: table.disk_bytes,
        };
        Ok(shown.map(message).collect())
    }

    pub(crate) async fn undelete(
        &self,
        extensions: &http::Extensions,
        table: String,
    ) -> Result<(), Status> {
        self.check(extensions, &table)?;
        self.add(move |tables| tables.undelete(&table).map(drop)).await
    }

    /// Runs work that adds a table, and notifies other services of it.
    async fn add(
        &self,
        work: impl FnOnce(&stele_tables::Tables) -> stele_engine::Result<()> + Send + 'static,
    ) -> Result<(), Status> {
        let added = self.added();
        self.run(cost::RESTORE, move |tables| work(tables).map(|()| added())).await?
    }
}

impl From<BackupInfo> for Backup {
    fn from(backup: BackupInfo) -> Backup {
        Backup {
            name: backup.name,
            table: backup.source_name,
            created_micros: backup.created_micros,
            expires_micros: backup.expires_micros,
            txn: backup.txn.to_string(),
            tablets: backup.tablets as u64,
            disk_bytes: backup.disk_bytes,
        }
    }
}

/// Returns an error unless a name can be part of a resource name.
fn check_name(of: &'static str, name: &str) -> Result<()> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_allowed) {
        return Err(Error::InvalidName { of, name: excerpt(name).to_string() });
    }
    Ok(())
}

/// Returns an error unless a name is that of a table of the Bigtable API. Other tables
/// belong to services that keep their data in several, which change together.
fn check_table_name(name: &str) -> Result<()> {
    let parts: Vec<&str> = name.split('/').collect();
    let ["projects", project, "instances", instance, "tables", table] = parts[..] else {
        return Err(Error::NotBigtable(excerpt(name).to_string()));
    };
    if project.is_empty() || instance.is_empty() {
        return Err(Error::NotBigtable(excerpt(name).to_string()));
    }
    check_name("table", table)
}
