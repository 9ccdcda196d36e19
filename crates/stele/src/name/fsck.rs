//! `stele name fsck`: all rows of names, checked against each other.

use std::io::{self, BufRead, Write};

use anyhow::bail;
use clap::Args;
use serde_json::json;
use stele_mounttable::Options;
use stele_mounttable::fsck::{self, Problem, Report};

use super::rows::{Rows, runtime};
use crate::Outcome;
use crate::output::{json_line, things};

/// Check all rows of names, and mend them.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele name fsck
  stele name fsck --fix --yes --bigtable bigtable.example.com:8086

Exit code 1 says that something is wrong. Operations that are under way may look
like damage for a moment. Nobody may write while --fix works.")]
pub struct Fsck {
    /// Mend what can be mended.
    #[arg(long)]
    fix: bool,
    /// Do not ask whether nobody else writes.
    #[arg(long, requires = "fix")]
    yes: bool,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    rows: Rows,
}

impl Fsck {
    pub fn run(self) -> anyhow::Result<Outcome> {
        if self.fix && !self.yes && !asked()? {
            bail!("nothing was changed");
        }
        let (mended, report) = runtime()?.block_on(async {
            let table = self.rows.mounttable(Options::default()).await?;
            Ok::<_, anyhow::Error>(match self.fix {
                true => fsck::mend(table.rows()).await?,
                false => (Vec::new(), fsck::check(table.rows()).await?),
            })
        })?;
        let mut out = io::stdout().lock();
        if self.json {
            json_line(&mut out, &shown(&mended, &report))?;
        } else {
            for problem in &mended {
                writeln!(out, "mended: {problem}")?;
            }
            for problem in &report.problems {
                writeln!(out, "{problem}")?;
            }
            let (nodes, servers) = (things(report.nodes, "node"), things(report.servers, "server"));
            let problems = things(report.problems.len() as u64, "problem");
            let end = if report.is_sound() { "sound" } else { &problems };
            writeln!(out, "{nodes}, {servers}: {end}")?;
        }
        Ok(if report.is_sound() { Outcome::Sound } else { Outcome::Damaged })
    }
}

fn shown(mended: &[Problem], report: &Report) -> serde_json::Value {
    let problem = |problem: &Problem| {
        let name = problem.node().map(|name| name.as_str().to_string());
        json!({"kind": problem.kind(), "name": name, "problem": problem.to_string()})
    };
    json!({
        "nodes": report.nodes,
        "servers": report.servers,
        "mended": mended.iter().map(problem).collect::<Vec<_>>(),
        "problems": report.problems.iter().map(problem).collect::<Vec<_>>(),
        "sound": report.is_sound(),
    })
}

fn asked() -> anyhow::Result<bool> {
    eprint!("Rows are deleted to mend others. Does nobody else write now? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
