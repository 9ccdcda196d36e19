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
use crate::connect::{NameServer as Reach, threads, with_hint as advise};
use crate::output::{json_line, things};

/// Check all rows of names, and repair them.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele name fsck
  stele name fsck --fix --yes --bigtable bigtable.example.com:8086

Without --bigtable the server of names after --root checks its own rows; the caller must be
an administrator of the root. Exit code 1 says that something is wrong. Operations that are
under way may look like damage for a moment. Nobody may write while --fix works.")]
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
    reach: Reach,
}

/// The results of a check.
#[derive(Default)]
struct Found {
    mended: Vec<FsckProblem>,
    problems: Vec<FsckProblem>,
    summary: Option<FsckSummary>,
}

impl Found {
    fn add(&mut self, reply: Option<Reply>) {
        match reply {
            Some(Reply::Mended(problem)) => self.mended.push(problem),
            Some(Reply::Problem(problem)) => self.problems.push(problem),
            Some(Reply::Summary(summary)) => self.summary = Some(summary),
            None => {}
        }
    }
}

impl Fsck {
    pub fn run(self) -> anyhow::Result<Outcome> {
        if self.fix && !self.yes && !asked()? {
            bail!("nothing was changed");
        }
        let found = match self.rows.given(self.reach.insecure_token) {
            Some(rows) => threads(None)?.block_on(async {
                let table = rows.mounttable(Options::default()).await?;
                let (mended, report) = match self.fix {
                    true => fsck::mend(table.rows()).await?,
                    false => (Vec::new(), fsck::check(table.rows()).await?),
                };
                let mut found = Found::default();
                fsck_replies(&mended, &report).for_each(|reply| found.add(reply.reply));
                anyhow::Ok(found)
            })?,
            None => self.reach.run(async |names| {
                let mut replies = names.fsck(self.fix).await.map_err(advise)?;
                let mut found = Found::default();
                while let Some(reply) = replies.message().await? {
                    found.add(reply.reply);
                }
                Ok(found)
            })?,
        };
        let Found { mended, problems, summary } = found;
        let summary = summary.ok_or_else(|| anyhow!("the check ended without a summary"))?;
        let mut out = io::stdout().lock();
        if self.json {
            let shown = |problems: &[FsckProblem]| problems.iter().map(shown).collect::<Vec<_>>();
            let told = json!({
                "nodes": summary.nodes,
                "servers": summary.servers,
                "mended": shown(&mended),
                "problems": shown(&problems),
                "more_problems": summary.more_problems,
                "sound": problems.is_empty(),
            });
            json_line(&mut out, &told)?;
        } else {
            for problem in &mended {
                writeln!(out, "mended: {}", problem.description)?;
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

fn shown(problem: &FsckProblem) -> serde_json::Value {
    json!({"kind": problem.kind, "name": problem.name, "problem": problem.description})
}

fn asked() -> anyhow::Result<bool> {
    eprint!("Rows are deleted to mend others. Does nobody else write now? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
