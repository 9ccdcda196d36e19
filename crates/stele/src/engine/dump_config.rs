//! `stele engine dump-config`: prints the configuration of a store that is not in use,
//! as `stele table dump-config` prints that of a server.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use serde_json::{Map, Value, json};
use stele_engine::config::Manifest;
use stele_tables_api::config_parts;
use stele_tables_api::proto::dump_config_reply::Part;
use stele_tables_api::proto::{
    ChainConfig, DumpConfigReply, FileConfig, GroupConfig, RowRange, StoreConfig, TableConfig,
    TableState, TabletConfig,
};

use super::damage::{files, open};
use crate::Outcome;
use crate::output::{ascii as text, bytes, count, json_line, things};
use crate::rows::put_bytes;

pub fn run(dir: &Path, json: bool) -> anyhow::Result<Outcome> {
    let loaded = Manifest::load(&*files(), dir);
    let Some(loaded) = open(loaded).context("cannot dump the configuration")? else {
        return Ok(Outcome::Damaged);
    };
    let configs = loaded.ok_or_else(|| {
        let dir = dir.display();
        anyhow!("no store found in {dir}: pass the directory that contains its manifest")
    })?;
    let mut printer = ConfigPrinter::new(io::stdout().lock(), json);
    for part in config_parts(&configs, |_| true) {
        printer.part(&part)?;
    }
    printer.end()?;
    Ok(Outcome::Sound)
}

/// Prints a configuration part by part: indented lines for people, one JSON object per
/// line for programs.
pub struct ConfigPrinter<W: Write> {
    out: BufWriter<W>,
    json: bool,
}

impl<W: Write> ConfigPrinter<W> {
    pub fn new(out: W, json: bool) -> ConfigPrinter<W> {
        ConfigPrinter { out: BufWriter::new(out), json }
    }

    pub fn part(&mut self, part: &DumpConfigReply) -> io::Result<()> {
        let out = &mut self.out;
        match (&part.part, self.json) {
            (Some(Part::Store(store)), false) => show_store(out, store),
            (Some(Part::Table(table)), false) => show_table(out, table),
            (Some(Part::Tablet(tablet)), false) => show_tablet(out, tablet),
            (Some(Part::Store(store)), true) => json_line(out, &store_json(store)),
            (Some(Part::Table(table)), true) => json_line(out, &table_json(table)),
            (Some(Part::Tablet(tablet)), true) => json_line(out, &tablet_json(tablet)),
            // Of a newer server.
            (None, _) => Ok(()),
        }
    }

