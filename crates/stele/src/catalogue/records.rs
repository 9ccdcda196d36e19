//! `stele catalogue put`, `get`, `del` and `next`.

use std::io::{self, BufWriter, Write};
use std::str::FromStr;

use bytes::Bytes;
use clap::Args;
use serde_json::json;
use stele_catalogue::Fid;
use stele_catalogue::client::{NewRecord, RecordKey, Step, Walk, WalkStart};
use stele_catalogue::proto::{Code, Flag, Range};

use super::command::{Form, outcome, report};
use super::format;
use crate::Outcome;
use crate::confirm::confirm;
use crate::connect::{CatalogueServer, with_hint};
use crate::escape::{Typed, unescape};
use crate::output::{json_line, text, things};

/// Store records in one commit.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele catalogue put 'i|1:1' name=Ada born=1815
  stele catalogue put 'i|1:1' 'photo=\\xff\\xd8' --insert-only

Write = in a key as \\x3d.")]
pub struct Put {
    fid: Fid,
    #[arg(required = true, value_name = "KEY=VALUE")]
    records: Vec<Pair>,
    /// Reject records that exist.
    #[arg(long, conflicts_with = "create_if_absent")]
    insert_only: bool,
    /// Keep records that exist unchanged.
    #[arg(long)]
    create_if_absent: bool,
    /// Create the catalogue if it does not exist.
    #[arg(long)]
    create_catalogue: bool,
    /// Store nothing if any record is rejected.
    #[arg(long)]
    all_or_nothing: bool,
    /// Overwrite only records with this current value.
    #[arg(long, value_name = "VALUE", value_parser = unescape)]
    expect: Option<Bytes>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    server: CatalogueServer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    key: Bytes,
    value: Bytes,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(typed: &str) -> Result<Pair, String> {
        let (key, value) = typed
            .split_once('=')
            .ok_or_else(|| format!("invalid record {typed:?}: use KEY=VALUE"))?;
        Ok(Pair { key: unescape(key)?, value: unescape(value)? })
    }
}

fn flag(flag: Flag, given: bool) -> u32 {
    if given { flag as u32 } else { 0 }
}

impl Put {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let flags = flag(Flag::InsertOnly, self.insert_only)
            | flag(Flag::CreateIfAbsent, self.create_if_absent)
            | flag(Flag::CreateCatalogue, self.create_catalogue)
            | flag(Flag::AllOrNothing, self.all_or_nothing)
            | Flag::NoCookies as u32;
        let keys: Vec<Bytes> = self.records.iter().map(|pair| pair.key.clone()).collect();
        let record = |pair: Pair| NewRecord {
            expected: self.expect.clone().map(Into::into),
            ..NewRecord::new(pair.key, pair.value)
        };
        let records = self.records.into_iter().map(record).collect();
        let reply = self.server.run(async |client| {
            client.catalogue(self.fid).put(records, flags).await.map_err(with_hint)
        })?;
        print_codes(self.form, &keys, reply.codes())?;
        let done = format!("{} stored", things(reply.count, "record"));
        report(self.form, &done, &json!({"count": reply.count, "applied": reply.applied}))?;
        Ok(outcome(reply.codes().all(|code| code == Code::Ok)))
    }
}

/// Prints the rejected records; in JSON, all records.
fn print_codes(
    form: Form,
    keys: &[Bytes],
    codes: impl Iterator<Item = Code>,
) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for (key, code) in keys.iter().zip(codes) {
        if form.json {
            let mut object = format::record_json(key, None);
            object.insert("code".into(), format::code_name(code).into());
            json_line(&mut out, &object)?;
            continue;
        }
        let what = match code {
            Code::Ok => continue,
            Code::Exists => "already exists",
            Code::Unexpected => "does not have the expected value",
            _ => "not found",
        };
        writeln!(out, "{} {what}", text(key))?;
    }
    Ok(())
}

/// Get records by key.
#[derive(Args)]
#[command(after_help = "Example:\n  stele catalogue get 'i|1:1' name born")]
pub struct Get {
    fid: Fid,
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<Typed>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    server: CatalogueServer,
}

fn wire_keys(keys: &[Typed]) -> Vec<RecordKey> {
    keys.iter().map(|Typed(key)| key.clone().into()).collect()
}

impl Get {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let keys = wire_keys(&self.keys);
        let answers = self.server.run(async |client| {
            let flags = Flag::NoCookies as u32;
            client.catalogue(self.fid).get(keys, flags, 0).await.map_err(with_hint)
        })?;
        let mut out = io::stdout().lock();
        let mut all = true;
        for (Typed(key), found) in self.keys.iter().zip(answers) {
            if found.code == Code::Ok {
                format::record(&mut out, key, Some(&found.value.joined()), self.form)?;
                continue;
            }
            all = false;
            if self.form.json {
                let mut object = format::record_json(key, None);
                object.insert("code".into(), format::code_name(found.code).into());
                json_line(&mut out, &object)?;
            } else {
                writeln!(out, "{} not found", text(key))?;
            }
        }
        Ok(outcome(all))
    }
}

