//! Prints tablets, and what was done to them.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use stele_tables_api::proto::{
    CollectFilesReply, CompactTableReply, Problem, Tablet, TabletState, VerifyTableReply,
};

use crate::output::{bytes, count, json_line, table, text, things};
use crate::rows::put_bytes;

/// Prints the tablets of a table.
pub fn tablets(out: &mut dyn Write, name: &str, tablets: &[Tablet], json: bool) -> io::Result<()> {
    if json {
        let tablets: Vec<_> = tablets.iter().map(tablet_json).collect();
        return json_line(out, &json!({"table": name, "tablets": tablets}));
    }
    let header = ["tablet", "state", "first row", "end row", "load", "size", "files", "runs"];
    let mut lines = table(&header, 4);
    for tablet in tablets {
        let runs = match &tablet.groups[..] {
            [group] => group.runs.to_string(),
            groups => {
                let runs = groups.iter().map(|group| format!("{} {}", group.name, group.runs));
                runs.collect::<Vec<_>>().join(", ")
            }
        };
        let damaged: u64 = tablet.groups.iter().map(|group| u64::from(group.damaged_files)).sum();
        let state = match damaged {
            0 => state(tablet).to_string(),
            damaged => format!("{}, {} DAMAGED", state(tablet), things(damaged, "file")),
        };
        lines.add_row([
            tablet.id.clone(),
            state,
            text(&tablet.start_row),
            text(tablet.end_row.as_deref().unwrap_or_default()),
            count(tablet.load),
            bytes(tablet.disk_bytes),
            count(files(tablet)),
            runs,
        ]);
    }
    writeln!(out, "{lines}")?;
    let size = tablets.iter().map(|tablet| tablet.disk_bytes).sum();
    writeln!(out, "{}, {} on disk", things(tablets.len() as u64, "tablet"), bytes(size))
}

/// Prints the outcome of a collection of unused files.
pub fn collected(
    out: &mut dyn Write,
    collected: &CollectFilesReply,
    dry_run: bool,
    json: bool,
) -> io::Result<()> {
    let CollectFilesReply { files, unused_files, deleted, failed, .. } = collected;
    if json {
        let unused = unused_files
            .iter()
            .map(|file| json!({"name": file.name, "bytes": file.bytes, "marked": file.marked}));
        let object = json!({
            "dry_run": dry_run,
            "files": files,
            "bytes": collected.bytes,
            "used": collected.used,
            "pending": collected.pending,
            "unused": collected.unused,
            "unused_bytes": collected.unused_bytes,
            "deleted": deleted,
            "deleted_bytes": collected.deleted_bytes,
            "failed": failed,
            "unused_files": unused.collect::<Vec<_>>(),
        });
        return json_line(out, &object);
    }
    if !unused_files.is_empty() {
        let mut lines = table(&["unused file", "size", "next collection"], 1);
        for file in unused_files {
            let next = match (file.marked, dry_run) {
                (true, true) => "deletes it",
                (true, false) => "",
                (false, true) => "marks it",
                (false, false) => "deletes it",
            };
            lines.add_row([file.name.clone(), bytes(file.bytes), next.to_string()]);
        }
        writeln!(out, "{lines}")?;
    }
    let in_use = things(collected.used, "file");
    writeln!(
        out,
        "{}, {} in the object store: {in_use} in use, {} being written, {} unused ({})",
        things(*files, "file"),
        bytes(collected.bytes),
        count(collected.pending),
        count(collected.unused),
        bytes(collected.unused_bytes),
    )?;
    if dry_run {
        return writeln!(out, "dry run: deleted nothing");
    }
    writeln!(out, "deleted {}, {}", things(*deleted, "file"), bytes(collected.deleted_bytes))?;
    if *failed > 0 {
        writeln!(
            out,
            "{} could not be deleted: see the log of the server",
            things(*failed, "file")
        )?;
    }
    Ok(())
}

fn state(tablet: &Tablet) -> &'static str {
    match tablet.state() {
        TabletState::Unloaded => "unloaded",
        TabletState::Loading => "loading",
        TabletState::Active => "active",
        TabletState::Unloading => "unloading",
        TabletState::Unspecified => "unknown",
    }
}

fn files(tablet: &Tablet) -> u64 {
    tablet.groups.iter().map(|group| u64::from(group.files)).sum()
}

