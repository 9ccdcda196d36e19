//! Prints backups and deleted tables.

use std::io::{self, Write};

use serde_json::{Value, json};
use stele_tables_api::proto::{Backup, DeletedTable};

use crate::output::{bytes, count, json_line, table, things};
use crate::timestamp;

/// Prints what was done: a line for people, an object for programs.
pub fn done(out: &mut dyn Write, line: &str, value: &Value, json: bool) -> io::Result<()> {
    if json { json_line(out, value) } else { writeln!(out, "{line}") }
}

/// Prints a list of backups.
pub fn backups(out: &mut dyn Write, backups: &[Backup], json: bool) -> io::Result<()> {
    if json {
        let backups: Vec<Value> = backups.iter().map(backup_json).collect();
        return json_line(out, &json!({"backups": backups}));
    }
    let mut lines = table(&["backup", "table", "created", "expires", "tablets", "size"], 4);
    for backup in backups {
        lines.add_row([
            backup.name.clone(),
            backup.table.clone(),
            timestamp::format(backup.created_micros),
            expires(backup),
            count(backup.tablets),
            bytes(backup.disk_bytes),
        ]);
    }
    writeln!(out, "{lines}")?;
    writeln!(out, "{}", things(backups.len() as u64, "backup"))
}

/// Prints one backup.
pub fn backup(out: &mut dyn Write, backup: &Backup, json: bool) -> io::Result<()> {
    if json {
        return json_line(out, &backup_json(backup));
    }
    writeln!(out, "backup {} of table {}", backup.name, backup.table)?;
    writeln!(out, "created {}, expires {}", created(backup), expires(backup))?;
    let tablets = things(backup.tablets, "tablet");
    let size = bytes(backup.disk_bytes);
    writeln!(out, "{tablets}, {size} on disk, commits up to txn {}", backup.txn)
}

fn created(backup: &Backup) -> String {
    timestamp::format(backup.created_micros)
}

fn expires(backup: &Backup) -> String {
    backup.expires_micros.map_or("never".into(), timestamp::format)
}

pub fn backup_json(backup: &Backup) -> Value {
    json!({
        "name": backup.name,
        "table": backup.table,
        "created": created(backup),
        "expires": backup.expires_micros.map(timestamp::format),
        "txn": backup.txn,
        "tablets": backup.tablets,
        "disk_bytes": backup.disk_bytes,
    })
}

/// Prints the deleted tables of an instance, whose names begin with `prefix`.
pub fn deleted(
    out: &mut dyn Write,
    prefix: &str,
    tables: &[DeletedTable],
    json: bool,
) -> io::Result<()> {
    let name = |deleted: &DeletedTable| {
        deleted.name.strip_prefix(prefix).unwrap_or(&deleted.name).to_string()
    };
    if json {
        let object = |deleted: &DeletedTable| {
            json!({
                "name": name(deleted),
                "id": deleted.id,
                "deleted": timestamp::format(deleted.deleted_micros),
                "removed": timestamp::format(deleted.removed_micros),
                "tablets": deleted.tablets,
                "disk_bytes": deleted.disk_bytes,
            })
        };
        let tables: Vec<Value> = tables.iter().map(object).collect();
        return json_line(out, &json!({"tables": tables}));
    }
    let mut lines = table(&["table", "deleted", "removed at", "tablets", "size"], 3);
    for deleted in tables {
        lines.add_row([
            name(deleted),
            timestamp::format(deleted.deleted_micros),
            timestamp::format(deleted.removed_micros),
            count(deleted.tablets),
            bytes(deleted.disk_bytes),
        ]);
    }
    writeln!(out, "{lines}")?;
    writeln!(out, "{}", things(tables.len() as u64, "deleted table"))
}