    pub fn end(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn show_store(out: &mut dyn Write, store: &StoreConfig) -> io::Result<()> {
    writeln!(
        out,
        "store {:016x}, revision {}, incarnation {}, log from segment {}: {}, {}, {}",
        store.store_id,
        store.revision,
        store.incarnation,
        store.log_head,
        things(store.tables, "table"),
        things(store.tablets, "tablet"),
        things(store.checkpoints, "checkpoint"),
    )
}

fn show_table(out: &mut dyn Write, table: &TableConfig) -> io::Result<()> {
    let tablets = things(table.tablets, "tablet");
    let kind = match table.state() {
        TableState::TableActive => "table",
        TableState::TableBackup => "backup",
        TableState::TableDeleted => "deleted table",
    };
    writeln!(out, "{kind} {} {}, {tablets}", table.id, table.name)?;
    for GroupConfig { name, families, compression, block_bytes, flushed, in_memory } in
        &table.groups
    {
        let (families, block) = (families.join(" "), bytes(u64::from(*block_bytes)));
        let kept = if *in_memory { ", in memory" } else { "" };
        writeln!(
            out,
            "  group {name}: families {families}; compression {compression}, blocks of {block}, \
             flushed through txn {flushed}{kept}"
        )?;
    }
    Ok(())
}

fn show_tablet(out: &mut dyn Write, tablet: &TabletConfig) -> io::Result<()> {
    writeln!(
        out,
        "  tablet {} load {} revision {}{}: {}",
        tablet.id,
        tablet.load,
        tablet.revision,
        if tablet.loaded { "" } else { ", unloaded" },
        range(&tablet.start_row, tablet.end_row.as_deref()),
    )?;
    for ChainConfig { group, flushed, files } in &tablet.chains {
        if !files.is_empty() {
            writeln!(out, "    group {group}, flushed through txn {flushed}")?;
        }
        for file in files {
            let rows = file.rows.as_ref();
            let rows =
                rows.map(|rows| format!(", only {}", range(&rows.start, rows.end.as_deref())));
            let families = match &file.families[..] {
                [] if file.no_families => ", only deletes of rows".to_string(),
                [] => String::new(),
                families => format!(", only families {}", families.join(" ")),
            };
            let unit = (file.unit != 0).then(|| format!(", left by compaction {:x}", file.unit));
            writeln!(
                out,
                "      run {} {} {} of {}, {}, txns {} to {}{}{families}{}",
                file.run,
                file.name,
                bytes(file.share_bytes),
                bytes(file.bytes),
                format_args!("{} cells", count(file.cells)),
                file.txn_min,
                file.txn_max,
                rows.unwrap_or_default(),
                unit.unwrap_or_default(),
            )?;
        }
    }
    Ok(())
}

/// Formats a range of rows.
fn range(start: &[u8], end: Option<&[u8]>) -> String {
    let start = match start {
        [] => "from the first row".to_string(),
        start => format!("from row \"{}\"", text(start)),
    };
    match end {
        Some(end) => format!("{start} to before \"{}\"", text(end)),
        None => format!("{start} to the last"),
    }
}

fn store_json(store: &StoreConfig) -> Value {
    json!({
        "type": "store",
        "store_id": format!("{:016x}", store.store_id),
        "revision": store.revision,
        "incarnation": store.incarnation,
        "log_head": store.log_head,
        "tables": store.tables,
        "tablets": store.tablets,
        "checkpoints": store.checkpoints,
    })
}

fn table_json(table: &TableConfig) -> Value {
    let groups = table.groups.iter().map(|group| {
        json!({
            "name": group.name,
            "families": group.families,
            "compression": group.compression,
            "block_bytes": group.block_bytes,
            "flushed": group.flushed,
            "in_memory": group.in_memory,
        })
    });
    json!({
        "type": "table",
        "id": table.id,
        "name": table.name,
        "state": match table.state() {
            TableState::TableActive => "active",
            TableState::TableBackup => "backup",
            TableState::TableDeleted => "deleted",
        },
        "groups": groups.collect::<Vec<_>>(),
        "tablets": table.tablets,
    })
}

fn tablet_json(tablet: &TabletConfig) -> Value {
    let mut object = Map::new();
    object.insert("type".into(), json!("tablet"));
    object.insert("table".into(), json!(tablet.table_id));
    object.insert("id".into(), json!(tablet.id));
    object.insert("load".into(), json!(tablet.load));
    object.insert("revision".into(), json!(tablet.revision));
    object.insert("loaded".into(), json!(tablet.loaded));
    put_range(&mut object, &tablet.start_row, tablet.end_row.as_deref());
    let chains = tablet.chains.iter().map(|chain| {
        let files: Vec<_> = chain.files.iter().map(file_json).collect();
        json!({"group": chain.group, "flushed": chain.flushed, "files": files})
    });
    object.insert("chains".into(), chains.collect());
    Value::Object(object)
}

fn file_json(file: &FileConfig) -> Value {
    let mut object = Map::new();
    object.insert("name".into(), json!(file.name));
    object.insert("run".into(), json!(file.run));
    object.insert("bytes".into(), json!(file.bytes));
    object.insert("share_bytes".into(), json!(file.share_bytes));
    object.insert("cells".into(), json!(file.cells));
    object.insert("txn_min".into(), json!(file.txn_min));
    object.insert("txn_max".into(), json!(file.txn_max));
    if let Some(RowRange { start, end }) = &file.rows {
        put_range(&mut object, start, end.as_deref());
    }
    if !file.families.is_empty() || file.no_families {
        object.insert("families".into(), json!(file.families));
    }
    if file.unit != 0 {
        object.insert("unit".into(), json!(file.unit));
    }
    Value::Object(object)
}

/// Stores the bounds of a range; the end is null if there is none.
fn put_range(object: &mut Map<String, Value>, start: &[u8], end: Option<&[u8]>) {
    put_bytes(object, "start_row", start);
    match end {
        Some(end) => put_bytes(object, "end_row", end),
        None => drop(object.insert("end_row".into(), Value::Null)),
    }
}
