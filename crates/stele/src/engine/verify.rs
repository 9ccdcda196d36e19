//! `stele engine verify`: the offline check, as tables or as one JSON object.

use std::io::{self, Write};
use std::path::Path;

use anyhow::anyhow;
use serde::Serialize;
use stele_engine::Error;
use stele_engine::verify::{self, Report};

use super::damage::files;
use crate::Outcome;
use crate::output::{bytes, count, json_line, table, things};
use crate::serve::{CACHE_DIR, METASTORE_DIR, OBJECT_STORE_FILE, open_to_read};

/// The size of the cache for files in an object store: each byte is read once.
const CACHE_BYTES: u64 = 64 << 20;

pub fn run(dir: &Path, store: Option<&str>, json: bool) -> anyhow::Result<Outcome> {
    // Not the server's cache: what the object store has is checked.
    let cache = tempfile::tempdir()?;
    let remote = open_to_read(dir, store, cache.path(), CACHE_BYTES)?;
    let checked = verify::check_with(&files(), dir, remote.as_ref());
    let mut report = checked.map_err(|error| explain(error, dir))?;
    // What a server keeps beside its tables is not garbage.
    let beside = [METASTORE_DIR, OBJECT_STORE_FILE, CACHE_DIR].map(|name| dir.join(name));
    report.garbage.retain(|garbage| !beside.contains(&garbage.path));
    let mut out = io::stdout().lock();
    if json {
        json_line(&mut out, &ReportJson::of(&report))?;
    } else {
        show(&mut out, dir, &report)?;
    }
    Ok(if report.is_sound() { Outcome::Sound } else { Outcome::Damaged })
}

fn explain(error: Error, dir: &Path) -> anyhow::Error {
    match error {
        Error::Locked { .. } => {
            anyhow!("{error}: stop that process, or verify a copy of the directory")
        }
        Error::Io { error: ref cause, .. } if cause.kind() == io::ErrorKind::NotFound => {
            let dir = dir.display();
            anyhow!("no store found in {dir}: pass the directory that contains its manifest")
        }
        other => other.into(),
    }
}

/// Returns the number of backups and deleted tables, if there are any.
fn kept_tables(report: &Report) -> String {
    let kept = [(report.backups, "backup"), (report.deleted_tables, "deleted table")];
    let kept = kept.into_iter().filter(|(number, _)| *number > 0);
    kept.map(|(number, name)| format!("{}, ", things(number, name))).collect()
}

fn show(out: &mut dyn Write, dir: &Path, report: &Report) -> io::Result<()> {
    let log = &report.log;
    writeln!(
        out,
        "store {:016x}, epoch {}, configuration revision {}",
        report.store_id, report.epoch, report.revision
    )?;
    writeln!(
        out,
        "{}, {}{}, {} with {} and {}{}",
        things(report.tables, "table"),
        kept_tables(report),
        things(report.fragments.len() as u64, "fragment"),
        things(log.segments, "log segment"),
        things(log.records, "record"),
        things(log.commits, "commit"),
        log.txn_last.map(|txn| format!(" up to txn {txn}")).unwrap_or_default(),
    )?;
    if !report.fragments.is_empty() {
        writeln!(out, "{}", fragment_table(report, dir))?;
    }
    for (what, torn) in [("log", &log.torn), ("manifest", &report.manifest_torn)] {
        if let Some(torn) = torn {
            let path = torn.path.display();
            writeln!(
                out,
                "the {what} ends with an incomplete write at {path}, byte {}: \
                 left by a crash, no data is lost",
                torn.offset
            )?;
        }
    }
    for garbage in &report.garbage {
        let size = bytes(garbage.bytes);
        writeln!(out, "not needed: {} ({size}): {}", garbage.path.display(), garbage.why)?;
    }
    for problem in &report.problems {
        let path = problem.path.display();
        writeln!(out, "DAMAGE: {path}, byte {}: {}", problem.offset, problem.what)?;
    }
    match report.problems.len() {
        0 => writeln!(out, "sound"),
        1 => writeln!(out, "damaged in 1 place"),
        many => writeln!(out, "damaged in {many} places"),
    }
}

