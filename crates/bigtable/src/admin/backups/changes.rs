//! Creates, copies, updates, deletes and restores backups.

use prost_types::Timestamp;

use super::list::find;
use crate::admin::instances::Context;
use crate::admin::operations::{any, record, timestamp};
use crate::admin::view::{TableView, restored_name};
use crate::error::{Error, Result};
use crate::instance::mask_paths;
use crate::name::{BackupName, ClusterName, InstanceName, TableName, check_id, excerpt};
use crate::proto::admin::backup::BackupType;
use crate::proto::admin::restore_info::SourceInfo;
use crate::proto::admin::{
    Backup, BackupInfo, CopyBackupMetadata, CopyBackupRequest, CreateBackupMetadata,
    CreateBackupRequest, DeleteBackupRequest, OperationProgress, RestoreInfo, RestoreSourceType,
    RestoreTableMetadata, RestoreTableRequest, UpdateBackupRequest, instance,
    restore_table_metadata, restore_table_request,
};
use crate::proto::longrunning::Operation;
use crate::records::Change;
use crate::table::Tables;

const HOUR_MICROS: i64 = 3_600_000_000;
const DAY_MICROS: i64 = 24 * HOUR_MICROS;
const EXPIRY_MIN_MICROS: i64 = 6 * HOUR_MICROS;
const EXPIRY_MAX_DAYS: i64 = 90;
const EXPIRY_MAX_DAYS_PLUS: i64 = 365;
const COPY_EXPIRY_MAX_DAYS: i64 = 30;

pub fn create(context: &Context, request: CreateBackupRequest) -> Result<Operation> {
    let Context { tables, now_micros } = context;
    let CreateBackupRequest { parent, backup_id, backup } = request;
    let cluster = ClusterName::parse(&parent)?;
    check_id("backup_id", &backup_id)?;
    let given = backup.unwrap_or_default();
    let source = TableName::parse(&given.source_table)?;
    if source.instance != cluster.instance {
        return invalid("backup.source_table", "a backup is in the instance of its table");
    }
    tables.instances().cluster(cluster)?;
    let max_days = max_days(tables, cluster.instance)?;
    let expires = check_expiry(given.expire_time, *now_micros, *now_micros, max_days)?;
    let kind = match BackupType::try_from(given.backup_type) {
        Ok(BackupType::Unspecified | BackupType::Standard) => BackupType::Standard,
        Ok(BackupType::Hot) => BackupType::Hot,
        Err(_) => return invalid("backup.backup_type", "unknown type"),
    };
    if let Some(time) = &given.hot_to_standard_time {
        let in_a_day = now_micros.saturating_add(DAY_MICROS);
        if kind != BackupType::Hot || micros(time).is_none_or(|micros| micros < in_a_day) {
            let what = "only for HOT backups, and at least 24 hours after their creation";
            return invalid("backup.hot_to_standard_time", what);
        }
    }
    let table = tables.get(&given.source_table)?;
    let name = format!("{cluster}/backups/{backup_id}");
    let declared = Backup {
        backup_type: kind.into(),
        hot_to_standard_time: given.hot_to_standard_time,
        ..Backup::default()
    };
    declare(tables, &name, &declared)?;
    let created = tables.served().create_backup(table.id, &name, Some(expires));
    created.map_err(|error| exists(error, &name))?;
    let backup = find(tables, &name)?.message;
    let metadata = CreateBackupMetadata {
        name: name.clone(),
        source_table: given.source_table,
        start_time: backup.start_time,
        end_time: backup.end_time,
    };
    let metadata = any("CreateBackupMetadata", &metadata);
    record(tables.records(), *now_micros, &name, metadata, any("Backup", &backup))
}

pub fn copy(context: &Context, request: CopyBackupRequest) -> Result<Operation> {
    let Context { tables, now_micros } = context;
    let CopyBackupRequest { parent, backup_id, source_backup, expire_time } = request;
    let cluster = ClusterName::parse(&parent)?;
    check_id("backup_id", &backup_id)?;
    tables.instances().cluster(cluster)?;
    let source = find(tables, &source_backup)?;
    if !source.message.source_backup.is_empty() {
        let what = "a copy of a backup cannot be copied";
        return Err(Error::Precondition(format!("Backup {}: {what}", source.message.name)));
    }
    let expires = check_expiry(expire_time, *now_micros, *now_micros, COPY_EXPIRY_MAX_DAYS)?;
    let name = format!("{cluster}/backups/{backup_id}");
    let declared = Backup {
        source_backup: source.message.name.clone(),
        backup_type: BackupType::Standard.into(),
        ..Backup::default()
    };
    declare(tables, &name, &declared)?;
    let copied = tables.served().copy_backup(&source.stored_name, &name, Some(expires));
    copied.map_err(|error| exists(error, &name))?;
    let backup = find(tables, &name)?.message;
    let metadata = CopyBackupMetadata {
        name: name.clone(),
        source_backup_info: Some(info(&source.message)),
        progress: Some(complete(*now_micros)),
    };
    let metadata = any("CopyBackupMetadata", &metadata);
    record(tables.records(), *now_micros, &name, metadata, any("Backup", &backup))
}

