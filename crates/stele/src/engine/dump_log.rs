//! `stele engine dump-log`: prints a log record by record while reading it.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use stele_engine::Txn;
use stele_engine::log::RecordInfo;
use stele_engine::verify::{LogDump, LogLine, MutationInfo};

use super::damage::{Damage, files, open};
use crate::Outcome;
use crate::output::{ascii as text, json_line, preview};

pub fn run(path: &Path, cells: bool, json: bool) -> anyhow::Result<Outcome> {
    let opened = open(LogDump::open(&files(), path)).context("cannot dump the log")?;
    let Some(dump) = opened else { return Ok(Outcome::Damaged) };
    let mut out = BufWriter::new(io::stdout().lock());
    if !json {
        writeln!(
            out,
            "{:>12} {:>10} {:>10} {:>6} {:<6} {:>16} {:>10}",
            "segment", "offset", "record", "stream", "kind", "txn", "bytes"
        )?;
    }
    let mut outcome = Outcome::Sound;
    dump.show::<io::Error>(cells, &mut |line| {
        if let LogLine::Damage(_) = line {
            outcome = Outcome::Damaged;
        }
        if json { show_json(&mut out, path, &line) } else { show(&mut out, path, &line) }
    })?;
    out.flush()?;
    Ok(outcome)
}

/// Formats the index of a record, as a txn where it is one.
fn txn(index: u64) -> String {
    Txn::from_raw(index).map_or_else(|| index.to_string(), |txn| txn.to_string())
}

fn show(out: &mut dyn Write, path: &Path, line: &LogLine<'_>) -> io::Result<()> {
    match line {
        LogLine::Record(record) => writeln!(
            out,
            "{:>12} {:>10} {:>10} {:>6} {:<6} {:>16} {:>10}",
            record.segment,
            record.offset,
            record.record,
            record.stream,
            record.kind,
            txn(record.index),
            record.payload_bytes,
        ),
        LogLine::Mutation { mutation, .. } => writeln!(out, "    {}", mutation_line(mutation)),
        LogLine::Damage(error) => {
            let damage = Damage::of(error, path);
            writeln!(out, "DAMAGE: {}, byte {}: {}", damage.path, damage.offset, damage.what)
        }
        LogLine::Torn(torn) => {
            let path = torn.path.display();
            writeln!(out, "the log ends with an incomplete write at {path}, byte {}", torn.offset)
        }
    }
}

/// Formats a mutation on one line.
fn mutation_line(mutation: &MutationInfo<'_>) -> String {
    let mut line = format!("table {} {} ", mutation.table, mutation.kind);
    line.push_str(&format!("\"{}\"", text(mutation.row)));
    if mutation.kind == "delete_range" {
        let end = mutation.row_end.map(|end| format!("\"{}\"", text(end)));
        line.push_str(&format!(" to {}", end.as_deref().unwrap_or("the end")));
    }
    if let Some(family) = mutation.family {
        line.push_str(&format!(" {}", text(family)));
    }
    if let Some(qualifier) = mutation.qualifier {
        line.push_str(&format!(":{}", text(qualifier)));
    }
    if let Some(timestamp) = mutation.timestamp {
        line.push_str(&format!(" @{timestamp}"));
    }
    if let Some(times) = mutation.times {
        line.push_str(&format!(" @{} to {}", times.min, times.max));
    }
    if let Some(fold) = mutation.fold {
        line.push_str(&format!(" fold {fold}"));
    }
    if let Some(value) = mutation.value {
        line.push_str(&format!(" = \"{}\" ({} bytes)", preview(value), value.len()));
    }
    line
}

fn show_json(out: &mut dyn Write, path: &Path, line: &LogLine<'_>) -> io::Result<()> {
    match line {
        LogLine::Record(record) => json_line(out, &RecordJson::of(record)),
        LogLine::Mutation { txn, mutation } => json_line(out, &MutationJson::of(*txn, mutation)),
        LogLine::Damage(error) => json_line(out, &Damage::of(error, path)),
        LogLine::Torn(torn) => {
            let path = torn.path.display().to_string();
            json_line(out, &TornJson { r#type: "torn", path, offset: torn.offset })
        }
    }
}

#[derive(Serialize)]
struct RecordJson {
    r#type: &'static str,
    segment: u64,
    offset: u64,
    record: u64,
    synced: u64,
    stream: u16,
    kind: &'static str,
    txn: String,
    bytes: usize,
}

impl RecordJson {
    fn of(record: &RecordInfo) -> RecordJson {
        RecordJson {
            r#type: "record",
            segment: record.segment,
            offset: record.offset,
            record: record.record,
            synced: record.synced,
            stream: record.stream,
            kind: record.kind,
            txn: txn(record.index),
            bytes: record.payload_bytes,
        }
    }
}

#[derive(Serialize)]
struct TornJson {
    r#type: &'static str,
    path: String,
    offset: u64,
}

#[derive(Serialize)]
struct MutationJson {
    r#type: &'static str,
    txn: String,
    table: u32,
    kind: &'static str,
    row: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    row_end: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    qualifier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<[i64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fold: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_preview: Option<String>,
}

impl MutationJson {
    fn of(index: u64, mutation: &MutationInfo<'_>) -> MutationJson {
        MutationJson {
            r#type: "mutation",
            txn: txn(index),
            table: mutation.table,
            kind: mutation.kind,
            row: text(mutation.row),
            row_end: mutation.row_end.map(text),
            family: mutation.family.map(text),
            qualifier: mutation.qualifier.map(text),
            timestamp: mutation.timestamp,
            times: mutation.times.map(|times| [times.min, times.max]),
            fold: mutation.fold,
            value_bytes: mutation.value.map(<[u8]>::len),
            value_preview: mutation.value.map(preview),
        }
    }
}