fn fragment_table(report: &Report, dir: &Path) -> comfy_table::Table {
    let header =
        ["fragment", "table", "group", "state", "size", "blocks", "rows", "cells", "tombstones"];
    let mut fragments = table(&header, 4);
    for fragment in &report.fragments {
        let path = fragment.path.strip_prefix(dir).unwrap_or(&fragment.path);
        fragments.add_row(vec![
            path.display().to_string(),
            fragment.table.clone(),
            fragment.group.clone(),
            if fragment.sound { "sound" } else { "DAMAGED" }.to_string(),
            bytes(fragment.bytes),
            count(fragment.blocks),
            count(fragment.rows),
            count(fragment.cells),
            count(fragment.tombstones + fragment.range_tombstones),
        ]);
    }
    fragments
}

#[derive(Serialize)]
struct ReportJson {
    sound: bool,
    store_id: String,
    revision: u64,
    epoch: u64,
    tables: u64,
    backups: u64,
    deleted_tables: u64,
    tablets: u64,
    manifest_bytes: u64,
    manifest_torn: Option<PlaceJson>,
    fragments: Vec<FragmentJson>,
    log: LogJson,
    garbage: Vec<GarbageJson>,
    problems: Vec<ProblemJson>,
}

#[derive(Serialize)]
struct PlaceJson {
    path: String,
    offset: u64,
}

#[derive(Serialize)]
struct FragmentJson {
    path: String,
    table: String,
    group: String,
    sound: bool,
    bytes: u64,
    blocks: u64,
    rows: u64,
    cells: u64,
    tombstones: u64,
    spans: u64,
}

#[derive(Serialize)]
struct LogJson {
    head_segment: u64,
    segments: u64,
    records: u64,
    commits: u64,
    commit_bytes: u64,
    txn_last: Option<String>,
    torn: Option<PlaceJson>,
}

#[derive(Serialize)]
struct GarbageJson {
    path: String,
    bytes: u64,
    why: &'static str,
}

#[derive(Serialize)]
struct ProblemJson {
    path: String,
    offset: u64,
    what: String,
}

impl PlaceJson {
    fn of(torn: &verify::TornWrite) -> PlaceJson {
        PlaceJson { path: torn.path.display().to_string(), offset: torn.offset }
    }
}

impl ReportJson {
    fn of(report: &Report) -> ReportJson {
        let fragments = report.fragments.iter().map(|fragment| FragmentJson {
            path: fragment.path.display().to_string(),
            table: fragment.table.clone(),
            group: fragment.group.clone(),
            sound: fragment.sound,
            bytes: fragment.bytes,
            blocks: fragment.blocks,
            rows: fragment.rows,
            cells: fragment.cells,
            tombstones: fragment.tombstones,
            spans: fragment.range_tombstones,
        });
        let garbage = report.garbage.iter().map(|garbage| GarbageJson {
            path: garbage.path.display().to_string(),
            bytes: garbage.bytes,
            why: garbage.why,
        });
        let problems = report.problems.iter().map(|problem| ProblemJson {
            path: problem.path.display().to_string(),
            offset: problem.offset,
            what: problem.what.clone(),
        });
        let log = &report.log;
        ReportJson {
            sound: report.is_sound(),
            store_id: format!("{:016x}", report.store_id),
            revision: report.revision,
            epoch: report.epoch,
            tables: report.tables,
            backups: report.backups,
            deleted_tables: report.deleted_tables,
            tablets: report.tablets,
            manifest_bytes: report.manifest_bytes,
            manifest_torn: report.manifest_torn.as_ref().map(PlaceJson::of),
            fragments: fragments.collect(),
            log: LogJson {
                head_segment: log.head_segment,
                segments: log.segments,
                records: log.records,
                commits: log.commits,
                commit_bytes: log.commit_bytes,
                txn_last: log.txn_last.map(|txn| txn.to_string()),
                torn: log.torn.as_ref().map(PlaceJson::of),
            },
            garbage: garbage.collect(),
            problems: problems.collect(),
        }
    }
}
