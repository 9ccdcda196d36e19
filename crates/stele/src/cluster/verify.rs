//! `stele cluster verify`: the tablets of each table have each row once, live servers own
//! them, and nothing is left of tables that do not exist.

use std::collections::BTreeSet;
use std::io;

use serde::Serialize;
use stele_engine::RowRange;
use stele_tables::rows::Owner;

use super::Show;
use super::view::View;
use crate::Outcome;
use crate::output::{json_line, print_line, text, things};

#[derive(Serialize)]
struct Report {
    tables: usize,
    tablets: usize,
    findings: Vec<String>,
}

pub async fn run(show: &Show) -> anyhow::Result<Outcome> {
    let view = View::read(&show.cluster.open().await?).await?;
    let findings = findings(&view);
    let report = Report { tables: view.tables.len(), tablets: view.rows.len(), findings };
    if show.json {
        json_line(&mut io::stdout().lock(), &report)?;
    } else {
        for finding in &report.findings {
            print_line(finding)?;
        }
        print_line(&format!(
            "checked {} of {}: {}",
            things(report.tablets as u64, "tablet"),
            things(report.tables as u64, "table"),
            things(report.findings.len() as u64, "finding")
        ))?;
    }
    Ok(if report.findings.is_empty() { Outcome::Sound } else { Outcome::Damaged })
}

fn findings(view: &View) -> Vec<String> {
    let mut findings: Vec<String> =
        view.damaged.iter().map(|damaged| format!("damaged: {damaged}")).collect();
    for table in &view.tables {
        let rows = view.rows_of(table.id);
        let ranges: Vec<&RowRange> = rows.iter().map(|row| &row.config.rows).collect();
        findings.extend(gaps(&ranges).into_iter().map(|gap| format!("{}: {gap}", table.name)));
        for row in rows {
            let at = format!("{}: the tablet from {:?}", table.name, text(&row.config.rows.start));
            match &row.owner {
                Owner::Nobody if row.log.is_some() => {
                    findings.push(format!("{at} has no owner, but a log"));
                }
                Owner::Nobody => findings.push(format!("{at} is served by nobody")),
                Owner::Server(holder) if view.is_live(holder) => {}
                Owner::Server(holder) => {
                    let (id, epoch) = (&holder.id, holder.epoch);
                    findings.push(format!(
                        "{at} belongs to server {id} (epoch {epoch}), which is dead"
                    ));
                }
                Owner::Recoverer(holder) => {
                    findings.push(format!("{at} is being recovered by server {}", holder.id));
                }
            }
        }
    }
    let known: BTreeSet<_> = view.tables.iter().map(|table| table.id).collect();
    let orphans = view.rows.iter().filter(|(table, _)| !known.contains(table)).count();
    if orphans > 0 {
        findings.push(format!("{} of tables that do not exist", things(orphans as u64, "row")));
    }
    findings
}

/// Returns what is wrong with ranges that should have each row once.
fn gaps(ranges: &[&RowRange]) -> Vec<String> {
    let mut gaps = Vec::new();
    let mut next: Option<&[u8]> = Some(b"");
    for range in ranges {
        match next {
            Some(next) if *next == range.start[..] => {}
            Some(next) if *next < range.start[..] => {
                gaps.push(format!("no tablet has the rows from {:?}", text(next)));
            }
            _ => gaps.push(format!("two tablets have row {:?}", text(&range.start))),
        }
        next = range.end.as_deref();
    }
    if let Some(next) = next {
        gaps.push(format!("no tablet has the rows from {:?}", text(next)));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_overlaps_are_found() {
        let check = |ranges: &[RowRange]| gaps(&ranges.iter().collect::<Vec<_>>());
        assert!(check(&[RowRange::new("", "m"), RowRange::from("m")]).is_empty());
        assert_eq!(check(&[]).len(), 1);
        assert_eq!(check(&[RowRange::new("", "m")]), ["no tablet has the rows from \"m\""]);
        let gap = check(&[RowRange::new("", "m"), RowRange::from("n")]);
        assert_eq!(gap, ["no tablet has the rows from \"m\""]);
        let overlap = check(&[RowRange::new("", "m"), RowRange::from("k")]);
        assert_eq!(overlap, ["two tablets have row \"k\""]);
        let overlap = check(&[RowRange::all(), RowRange::from("k")]);
        assert_eq!(overlap, ["two tablets have row \"k\""]);
    }
}
