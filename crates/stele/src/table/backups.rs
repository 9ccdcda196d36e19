//! The commands for backups and deleted tables.

use std::io;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use stele_bigtable_client::parse_age;

use super::backups_render as render;
use super::commands::Format;
use super::tablets::failed;
use crate::confirm::confirm;
use crate::connect::BigtableServer;
use crate::timestamp::Timestamp;

#[derive(Subcommand)]
pub enum Command {
    /// Create, show and delete backups of tables.
    #[command(subcommand, arg_required_else_help = true)]
    Backup(Backup),
    /// Create a table from a backup.
    #[command(after_help = "\
Example:
  stele table restore users-monday users2

The new table has the rows, families and tablets of the backup, and shares its files until
they are rewritten. The backup stays.")]
    Restore {
        /// Name of the backup.
        backup: String,
        /// Name of the new table.
        table: String,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Bring a dropped table back with all its rows.
    #[command(after_help = "\
Example:
  stele table undelete users

`stele table list --deleted` shows the tables that can be brought back. If several tables of
the same name were dropped, the last one is.")]
    Undelete {
        table: String,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
}

#[derive(Subcommand)]
pub enum Backup {
    /// Create a backup of a table as it is now.
    #[command(after_help = "\
Examples:
  stele table backup create users users-monday
  stele table backup create users users-monday --expire 30d

Nothing is copied: the backup keeps the files of the table, also when the table changes or
is dropped. Readers and writers continue.")]
    Create {
        table: String,
        /// Name of the backup: letters, digits, `_`, `-` and `.`.
        backup: String,
        /// When to remove the backup: after a time such as 30d or 12h, or at a date.
        #[arg(long, value_name = "TIME")]
        expire: Option<Expiry>,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// List all backups, or those of one table.
    #[command(after_help = "Example:\n  stele table backup list --json")]
    List {
        /// Only backups of this table.
        table: Option<String>,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Show a backup.
    #[command(after_help = "Example:\n  stele table backup show users-monday")]
    Show {
        backup: String,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Delete a backup and the files that only it needs.
    #[command(after_help = "Example:\n  stele table backup delete users-monday --yes")]
    Delete {
        backup: String,
        /// Confirm that the backup is deleted.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
}

/// A time in the future, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry(pub i64);

impl FromStr for Expiry {
    type Err = String;

    /// Parses a time from now such as `30d`, or a date.
    fn from_str(text: &str) -> Result<Expiry, String> {
        let Some(time) = parse_age(text) else {
            return text.parse().map(|Timestamp(micros)| Expiry(micros)).map_err(|_| {
                format!("invalid time {text:?}: use 30d, 12h, 2026-01-31 or 2026-01-31T12:00:00Z")
            });
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let micros = now.saturating_add(time).as_micros();
        Ok(Expiry(i64::try_from(micros).unwrap_or(i64::MAX)))
    }
}

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Backup(command) => run_backup(command),
        Command::Restore { backup, table, format, server } => {
            let name = server.table_name(&table)?;
            server
                .run_tablets(async |client| client.restore(&backup, &name).await.map_err(failed))?;
            let line = format!("restored backup {backup} as table {table}");
            let done = serde_json::json!({"backup": backup, "table": name, "restored": true});
            Ok(render::done(&mut io::stdout().lock(), &line, &done, format.json)?)
        }
        Command::Undelete { table, format, server } => {
            let name = server.table_name(&table)?;
            server.run_tablets(async |client| client.undelete(&name).await.map_err(failed))?;
            let line = format!("undeleted table {table}");
            let done = serde_json::json!({"table": name, "undeleted": true});
            Ok(render::done(&mut io::stdout().lock(), &line, &done, format.json)?)
        }
    }
}

fn run_backup(command: Backup) -> anyhow::Result<()> {
    match command {
        Backup::Create { table, backup, expire, format, server } => {
            let name = server.table_name(&table)?;
            let expires = expire.map(|Expiry(micros)| micros);
            let created = server.run_tablets(async |client| {
                client.create_backup(&name, &backup, expires).await.map_err(failed)
            })?;
            let line = format!("created backup {backup} of table {table}");
            let done = render::backup_json(&created);
            render::done(&mut io::stdout().lock(), &line, &done, format.json)?;
        }
        Backup::List { table, format, server } => {
            let name = table.map(|table| server.table_name(&table)).transpose()?;
            let backups = server.run_tablets(async |client| {
                client.backups(name.as_deref()).await.map_err(failed)
            })?;
            render::backups(&mut io::stdout().lock(), &backups, format.json)?;
        }
        Backup::Show { backup, format, server } => {
            let found =
                server.run_tablets(async |client| client.backup(&backup).await.map_err(failed))?;
            render::backup(&mut io::stdout().lock(), &found, format.json)?;
        }
        Backup::Delete { backup, yes, format, server } => {
            confirm(yes, &format!("delete backup {backup}"))?;
            server
                .run_tablets(async |client| client.delete_backup(&backup).await.map_err(failed))?;
            let line = format!("deleted backup {backup}");
            let done = serde_json::json!({"backup": backup, "deleted": true});
            render::done(&mut io::stdout().lock(), &line, &done, format.json)?;
        }
    }
    Ok(())
}

/// Lists the deleted tables of the instance.
pub fn list_deleted(server: &BigtableServer, json: bool) -> anyhow::Result<()> {
    let prefix = server.table_name("")?;
    let mut deleted = server.run_tablets(async |client| client.deleted().await.map_err(failed))?;
    deleted.retain(|table| table.name.starts_with(&prefix));
    Ok(render::deleted(&mut io::stdout().lock(), &prefix, &deleted, json)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expiry_of_a_backup_is_a_time_from_now_or_a_date() {
        let Expiry(hour) = "1h".parse().unwrap();
        let Expiry(days) = "30d".parse().unwrap();
        assert!(days > hour && hour > 1_700_000_000_000_000);
        assert_eq!("2000-01-01".parse(), Ok(Expiry(946_684_800_000_000)));
        assert!("soon".parse::<Expiry>().unwrap_err().contains("30d"));
    }
}
