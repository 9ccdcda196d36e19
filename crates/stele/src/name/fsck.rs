//! `stele name fsck`: checks all rows of names for consistency, through the name server
//! or in any Bigtable that holds them.

use std::io::{self, BufRead, Write};

use anyhow::{anyhow, bail};
use clap::Args;
use serde_json::json;
use stele_mounttable::proto::fsck_reply::Reply;
use stele_mounttable::proto::{FsckProblem, FsckSummary, fsck_replies};
use stele_mounttable::{Options, fsck};

use super::rows::ExistingRows;
use crate::Outcome;
use crate::connect::{NameServer, threads, with_hint};
use crate::output::{json_line, things};

/// Check all rows of names, and repair them.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele name fsck
  stele name fsck --fix --yes --bigtable bigtable.example.com:8086

Without --bigtable, the name server given by --root checks its own rows; the caller must
be an administrator of the root. Exits with 1 if there are problems. Operations in
progress may briefly look like damage. Stop all writers before using --fix.")]
pub struct Fsck {
    /// Repair what can be repaired.
    #[arg(long)]
    fix: bool,
    /// Skip the confirmation that nobody else is writing.
    #[arg(long, requires = "fix")]
    yes: bool,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    rows: ExistingRows,
    #[command(flatten)]
    name_server: NameServer,
}

/// The results of a check.
#[derive(Default)]
struct Found {
    repaired: Vec<FsckProblem>,
    problems: Vec<FsckProblem>,
    summary: Option<FsckSummary>,
}

impl Found {
    fn add(&mut self, reply: Option<Reply>) {
        match reply {
            Some(Reply::Mended(problem)) => self.repaired.push(problem),
            Some(Reply::Problem(problem)) => self.problems.push(problem),
            Some(Reply::Summary(summary)) => self.summary = Some(summary),
            None => {}
        }
    }
}

impl Fsck {
    pub fn run(self) -> anyhow::Result<Outcome> {
        if self.fix && !self.yes && !confirm_exclusive()? {
            bail!("nothing was changed");
        }
        let found = match self.rows.given(self.name_server.insecure_token) {
            Some(rows) => threads(None)?.block_on(async {
                let table = rows.mounttable(Options::default()).await?;
                let (repaired, report) = match self.fix {
                    true => fsck::repair(table.rows()).await?,
                    false => (Vec::new(), fsck::check(table.rows()).await?),
                };
                let mut found = Found::default();
                fsck_replies(&repaired, &report).for_each(|reply| found.add(reply.reply));
                anyhow::Ok(found)
            })?,
            None => self.name_server.run(async |names| {
                let mut replies = names.fsck(self.fix).await.map_err(with_hint)?;
                let mut found = Found::default();
                while let Some(reply) = replies.message().await? {
                    found.add(reply.reply);
                }
                Ok(found)
            })?,
        };
        let Found { repaired, problems, summary } = found;
        let summary = summary.ok_or_else(|| anyhow!("the check ended without a summary"))?;
        let mut out = io::stdout().lock();
        if self.json {
            let list = |found: &[FsckProblem]| found.iter().map(problem_json).collect::<Vec<_>>();
            let line = json!({
                "nodes": summary.nodes,
                "servers": summary.servers,
                "mended": list(&repaired),
                "problems": list(&problems),
                "more_problems": summary.more_problems,
                "sound": problems.is_empty(),
            });
            json_line(&mut out, &line)?;
        } else {
            for problem in &repaired {
                writeln!(out, "repaired: {}", problem.description)?;
            }
            for problem in &problems {
                writeln!(out, "{}", problem.description)?;
            }
            let (nodes, servers) =
                (things(summary.nodes, "node"), things(summary.servers, "server"));
            let count = things(problems.len() as u64 + summary.more_problems, "problem");
            let end = if problems.is_empty() { "sound" } else { &count };
            writeln!(out, "{nodes}, {servers}: {end}")?;
        }
        Ok(if problems.is_empty() { Outcome::Sound } else { Outcome::Damaged })
    }
}

fn problem_json(problem: &FsckProblem) -> serde_json::Value {
    json!({"kind": problem.kind, "name": problem.name, "problem": problem.description})
}

/// Asks whether the rows may be repaired.
fn confirm_exclusive() -> anyhow::Result<bool> {
    eprint!(
        "Repair deletes rows and needs exclusive access. Is every other writer stopped? [y/N] "
    );
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
