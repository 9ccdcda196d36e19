//! `stele metastore history` and `top`: what a key was, and which prefixes use the space.

use std::io::{self, Write};

use bytes::Bytes;
use clap::Args;
use serde_json::json;
use stele_metastore::client::{HistoryResponse, TopRequest, TopResponse};

use super::commands::Connection;
use super::render::{base64, hex};
use crate::Outcome;
use crate::escape::Typed;
use crate::output::{bytes, count, json_line, preview, table, text};
use crate::timestamp;

/// Show the retained changes of a key, the newest first: revision, time, user and value.
#[derive(Args)]
#[command(after_help = "Example:\n  stele metastore history config/db --limit 5")]
pub struct History {
    key: Typed,
    /// Maximum number of changes.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: i64,
    #[command(flatten)]
    connection: Connection,
}

impl History {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let History { key: Typed(key), limit, connection } = self;
        let history = connection.run(async |client| Ok(client.history(key, limit).await?))?;
        let mut out = io::stdout().lock();
        match connection.json {
            true => history_json(&mut out, &history)?,
            false => history_table(&mut out, &history)?,
        }
        Ok(if history.entries.is_empty() { Outcome::Absent } else { Outcome::Sound })
    }
}

fn history_json(out: &mut dyn Write, history: &HistoryResponse) -> io::Result<()> {
    for entry in &history.entries {
        let value = entry.value.as_ref().map(|value| base64(value));
        let lease = (entry.client_id != 0).then(|| hex(entry.client_id));
        let line = json!({
            "revision": entry.revision,
            "time_micros": entry.time_micros,
            "user": entry.user,
            "value": value,
            "version": entry.version,
            "lease": lease,
        });
        json_line(out, &line)?;
    }
    Ok(())
}

fn history_table(out: &mut dyn Write, history: &HistoryResponse) -> io::Result<()> {
    let mut listed = table(&["revision", "time", "user", "value"], 4);
    for entry in &history.entries {
        let time = match entry.time_micros {
            0 => String::new(),
            micros => timestamp::format(micros),
        };
        let value = match &entry.value {
            Some(value) => preview(value),
            None => "(deleted)".to_owned(),
        };
        listed.add_row([entry.revision.to_string(), time, entry.user.clone(), value]);
    }
    writeln!(out, "{listed}")?;
    if history.more {
        writeln!(out, "there are older changes: raise --limit")?;
    }
    Ok(())
}

/// Show the prefixes with the most keys or bytes.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stele metastore top\n  stele metastore top config/ --depth 2 --by-keys")]
pub struct Top {
    /// Only keys that start with this.
    prefix: Option<Typed>,
    /// Separators after the prefix that a group of keys extends to.
    #[arg(long, value_name = "N", default_value_t = 1)]
    depth: u32,
    /// Separator of the parts of keys.
    #[arg(long, value_name = "CHAR", default_value = "/")]
    separator: char,
    /// Maximum number of prefixes.
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,
    /// Order by the number of keys instead of bytes.
    #[arg(long)]
    by_keys: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Top {
    pub fn run(self) -> anyhow::Result<()> {
        let Top { prefix, depth, separator, limit, by_keys, connection } = self;
        if !separator.is_ascii() {
            anyhow::bail!("invalid separator {separator:?}: use one ASCII character");
        }
        let prefix = prefix.map_or_else(Bytes::new, |Typed(prefix)| prefix);
        let separator = separator.to_string().into_bytes().into();
        let request = TopRequest { prefix, depth, separator, limit, by_keys };
        let top = connection.run(async |client| Ok(client.top(request).await?))?;
        let mut out = io::stdout().lock();
        match connection.json {
            true => top_json(&mut out, &top)?,
            false => top_table(&mut out, &top)?,
        }
        Ok(())
    }
}

fn top_json(out: &mut dyn Write, top: &TopResponse) -> io::Result<()> {
    for entry in &top.entries {
        let line = json!({
            "prefix": base64(&entry.prefix),
            "keys": entry.keys,
            "bytes": entry.bytes,
            "versions": entry.versions,
            "mod_revision": entry.mod_revision,
        });
        json_line(out, &line)?;
    }
    Ok(())
}

fn top_table(out: &mut dyn Write, top: &TopResponse) -> io::Result<()> {
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    let mut listed = table(&["prefix", "keys", "bytes", "puts", "newest"], 1);
    for entry in &top.entries {
        listed.add_row([
            text(&entry.prefix),
            count(unsigned(entry.keys)),
            bytes(unsigned(entry.bytes)),
            count(unsigned(entry.versions)),
            entry.mod_revision.to_string(),
        ]);
    }
    writeln!(out, "{listed}")?;
    let (keys, size) = (count(unsigned(top.keys)), bytes(unsigned(top.bytes)));
    writeln!(out, "{keys} keys, {size} at revision {}", top.revision)?;
    if top.omitted > 0 {
        writeln!(out, "{} more prefixes: raise --limit", count(top.omitted))?;
    }
    Ok(())
}