fn tablet_json(tablet: &Tablet) -> Value {
    let mut object = Map::new();
    object.insert("id".into(), json!(tablet.id));
    object.insert("load".into(), json!(tablet.load));
    object.insert("state".into(), json!(state(tablet)));
    put_bytes(&mut object, "start_row", &tablet.start_row);
    match &tablet.end_row {
        Some(row) => put_bytes(&mut object, "end_row", row),
        None => drop(object.insert("end_row".into(), Value::Null)),
    }
    object.insert("disk_bytes".into(), json!(tablet.disk_bytes));
    object.insert("files".into(), json!(files(tablet)));
    let groups = tablet.groups.iter().map(|group| {
        json!({
            "name": group.name,
            "runs": group.runs,
            "files": group.files,
            "disk_bytes": group.disk_bytes,
            "damaged_files": group.damaged_files,
        })
    });
    object.insert("groups".into(), groups.collect());
    Value::Object(object)
}

/// Prints what became of the boundary of two tablets: `line`, or `done` in JSON.
pub fn boundary(
    out: &mut dyn Write,
    name: &str,
    row: &[u8],
    done: (&str, bool),
    line: &str,
    json: bool,
) -> io::Result<()> {
    if !json {
        return writeln!(out, "{line}");
    }
    let mut object = Map::new();
    object.insert("table".into(), json!(name));
    put_bytes(&mut object, "row", row);
    object.insert(done.0.into(), json!(done.1));
    json_line(out, &object)
}

/// Prints the end of a compaction.
pub fn compacted(
    out: &mut dyn Write,
    table: &str,
    name: &str,
    done: &CompactTableReply,
    json: bool,
) -> io::Result<()> {
    match json {
        true => json_line(out, &json!({"table": name, "tablets": done.tablets})),
        false => writeln!(out, "compacted table {table}: {}", things(done.tablets, "tablet")),
    }
}

/// Prints how many tablets were loaded or unloaded.
pub fn changed(
    out: &mut dyn Write,
    table: &str,
    name: &str,
    done: &str,
    number: u64,
    json: bool,
) -> io::Result<()> {
    if json {
        return json_line(out, &json!({"table": name, done: number}));
    }
    match number {
        0 => writeln!(out, "all tablets of these rows of table {table} are already {done}"),
        number => writeln!(out, "{done} {} of table {table}", things(number, "tablet")),
    }
}

/// What a verification found.
#[derive(Default)]
pub struct Verified {
    pub problems: Vec<Problem>,
    tablets: u64,
    files: u64,
    bytes: u64,
    rows: u64,
    cells: u64,
}

impl Verified {
    /// Adds the next message of the verification.
    pub fn add(&mut self, reply: VerifyTableReply) {
        self.tablets = reply.tablets;
        self.files = reply.files_done;
        self.bytes = reply.bytes_done;
        if let Some(checked) = reply.checked {
            self.rows += checked.rows;
            self.cells += checked.cells;
        }
        self.problems.extend(reply.problems);
    }
}

/// Prints what a verification found.
pub fn verified(
    out: &mut dyn Write,
    name: &str,
    verified: &Verified,
    json: bool,
) -> io::Result<()> {
    if json {
        let problems = verified.problems.iter().map(|problem| {
            json!({
                "file": problem.file,
                "offset": problem.offset,
                "what": problem.description,
            })
        });
        return json_line(
            out,
            &json!({
                "table": name,
                "sound": verified.problems.is_empty(),
                "tablets": verified.tablets,
                "files": verified.files,
                "bytes": verified.bytes,
                "rows": verified.rows,
                "cells": verified.cells,
                "problems": problems.collect::<Vec<_>>(),
            }),
        );
    }
    writeln!(
        out,
        "{}, {} of {} with {} and {}",
        things(verified.tablets, "tablet"),
        things(verified.files, "file"),
        bytes(verified.bytes),
        things(verified.rows, "row"),
        things(verified.cells, "cell"),
    )?;
    for problem in &verified.problems {
        writeln!(
            out,
            "DAMAGE: {}, byte {}: {}",
            problem.file, problem.offset, problem.description
        )?;
    }
    match verified.problems.len() {
        0 => writeln!(out, "sound"),
        problems => writeln!(out, "damaged in {}", things(problems as u64, "place")),
    }
}