/// Changes the expiry of a backup.
pub fn update(context: &Context, request: UpdateBackupRequest) -> Result<Backup> {
    let Context { tables, now_micros } = context;
    let given = request.backup.unwrap_or_default();
    let found = find(tables, &given.name)?;
    for path in mask_paths(request.update_mask)? {
        if path != "expire_time" {
            let what = format!("'{}' cannot be updated: use expire_time", excerpt(&path));
            return invalid("update_mask", &what);
        }
    }
    let cluster = BackupName::parse(&given.name)?.cluster;
    let max_days = max_days(tables, cluster.instance)?;
    let since = found.message.start_time.as_ref().and_then(micros).unwrap_or(*now_micros);
    let expires = check_expiry(given.expire_time, *now_micros, since, max_days)?;
    tables.served().set_backup_expiry(&found.stored_name, Some(expires))?;
    Ok(find(tables, &given.name)?.message)
}

pub fn delete(context: &Context, request: DeleteBackupRequest) -> Result<()> {
    let tables = &context.tables;
    let found = find(tables, &request.name)?;
    match tables.served().delete_backup(&found.stored_name) {
        Err(stele_engine::Error::UnknownBackup(_)) => {
            let name = excerpt(&request.name);
            return Err(Error::NotFound(format!("Backup not found: {name}")));
        }
        outcome => outcome?,
    }
    tables.records().change(|| Ok((vec![Change::delete(found.stored_name.clone())], ())))
}

/// Creates a table from a backup of the same project.
pub fn restore(context: &Context, request: RestoreTableRequest) -> Result<Operation> {
    let Context { tables, now_micros } = context;
    let RestoreTableRequest { parent, table_id, source } = request;
    let instance = InstanceName::parse(&parent)?;
    check_id("table_id", &table_id)?;
    let Some(restore_table_request::Source::Backup(backup)) = source else {
        return invalid("source", "backup must be set");
    };
    if BackupName::parse(&backup)?.cluster.instance.project != instance.project {
        return invalid("backup", "a table is restored in the project of its backup");
    }
    tables.instances().check(instance)?;
    let found = find(tables, &backup)?;
    let name = format!("{instance}/tables/{table_id}");
    let table = tables.restore(&found.stored_name, &name)?;
    let info = info(&found.message);
    let restored = RestoreInfo {
        source_type: RestoreSourceType::Backup.into(),
        source_info: Some(SourceInfo::BackupInfo(info.clone())),
    };
    let put = Change::put(restored_name(table.id), &restored);
    tables.records().change(|| Ok((vec![put], ())))?;
    let metadata = RestoreTableMetadata {
        name: name.clone(),
        source_type: RestoreSourceType::Backup.into(),
        source_info: Some(restore_table_metadata::SourceInfo::BackupInfo(info)),
        // Nothing has to be optimized: the table refers to the files of the backup.
        optimize_table_operation_name: String::new(),
        progress: Some(complete(*now_micros)),
    };
    let metadata = any("RestoreTableMetadata", &metadata);
    let response = any("Table", &TableView::Schema.render(tables, &table));
    record(tables.records(), *now_micros, &name, metadata, response)
}

/// Records what the engine does not know of a backup. Replaces what an earlier one of that
/// name may have left, and is without effect if the backup is not created.
fn declare(tables: &Tables, name: &str, declared: &Backup) -> Result<()> {
    if tables.served().backup(name).is_ok() {
        return Err(Error::Exists(format!("Backup already exists: {name}")));
    }
    tables.records().change(|| Ok((vec![Change::put(name, declared)], ())))
}

fn exists(error: stele_engine::Error, name: &str) -> Error {
    match error {
        stele_engine::Error::BackupExists(_) => {
            Error::Exists(format!("Backup already exists: {name}"))
        }
        other => other.into(),
    }
}

fn info(backup: &Backup) -> BackupInfo {
    BackupInfo {
        backup: backup.name.clone(),
        start_time: backup.start_time,
        end_time: backup.end_time,
        source_table: backup.source_table.clone(),
        source_backup: backup.source_backup.clone(),
    }
}

fn complete(now_micros: i64) -> OperationProgress {
    let now = Some(timestamp(now_micros));
    OperationProgress { progress_percent: 100, start_time: now, end_time: now }
}

fn max_days(tables: &Tables, instance: InstanceName<'_>) -> Result<i64> {
    Ok(match tables.instances().find(instance)?.edition() {
        instance::Edition::EnterprisePlus => EXPIRY_MAX_DAYS_PLUS,
        _ => EXPIRY_MAX_DAYS,
    })
}

/// Returns when a backup expires: at least 6 hours from now, and at most so many days after
/// its creation.
fn check_expiry(
    given: Option<Timestamp>,
    now_micros: i64,
    since_micros: i64,
    max_days: i64,
) -> Result<i64> {
    // The clocks of client and server may differ, and the request takes time.
    const TOLERANCE_MICROS: i64 = 60_000_000;
    let expires = given.as_ref().and_then(micros);
    let min = now_micros.saturating_add(EXPIRY_MIN_MICROS - TOLERANCE_MICROS);
    let max = since_micros.saturating_add(max_days * DAY_MICROS + TOLERANCE_MICROS);
    match expires {
        Some(expires) if (min..=max).contains(&expires) => Ok(expires),
        _ => {
            let what =
                format!("must be set, at least 6 hours from now and at most {max_days} days");
            invalid("expire_time", &what)
        }
    }
}

fn micros(time: &Timestamp) -> Option<i64> {
    time.seconds.checked_mul(1_000_000)?.checked_add(i64::from(time.nanos) / 1000)
}

fn invalid<T>(field: &str, what: &str) -> Result<T> {
    Err(Error::Invalid(format!("Error in field '{field}' : {what}")))
}
