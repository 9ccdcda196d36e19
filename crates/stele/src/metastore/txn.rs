//! `stele metastore txn`: atomic writes under conditions.

use std::io;

use bytes::Bytes;
use clap::Args;
use serde_json::json;

use super::commands::Connection;
use super::render;
use crate::Outcome;
use crate::escape::{Typed, unescape};
use crate::output::json_line;

/// Write several keys atomically if all conditions hold.
///
/// All conditions are checked and all writes happen at one revision, or nothing happens.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stele metastore txn --if leader= --put leader=host1 --put since=2026\n  \
    stele metastore txn --if-absent lock --put lock=me\n  \
    stele metastore txn --del a --del b\n\n\
    Exits with 1 if a condition does not hold.")]
pub struct Txn {
    /// Condition: the key has this value.
    #[arg(long = "if", value_name = "KEY=VALUE", value_parser = parse_pair)]
    equal: Vec<(Bytes, Bytes)>,
    /// Condition: the key does not exist.
    #[arg(long, value_name = "KEY")]
    if_absent: Vec<Typed>,
    /// Condition: the key exists.
    #[arg(long, value_name = "KEY")]
    if_present: Vec<Typed>,
    /// Set a key.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    put: Vec<(Bytes, Bytes)>,
    /// Delete a key.
    #[arg(long, value_name = "KEY")]
    del: Vec<Typed>,
    #[command(flatten)]
    connection: Connection,
}

fn parse_pair(text: &str) -> Result<(Bytes, Bytes), String> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("invalid pair {text:?}: expected KEY=VALUE"))?;
    Ok((unescape(key)?, unescape(value)?))
}

impl Txn {
    pub fn run(self) -> anyhow::Result<Outcome> {
        anyhow::ensure!(
            !self.put.is_empty() || !self.del.is_empty(),
            "the transaction writes nothing: add --put or --del"
        );
        let committed = self.connection.run(async |client| {
            let (applied, revision) =
                client.transact(|transaction| self.attempt(transaction)).await?;
            Ok(applied.then_some(revision))
        })?;
        let out = &mut io::stdout().lock();
        match committed {
            Some(revision) => {
                render::revision(out, "committed", revision, self.connection.json)?;
                Ok(Outcome::Sound)
            }
            None => {
                if self.connection.json {
                    json_line(out, &json!({ "revision": null }))?;
                }
                eprintln!("stele: transaction not applied: a condition does not hold");
                Ok(Outcome::Absent)
            }
        }
    }

    /// Runs the transaction. Returns whether all conditions held.
    async fn attempt(
        &self,
        transaction: stele_metastore::client::Transaction,
    ) -> stele_metastore::client::Result<bool> {
        for (key, value) in &self.equal {
            if transaction.get(key.clone()).await?.as_ref() != Some(value) {
                return Ok(false);
            }
        }
        let absent = self.if_absent.iter().map(|key| (key, false));
        let present = self.if_present.iter().map(|key| (key, true));
        for (Typed(key), expected) in absent.chain(present) {
            if transaction.get(key.clone()).await?.is_some() != expected {
                return Ok(false);
            }
        }
        for (key, value) in &self.put {
            transaction.put(key.clone(), value.clone());
        }
        for Typed(key) in &self.del {
            transaction.delete(key.clone());
        }
        Ok(true)
    }
}
