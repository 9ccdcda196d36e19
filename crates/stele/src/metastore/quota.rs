//! `stele metastore quota`: limits of keys and bytes per prefix.

use std::io::{self, Write};

use clap::Subcommand;
use serde_json::json;

use super::commands::Connection;
use super::render::{self, base64};
use crate::escape::Typed;
use crate::output::{bytes, json_line, text};
use crate::serve::Size;

#[derive(Subcommand)]
pub enum Command {
    /// Set the quota of a prefix. Puts beyond it are refused.
    #[command(after_help = "Example:\n  \
        stele metastore quota set tenants/a/ --keys 10000 --bytes 64MiB")]
    Set {
        prefix: Typed,
        /// Maximum number of keys; 0 for no limit.
        #[arg(long, value_name = "N", required_unless_present = "bytes")]
        keys: Option<i64>,
        /// Maximum size of keys and values; 0 for no limit.
        #[arg(long, value_name = "SIZE")]
        bytes: Option<Size>,
        #[command(flatten)]
        connection: Connection,
    },
    /// List all quotas and what they use.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Delete the quota of a prefix; its keys stay.
    Delete {
        prefix: Typed,
        #[command(flatten)]
        connection: Connection,
    },
}

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Set { prefix: Typed(prefix), keys, bytes, connection } => {
            let limit = i64::try_from(bytes.map_or(0, |size| size.0)).unwrap_or(i64::MAX);
            let keys = keys.unwrap_or(0);
            let named = text(&prefix);
            let object = json!({
                "prefix": base64(&prefix), "keys_max": keys, "bytes_max": limit,
            });
            connection.run(async |client| Ok(client.set_quota(prefix, keys, limit).await?))?;
            Ok(render::done(&format!("quota of {named} set"), &object, connection.json)?)
        }
        Command::List { connection } => list(&connection),
        Command::Delete { prefix: Typed(prefix), connection } => {
            let named = text(&prefix);
            let object = json!({ "deleted": base64(&prefix) });
            connection.run(async |client| Ok(client.remove_quota(prefix).await?))?;
            Ok(render::done(&format!("quota of {named} deleted"), &object, connection.json)?)
        }
    }
}

fn list(connection: &Connection) -> anyhow::Result<()> {
    let quotas = connection.run(async |client| Ok(client.quotas().await?))?;
    let out = &mut io::stdout().lock();
    for quota in &quotas {
        if connection.json {
            let object = json!({
                "prefix": base64(&quota.prefix), "keys": quota.keys, "keys_max": quota.keys_max,
                "bytes": quota.bytes, "bytes_max": quota.bytes_max,
            });
            json_line(out, &object)?;
            continue;
        }
        let size = |number: i64| bytes(u64::try_from(number).unwrap_or(0));
        let of = |limit: i64, text: String| match limit {
            0 => "no limit".to_string(),
            _ => format!("of {text}"),
        };
        let keys =
            format!("{} keys {}", quota.keys, of(quota.keys_max, quota.keys_max.to_string()));
        let used = format!("{} {}", size(quota.bytes), of(quota.bytes_max, size(quota.bytes_max)));
        writeln!(out, "{}\t{keys}\t{used}", text(&quota.prefix))?;
    }
    Ok(())
}
