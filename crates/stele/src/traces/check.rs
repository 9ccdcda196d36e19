//! `stele traces check`: checks results against their labels, for use in CI.

use std::io::{self, BufWriter, Write};

use clap::Args;
use serde_json::json;
use stele_traces::analysis::{Standing, standings};
use stele_traces::memory::RequestMemory;
use stele_traces::store::{Grid, Label};
use stele_traces::{Error, Store, questions};

use super::query::Selection;
use super::{TableArgs, digest_name, user_error};
use crate::Outcome;
use crate::output::{json_line, things};

/// Exit with 1 if the newest result of any trace is negative or untriaged. Passed and
/// skipped tests need no label.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele traces check ci
  stele traces check ci 'os=linux' --last HEAD_HASH --untriaged-ok")]
pub struct Check {
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    selection: Selection,
    /// Fail only on negative results.
    #[arg(long)]
    untriaged_ok: bool,
}

impl Check {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let (grid, standings) =
            self.table.run(async |store| self.standings(&store).await.map_err(user_error))?;
        let (mut negative, mut untriaged) = (0, 0);
        let mut out = BufWriter::new(io::stdout().lock());
        for (trace, standing) in grid.traces.iter().zip(standings) {
            let Some(standing) = standing else { continue };
            let result = digest_name(standing.digest);
            match standing.label {
                Label::Positive => continue,
                Label::Negative => negative += 1,
                Label::Untriaged if self.untriaged_ok => continue,
                Label::Untriaged => untriaged += 1,
            }
            let (id, label) = (trace.params.id(), json!(standing.label));
            if self.table.json {
                let (commit, digest) = (standing.commit, standing.digest);
                let line = json!({"id": id, "label": label, "commit": commit, "digest": digest});
                json_line(&mut out, &line)?;
            } else {
                let label = label.as_str().unwrap_or_default();
                writeln!(out, "{label:9}  @{}  {result}  {id}", standing.commit.0)?;
            }
        }
        if !self.table.json {
            let traces = things(grid.traces.len() as u64, "trace");
            writeln!(out, "{traces}: {negative} negative, {untriaged} untriaged")?;
        }
        out.flush()?;
        Ok(if negative + untriaged == 0 { Outcome::Sound } else { Outcome::Findings })
    }
    async fn standings(&self, store: &Store) -> Result<(Grid, Vec<Option<Standing>>), Error> {
        let window = self.selection.window(store).await?;
        let (query, mut held) = (&self.selection.query, RequestMemory::uncounted());
        let (grid, labels) = questions::labelled(store, window, query, &mut held).await?;
        let standings = standings(&grid, &store.settings().test_key, &labels);
        Ok((grid, standings))
    }
}
