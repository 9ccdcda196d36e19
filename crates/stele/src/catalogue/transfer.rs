//! `stele catalogue export` and `import`: records as lines of JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use stele_catalogue::Fid;
use stele_catalogue::client::{Handle, NewRecord, Step, Walk, WalkStart};
use stele_catalogue::proto::{Code, Flag};

use super::command::{Form, report};
use super::format;
use crate::Outcome;
use crate::connect::{CatalogueServer, with_hint};
use crate::new_file::NewFile;
use crate::output::things;

/// The bytes of records that an import stores in one commit.
const BATCH_BYTES: usize = 16 << 20;
const BATCH_RECORDS: usize = 100_000;

/// Write a consistent snapshot of all records as lines of JSON.
#[derive(Args)]
#[command(after_help = "Example:\n  stele catalogue export 'i|1:1' records.jsonl")]
pub struct Export {
    fid: Fid,
    /// Output file; standard output if omitted.
    file: Option<PathBuf>,
    #[command(flatten)]
    server: CatalogueServer,
}

impl Export {
    pub fn run(self) -> anyhow::Result<Outcome> {
        self.server.run(async |client| {
            let catalogue = client.catalogue(self.fid);
            match &self.file {
                Some(path) => {
                    let mut file = NewFile::create(path)?;
                    export(&catalogue, &mut file.out).await?;
                    file.finish()
                }
                None => {
                    let mut out = BufWriter::new(io::stdout().lock());
                    export(&catalogue, &mut out).await?;
                    Ok(out.flush()?)
                }
            }
        })?;
        Ok(Outcome::Sound)
    }
}

async fn export(catalogue: &Handle, out: &mut dyn Write) -> anyhow::Result<()> {
    let starts = vec![WalkStart::at_edge(u32::MAX)];
    let walk = Walk { starts, flags: Flag::NoCookies as u32, ..Walk::default() };
    let mut records = catalogue.next(walk).await.map_err(with_hint)?;
    while let Some(step) = records.next().await.map_err(with_hint)? {
        match step {
            Step::Record { key, value, .. } => {
                format::record(out, &key.joined(), Some(&value.joined()), Form { json: true })?;
            }
            Step::End { code, count, .. } => {
                ensure!(code == Code::End, "only the first {count} records were exported");
            }
        }
    }
    Ok(())
}

/// Store records from lines of JSON, as export writes them.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele catalogue import 'i|1:1' records.jsonl --create-catalogue
  stele catalogue export 'i|1:1' | stele catalogue import 'i|1:2'

A line is {\"key\": TEXT, \"value\": TEXT}, with key_base64 or value_base64 for
bytes that are not text. Records are stored in order, many per commit; those
stored before an error are kept.")]
pub struct Import {
    fid: Fid,
    /// Input file; standard input if omitted.
    file: Option<PathBuf>,
    /// Create the catalogue if it does not exist.
    #[arg(long)]
    create_catalogue: bool,
    /// Keep records that exist unchanged.
    #[arg(long)]
    create_if_absent: bool,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    server: CatalogueServer,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
}

fn field(text: Option<String>, base64: Option<String>, name: &str) -> anyhow::Result<Bytes> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into()),
        (None, Some(base64)) => {
            Ok(STANDARD.decode(base64).with_context(|| format!("{name}_base64"))?.into())
        }
        _ => anyhow::bail!("give either {name} or {name}_base64"),
    }
}

fn parse(line: &str) -> anyhow::Result<NewRecord> {
    let line: Line = serde_json::from_str(line)?;
    let key = field(line.key, line.key_base64, "key")?;
    Ok(NewRecord::new(key, field(line.value, line.value_base64, "value")?))
}

impl Import {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let mut from: Box<dyn BufRead> = match &self.file {
            Some(path) => Box::new(BufReader::new(File::open(path).with_context(|| named(path))?)),
            None => Box::new(BufReader::new(io::stdin().lock())),
        };
        let mut flags = Flag::NoCookies as u32;
        if self.create_catalogue {
            flags |= Flag::CreateCatalogue as u32;
        }
        if self.create_if_absent {
            flags |= Flag::CreateIfAbsent as u32;
        }
        let count = self
            .server
            .run(async |client| import(&client.catalogue(self.fid), &mut *from, flags).await)?;
        report(
            self.form,
            &format!("{} stored", things(count, "record")),
            &json!({"count": count}),
        )?;
        Ok(Outcome::Sound)
    }
}

async fn import(catalogue: &Handle, from: &mut dyn BufRead, flags: u32) -> anyhow::Result<u64> {
    let (mut batch, mut bytes, mut count) = (Vec::new(), 0, 0);
    for (number, line) in from.lines().enumerate() {
        let line = line.context("reading records")?;
        if line.trim().is_empty() {
            continue;
        }
        let record = parse(&line).with_context(|| {
            format!("line {}: {count} records before it are stored", number + 1)
        })?;
        bytes += record.key.len() + record.value.len();
        batch.push(record);
        if bytes >= BATCH_BYTES || batch.len() >= BATCH_RECORDS {
            count += store(catalogue, std::mem::take(&mut batch), flags).await?;
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        count += store(catalogue, batch, flags).await?;
    }
    Ok(count)
}

async fn store(catalogue: &Handle, batch: Vec<NewRecord>, flags: u32) -> anyhow::Result<u64> {
    let expected = batch.len();
    let reply = catalogue.put(batch, flags).await.map_err(with_hint)?;
    ensure!(reply.codes.len() == expected, "the reply of the server does not cover every record");
    Ok(reply.count)
}

fn named(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_when_the_new_one_is_whole_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("records.jsonl");
        std::fs::write(&path, "old").unwrap();
        let mut failed = NewFile::create(&path).unwrap();
        failed.out.write_all(b"half").unwrap();
        drop(failed);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let mut whole = NewFile::create(&path).unwrap();
        whole.out.write_all(b"new").unwrap();
        whole.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_line_is_a_record_and_anything_else_is_rejected() {
        let record = parse(r#"{"key": "a", "value_base64": "/w=="}"#).unwrap();
        assert_eq!((record.key.joined(), record.value.joined()), ("a".into(), vec![0xFF].into()));
        for wrong in [
            "",
            "{}",
            r#"{"key": "a"}"#,
            r#"{"key": "a", "key_base64": "", "value": ""}"#,
            r#"{"key": "a", "value": "", "more": 1}"#,
            r#"{"key": "a", "value_base64": "!"}"#,
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
