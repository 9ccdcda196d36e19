//! `stele traces blame`: the commits that may have introduced untriaged digests.

use std::io::{self, BufWriter, Write};

use clap::Args;
use serde_json::json;
use stele_traces::analysis::Blame as Blamed;
use stele_traces::memory::RequestMemory;
use stele_traces::{Error, Store, questions};

use super::query::Selection;
use super::{Commits, TableArgs, commit_line, digest_name, user_error};
use crate::Outcome;
use crate::output::{json_line, things};

/// The number of suspects shown in text output.
const SUSPECTS_SHOWN: usize = 5;

/// Show the untriaged digests and the commits that may have introduced them. Exits with 1
/// if there are any.
#[derive(Args)]
pub struct Blame {
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    selection: Selection,
}

impl Blame {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let (found, known) =
            self.table.run(async |store| self.find(&store).await.map_err(user_error))?;
        let mut out = BufWriter::new(io::stdout().lock());
        for blame in &found {
            let suspects = || known.range(blame.first..=blame.last);
            if self.table.json {
                let mut listed = json!(blame);
                listed["suspects"] = suspects().map(|(_, commit)| json!(commit.hash)).collect();
                json_line(&mut out, &listed)?;
                continue;
            }
            let traces = things(blame.traces as u64, "trace");
            writeln!(out, "{}  {}  {traces}", blame.test, digest_name(blame.digest))?;
            for (index, commit) in suspects().take(SUSPECTS_SHOWN) {
                writeln!(out, "    {}", commit_line(*index, commit))?;
            }
            let more = suspects().count().saturating_sub(SUSPECTS_SHOWN);
            if more > 0 {
                writeln!(out, "    and {more} more")?;
            }
        }
        if !self.table.json {
            writeln!(out, "{}", things(found.len() as u64, "untriaged digest"))?;
        }
        out.flush()?;
        Ok(if found.is_empty() { Outcome::Sound } else { Outcome::Findings })
    }

    async fn find(&self, store: &Store) -> Result<(Vec<Blamed>, Commits), Error> {
        let window = self.selection.window(store).await?;
        let mut held = RequestMemory::uncounted();
        let found = questions::blame(store, window, &self.selection.query, &mut held).await?;
        let known = questions::blamed_commits(store, &found).await?;
        Ok((found, known))
    }
}
