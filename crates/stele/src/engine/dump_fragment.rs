//! `stele engine dump-fragment`: the properties, blocks and entries of one file.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use stele_engine::fragment::{BlockInfo, Compression};
use stele_engine::verify::{EntryInfo, FragmentDump};

use super::damage::{Damage, files, open};
use crate::Outcome;
use crate::output::{ascii as text, bytes, count, json_line, preview, table, things};

pub fn run(path: &Path, cells: bool, json: bool) -> anyhow::Result<Outcome> {
    let opened = open(FragmentDump::open(&files(), path)).context("cannot dump the fragment")?;
    let Some(dump) = opened else { return Ok(Outcome::Damaged) };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut damage = Vec::new();
    if json {
        print_facts_json(&mut out, path, &dump, &mut damage)?;
    } else {
        print_facts(&mut out, path, &dump, &mut damage)?;
    }
    if cells {
        dump.entries::<io::Error>(&mut |entry| match entry {
            Ok(entry) if json => json_line(&mut out, &EntryJson::of(&entry)),
            Ok(entry) => writeln!(out, "{}", entry_line(&entry)),
            // Already reported with the blocks.
            Err(_) => Ok(()),
        })?;
    }
    for damage in &damage {
        if json {
            json_line(&mut out, damage)?;
        } else {
            writeln!(out, "DAMAGE: {}, byte {}: {}", damage.path, damage.offset, damage.what)?;
        }
    }
    out.flush()?;
    Ok(if damage.is_empty() { Outcome::Sound } else { Outcome::Damaged })
}

fn print_facts(
    out: &mut dyn Write,
    path: &Path,
    dump: &FragmentDump,
    damage: &mut Vec<Damage>,
) -> io::Result<()> {
    let meta = dump.meta();
    writeln!(out, "{}", path.display())?;
    writeln!(
        out,
        "{}, {}, {}, {}, txn {} to {}",
        things(meta.cells, "cell"),
        things(meta.tombstones, "tombstone"),
        things(meta.range_tombstones, "deleted range"),
        things(meta.rows, "row"),
        meta.txn_min,
        meta.txn_max
    )?;
    writeln!(
        out,
        "{} in the file, {} of keys and values, {} of them live; {} blocks of {}; hash {:016x}",
        bytes(meta.stored_bytes),
        bytes(meta.raw_bytes),
        bytes(meta.live_bytes),
        compression(meta.compression),
        bytes(meta.block_bytes.into()),
        meta.hash
    )?;
    let families: Vec<String> = meta.families.iter().map(|family| text(family)).collect();
    writeln!(out, "families: {}", families.join(", "))?;
    if let Some((first, last)) = &meta.row_bounds {
        writeln!(out, "rows \"{}\" to \"{}\"", text(first), text(last))?;
    }
    if let Some((min, max)) = meta.timestamps {
        writeln!(out, "timestamps {min} to {max}")?;
    }
    for span in dump.range_tombstones().iter() {
        let end = span.range.end.as_ref().map(|end| format!("\"{}\"", text(end)));
        let end = end.as_deref().unwrap_or("the end");
        let txns: Vec<String> = span.txns.iter().map(ToString::to_string).collect();
        let start = text(&span.range.start);
        writeln!(out, "deleted \"{start}\" to {end} at txn {}", txns.join(", "))?;
    }
    let header = ["first row", "compression", "offset", "stored", "raw", "entries"];
    let mut blocks = table(&header, 2);
    for block in dump.blocks() {
        match block {
            Ok(block) => {
                blocks.add_row(vec![
                    preview(&first_row(&block)),
                    compression(block.compression).to_string(),
                    count(block.offset),
                    count(block.stored_len.into()),
                    count(block.raw_len.into()),
                    count(block.entries.into()),
                ]);
            }
            Err(error) => damage.push(Damage::of(&error, path)),
        }
    }
    writeln!(out, "{blocks}")
}

fn compression(of: Compression) -> &'static str {
    match of {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
    }
}

fn first_row(block: &BlockInfo) -> Vec<u8> {
    stele_engine::cell::key::row_of(&block.first_key).unwrap_or_default()
}

/// Formats an entry on one line.
fn entry_line(entry: &EntryInfo<'_>) -> String {
    let mut line = format!("\"{}\"", text(&entry.row));
    if let Some(family) = entry.family {
        line.push_str(&format!(" {}", text(family)));
    }
    if let Some(qualifier) = &entry.qualifier {
        line.push_str(&format!(":{}", text(qualifier)));
    }
    if let Some(timestamp) = entry.timestamp {
        line.push_str(&format!(" @{timestamp}"));
    }
    line.push_str(&format!(" txn {} {}", entry.txn, entry.kind));
    if let Some(fold) = entry.fold {
        line.push_str(&format!(" fold {fold}"));
    }
    for times in &entry.times {
        line.push_str(&format!(" @{} to {}", times.min, times.max));
    }
    if let Some(value) = entry.value {
        line.push_str(&format!(" = \"{}\" ({} bytes)", preview(value), value.len()));
    }
    line
}