/// The range of keys.
#[derive(Args, Clone)]
struct Bounds {
    /// Only keys before this one.
    #[arg(long, value_name = "KEY", value_parser = unescape)]
    end: Option<Bytes>,
    /// Only keys that start with this prefix.
    #[arg(long, value_parser = unescape)]
    prefix: Option<Bytes>,
}

impl Bounds {
    fn range(&self, start: Bytes) -> Range {
        let prefix = self.prefix.clone().unwrap_or_default();
        Range { start, end: self.end.clone(), prefix }
    }

    fn is_given(&self) -> bool {
        self.end.is_some() || self.prefix.is_some()
    }
}

/// Delete records in one commit.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele catalogue del 'i|1:1' name born
  stele catalogue del 'i|1:1' --prefix log/ --yes
  stele catalogue del 'i|1:1' --start a --end n --yes")]
pub struct Del {
    fid: Fid,
    #[arg(value_name = "KEY", conflicts_with_all = ["start", "end", "prefix"])]
    keys: Vec<Typed>,
    /// All keys from this one on.
    #[arg(long, value_name = "KEY", value_parser = unescape)]
    start: Option<Bytes>,
    #[command(flatten)]
    bounds: Bounds,
    /// Confirm that all records of the range are deleted.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    server: CatalogueServer,
}

impl Del {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let ranged = self.start.is_some() || self.bounds.is_given();
        anyhow::ensure!(
            ranged || !self.keys.is_empty(),
            "nothing to delete: give keys, or --start, --end or --prefix"
        );
        if ranged {
            confirm(self.yes, "delete all records of a range")?;
        }
        let range = self.bounds.range(self.start.unwrap_or_default());
        let reply = self.server.run(async |client| {
            let catalogue = client.catalogue(self.fid);
            let deleted = match ranged {
                true => catalogue.del_range(Some(range), 0).await,
                false => catalogue.del(wire_keys(&self.keys), 0).await,
            };
            deleted.map_err(with_hint)
        })?;
        let keys: Vec<Bytes> = self.keys.iter().map(|Typed(key)| key.clone()).collect();
        print_codes(self.form, &keys, reply.codes())?;
        let done = format!("{} deleted", things(reply.count, "record"));
        report(self.form, &done, &json!({"count": reply.count}))?;
        Ok(outcome(reply.codes().all(|code| code == Code::Ok)))
    }
}

/// Read records in key order.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele catalogue next 'i|1:1'
  stele catalogue next 'i|1:1' n --count 10
  stele catalogue next 'i|1:1' --reverse --prefix log/")]
pub struct Next {
    fid: Fid,
    /// Key to start at, or the next one if it is absent [default: the first]
    #[arg(value_name = "START")]
    start: Option<Typed>,
    /// Maximum number of records.
    #[arg(long, default_value_t = 1000)]
    count: u32,
    /// Exclude the start key itself.
    #[arg(long)]
    exclude_start: bool,
    /// Read from the last key to the first.
    #[arg(long)]
    reverse: bool,
    /// Omit the values.
    #[arg(long)]
    keys_only: bool,
    #[command(flatten)]
    bounds: Bounds,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    server: CatalogueServer,
}

impl Next {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let flags = flag(Flag::ExcludeStart, self.exclude_start)
            | flag(Flag::KeysOnly, self.keys_only)
            | Flag::Slant as u32
            | Flag::NoCookies as u32;
        let start = match self.start {
            Some(Typed(key)) => WalkStart::at(key, self.count),
            None => WalkStart::at_edge(self.count),
        };
        let walk = Walk {
            starts: vec![start],
            flags,
            within: Some(self.bounds.range(Bytes::new())),
            ..Walk::default()
        };
        let mut out = BufWriter::new(io::stdout().lock());
        self.server.run(async |client| {
            let catalogue = client.catalogue(self.fid);
            let records = match self.reverse {
                true => catalogue.prev(walk).await,
                false => catalogue.next(walk).await,
            };
            let mut records = records.map_err(with_hint)?;
            while let Some(step) = records.next().await.map_err(with_hint)? {
                if let Step::Record { key, value, .. } = step {
                    let value = value.joined();
                    let value = (!self.keys_only).then_some(&value[..]);
                    format::record(&mut out, &key.joined(), value, self.form)?;
                }
            }
            Ok(())
        })?;
        out.flush()?;
        Ok(Outcome::Sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_key_and_a_value() {
        let pair = |text: &str| text.parse::<Pair>();
        let parsed = pair("a\\x3db=c=d").unwrap();
        assert_eq!((&parsed.key[..], &parsed.value[..]), (&b"a=b"[..], &b"c=d"[..]));
        assert_eq!(pair("=").unwrap(), Pair { key: Bytes::new(), value: Bytes::new() });
        assert!(pair("key").unwrap_err().contains("KEY=VALUE"));
    }
}
