//! `stele backup`: backups through the Bigtable API, of Stele or of Google.

use clap::Subcommand;
use prost_types::Timestamp;
use serde_json::{Value, json};
use stele_bigtable_client::Client;
use stele_bigtable_client::admin_messages::{
    Backup, CopyBackupRequest, CreateBackupRequest, DeleteBackupRequest, ListBackupsRequest,
    ListClustersRequest, RestoreTableRequest, Table, UpdateBackupRequest, restore_table_request,
};

use super::{id, mask, print_list};
use crate::confirm::confirm;
use crate::connect::{BigtableServer, with_hint};
use crate::output::{bytes, print_line};
use crate::table::Expiry;
use crate::timestamp;

#[derive(Subcommand)]
pub enum Command {
    /// List the backups of the instance, newest first.
    #[command(after_help = "\
Examples:
  stele backup list
  stele backup list --filter 'source_table:users AND size_bytes > 1000000' --order name")]
    List {
        /// Comparisons of fields, joined by AND, OR and NOT.
        #[arg(long, default_value = "", hide_default_value = true)]
        filter: String,
        /// Fields, each possibly followed by desc, separated by commas.
        #[arg(long, value_name = "FIELDS", default_value = "", hide_default_value = true)]
        order: String,
        /// Print JSON instead of tables.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Create a backup of a table as it is now.
    #[command(after_help = "\
Example:
  stele backup create users users-monday --expire 30d

`stele table backup create` does the same on a Stele server, and can create backups that do
not expire.")]
    Create {
        table: String,
        /// Id of the backup.
        backup: String,
        /// When to remove the backup: after a time such as 30d or 12h, or at a date.
        #[arg(long, value_name = "TIME", default_value = "7d")]
        expire: Expiry,
        /// Cluster of the backup [default: the first of the instance].
        #[arg(long, value_name = "ID")]
        cluster: Option<String>,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Copy a backup of any instance into this one.
    #[command(after_help = "\
Example:
  stele backup copy projects/p/instances/i/clusters/i-c1/backups/monday monday --expire 20d")]
    Copy {
        /// Id of a backup of this instance, or the whole name of one of another.
        source: String,
        /// Id of the copy.
        backup: String,
        /// When to remove the copy: after a time such as 20d or 12h, or at a date.
        #[arg(long, value_name = "TIME", default_value = "7d")]
        expire: Expiry,
        /// Cluster of the copy [default: the first of the instance].
        #[arg(long, value_name = "ID")]
        cluster: Option<String>,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Change when a backup is removed.
    #[command(after_help = "Example:\n  stele backup expire users-monday 60d")]
    Expire {
        backup: String,
        /// After a time such as 30d or 12h, or at a date.
        expire: Expiry,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Create a table from a backup.
    #[command(after_help = "Example:\n  stele backup restore users-monday users2")]
    Restore {
        backup: String,
        /// Id of the new table.
        table: String,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Delete a backup.
    #[command(after_help = "Example:\n  stele backup delete users-monday --yes")]
    Delete {
        backup: String,
        /// Confirm that the backup is deleted.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        server: BigtableServer,
    },
}

fn shown(found: &Backup) -> (Vec<String>, Value) {
    let time = |time: &Option<Timestamp>| {
        time.as_ref().map_or_else(
            || "never".to_string(),
            |time| timestamp::format(time.seconds * 1_000_000 + i64::from(time.nanos) / 1000),
        )
    };
    let size = u64::try_from(found.size_bytes).unwrap_or(0);
    let row = vec![
        id(&found.name).into(),
        id(&found.source_table).into(),
        time(&found.start_time),
        time(&found.expire_time),
        bytes(size),
    ];
    let value = json!({
        "name": found.name, "source_table": found.source_table, "size_bytes": found.size_bytes,
        "start_time": time(&found.start_time), "expire_time": time(&found.expire_time),
        "source_backup": found.source_backup, "state": found.state().as_str_name(),
    });
    (row, value)
}

async fn backups(client: &Client, filter: String, order_by: String) -> anyhow::Result<Vec<Backup>> {
    let parent = format!("{}/clusters/-", client.options().instance_name());
    let mut message = ListBackupsRequest { parent, filter, order_by, ..Default::default() };
    let mut found = Vec::new();
    loop {
        let page = client.list_backups(message.clone()).await.map_err(with_hint)?;
        found.extend(page.backups);
        message.page_token = page.next_page_token;
        if message.page_token.is_empty() {
            return Ok(found);
        }
    }
}

/// Returns the whole name of a backup, whichever cluster it is in.
async fn name(client: &Client, backup: &str) -> anyhow::Result<String> {
    if backup.contains('/') {
        return Ok(backup.into());
    }
    let found = backups(client, String::new(), String::new()).await?;
    let found = found.into_iter().find(|found| id(&found.name) == backup);
    let missing = || anyhow::anyhow!("backup {backup} not found: `stele backup list` shows them");
    Ok(found.ok_or_else(missing)?.name)
}

/// Returns the name of a cluster: the given one, or the first of the instance.
async fn cluster(client: &Client, given: Option<String>) -> anyhow::Result<String> {
    let parent = client.options().instance_name();
    if let Some(cluster) = given {
        return Ok(format!("{parent}/clusters/{cluster}"));
    }
    let message = ListClustersRequest { parent, page_token: String::new() };
    let page = client.list_clusters(message).await.map_err(with_hint)?;
    let first = page.clusters.into_iter().next();
    Ok(first.ok_or_else(|| anyhow::anyhow!("the instance has no cluster"))?.name)
}

fn time(Expiry(micros): Expiry) -> Option<Timestamp> {
    let nanos = micros.rem_euclid(1_000_000) * 1000;
    Some(Timestamp { seconds: micros.div_euclid(1_000_000), nanos: nanos as i32 })
}

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List { filter, order, json, server } => server.run(async |client| {
            let found = backups(&client, filter, order).await?;
            let rows = found.iter().map(shown).collect();
            print_list(&["backup", "table", "created", "expires", "size"], rows, json)
        }),
        Command::Create { table, backup, expire, cluster: given, server } => {
            server.run(async |client| {
                let source_table = format!("{}/tables/{table}", client.options().instance_name());
                let declared =
                    Backup { source_table, expire_time: time(expire), ..Backup::default() };
                let message = CreateBackupRequest {
                    parent: cluster(&client, given).await?,
                    backup_id: backup.clone(),
                    backup: Some(declared),
                };
                let operation = client.create_backup(message).await.map_err(with_hint)?;
                client.finished::<Backup>(operation).await.map_err(with_hint)?;
                print_line(&format!("created backup {backup} of table {table}"))
            })
        }
        Command::Copy { source, backup, expire, cluster: given, server } => {
            server.run(async |client| {
                let message = CopyBackupRequest {
                    parent: cluster(&client, given).await?,
                    backup_id: backup.clone(),
                    source_backup: name(&client, &source).await?,
                    expire_time: time(expire),
                };
                let operation = client.copy_backup(message).await.map_err(with_hint)?;
                client.finished::<Backup>(operation).await.map_err(with_hint)?;
                print_line(&format!("created backup {backup}, a copy of {source}"))
            })
        }
        Command::Expire { backup, expire, server } => server.run(async |client| {
            let name = name(&client, &backup).await?;
            let changed = Backup { name, expire_time: time(expire), ..Backup::default() };
            let message =
                UpdateBackupRequest { backup: Some(changed), update_mask: mask(&["expire_time"]) };
            client.update_backup(message).await.map_err(with_hint)?;
            print_line(&format!("backup {backup} expires {}", timestamp::format(expire.0)))
        }),
        Command::Restore { backup, table, server } => server.run(async |client| {
            let message = RestoreTableRequest {
                parent: client.options().instance_name(),
                table_id: table.clone(),
                source: Some(restore_table_request::Source::Backup(name(&client, &backup).await?)),
            };
            let operation = client.restore_table(message).await.map_err(with_hint)?;
            client.finished::<Table>(operation).await.map_err(with_hint)?;
            print_line(&format!("restored backup {backup} as table {table}"))
        }),
        Command::Delete { backup, yes, server } => {
            confirm(yes, &format!("delete backup {backup}"))?;
            server.run(async |client| {
                let name = name(&client, &backup).await?;
                client.delete_backup(DeleteBackupRequest { name }).await.map_err(with_hint)?;
                print_line(&format!("deleted backup {backup}"))
            })
        }
    }
}
