//! `stele traces steps`: lasting shifts in numbers.

use std::io::{self, BufWriter, Write};

use clap::Args;
use stele_traces::analysis::StepOptions;
use stele_traces::memory::RequestMemory;
use stele_traces::questions::{self, TraceStep};
use stele_traces::{Error, Store};

use super::query::Selection;
use super::{TableArgs, user_error};
use crate::Outcome;
use crate::output::{json_line, things};

/// Show lasting shifts in numbers, most significant first.
#[derive(Args)]
pub struct Steps {
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    selection: Selection,
}

impl Steps {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let steps = self.table.run(async |store| self.find(&store).await.map_err(user_error))?;
        let mut out = BufWriter::new(io::stdout().lock());
        for found in &steps.found {
            if self.table.json {
                json_line(&mut out, &serde_json::json!(found))?;
            } else {
                show(&mut out, found)?;
            }
        }
        if !self.table.json {
            let (steps, traces) = (steps.found.len() as u64, steps.traces as u64);
            writeln!(out, "{} in {}", things(steps, "step"), things(traces, "trace"))?;
        }
        out.flush()?;
        Ok(Outcome::Sound)
    }

    async fn find(&self, store: &Store) -> Result<questions::Steps, Error> {
        let window = self.selection.window(store).await?;
        let (query, options) = (&self.selection.query, StepOptions::default());
        questions::steps(store, window, query, options, &mut RequestMemory::uncounted()).await
    }
}

fn show(out: &mut impl Write, TraceStep { params, step }: &TraceStep) -> io::Result<()> {
    let change = if step.before == 0.0 { 0.0 } else { step.after / step.before - 1.0 };
    let [before, after] = [step.before, step.after].map(|mean| format!("{mean:.4}"));
    writeln!(
        out,
        "{:+.1} %  @{} to @{}  {before} -> {after}  {params}",
        change * 100.0,
        step.good.0,
        step.bad.0
    )
}