fn print_facts_json(
    out: &mut dyn Write,
    path: &Path,
    dump: &FragmentDump,
    damage: &mut Vec<Damage>,
) -> io::Result<()> {
    let meta = dump.meta();
    json_line(
        out,
        &FragmentJson {
            r#type: "fragment",
            path: path.display().to_string(),
            cells: meta.cells,
            tombstones: meta.tombstones,
            spans: meta.range_tombstones,
            rows: meta.rows,
            blocks: meta.blocks,
            raw_bytes: meta.raw_bytes,
            live_bytes: meta.live_bytes,
            data_bytes: meta.data_bytes,
            stored_bytes: meta.stored_bytes,
            txn_min: meta.txn_min.to_string(),
            txn_max: meta.txn_max.to_string(),
            timestamp_min: meta.timestamps.map(|(min, _)| min),
            timestamp_max: meta.timestamps.map(|(_, max)| max),
            families: meta.families.iter().map(|family| text(family)).collect(),
            first_row: meta.row_bounds.as_ref().map(|(first, _)| text(first)),
            last_row: meta.row_bounds.as_ref().map(|(_, last)| text(last)),
            compression: compression(meta.compression),
            block_bytes: meta.block_bytes,
            hash: format!("{:016x}", meta.hash),
        },
    )?;
    for span in dump.range_tombstones().iter() {
        let (start, end) = (text(&span.range.start), span.range.end.as_deref().map(text));
        let txns = span.txns.iter().map(ToString::to_string).collect();
        json_line(out, &SpanJson { r#type: "span", start, end, txns })?;
    }
    for block in dump.blocks() {
        match block {
            Ok(block) => json_line(out, &BlockJson::of(&block))?,
            Err(error) => damage.push(Damage::of(&error, path)),
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct FragmentJson {
    r#type: &'static str,
    path: String,
    cells: u64,
    tombstones: u64,
    spans: u64,
    rows: u64,
    blocks: u64,
    raw_bytes: u64,
    live_bytes: u64,
    data_bytes: u64,
    stored_bytes: u64,
    txn_min: String,
    txn_max: String,
    timestamp_min: Option<i64>,
    timestamp_max: Option<i64>,
    families: Vec<String>,
    first_row: Option<String>,
    last_row: Option<String>,
    compression: &'static str,
    block_bytes: u32,
    hash: String,
}

#[derive(Serialize)]
struct SpanJson {
    r#type: &'static str,
    start: String,
    end: Option<String>,
    txns: Vec<String>,
}

#[derive(Serialize)]
struct BlockJson {
    r#type: &'static str,
    offset: u64,
    stored_bytes: u32,
    raw_bytes: u32,
    compression: &'static str,
    entries: u32,
    first_row: String,
    timestamp_min: Option<i64>,
    timestamp_max: Option<i64>,
    deletes: bool,
}

impl BlockJson {
    fn of(block: &BlockInfo) -> BlockJson {
        BlockJson {
            r#type: "block",
            offset: block.offset,
            stored_bytes: block.stored_len,
            raw_bytes: block.raw_len,
            compression: compression(block.compression),
            entries: block.entries,
            first_row: text(&first_row(block)),
            timestamp_min: block.timestamps.map(|(min, _)| min),
            timestamp_max: block.timestamps.map(|(_, max)| max),
            deletes: block.deletes,
        }
    }
}

#[derive(Serialize)]
struct EntryJson {
    r#type: &'static str,
    row: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    qualifier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<i64>,
    txn: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fold: Option<u8>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    times: Vec<[i64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_preview: Option<String>,
}

impl EntryJson {
    fn of(entry: &EntryInfo<'_>) -> EntryJson {
        EntryJson {
            r#type: "entry",
            row: text(&entry.row),
            family: entry.family.map(text),
            qualifier: entry.qualifier.as_deref().map(text),
            timestamp: entry.timestamp,
            txn: entry.txn.to_string(),
            kind: entry.kind,
            fold: entry.fold,
            times: entry.times.iter().map(|times| [times.min, times.max]).collect(),
            value_bytes: entry.value.map(<[u8]>::len),
            value_preview: entry.value.map(preview),
        }
    }
}
