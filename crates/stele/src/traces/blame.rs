//! `stele traces blame`, `steps` and `labels`: suspect commits, shifts in numbers, and
//! triage decisions.

use std::io::{self, BufWriter, Write};

use clap::Args;
use serde_json::json;
use stele_traces::analysis::{self, StepOptions};
use stele_traces::store::Cells;
use stele_traces::{CommitIndex, Kind};

use super::query::Wanted;
use super::{Place, commit_line, digest_or_word, told};
use crate::Outcome;
use crate::output::{json_line, things};

/// The number of suspects shown in text output.
const SUSPECTS_SHOWN: usize = 5;

/// Show the untriaged digests and the commits that may have introduced them. Exits with 1
/// if there are any.
#[derive(Args)]
pub struct Blame {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    wanted: Wanted,
}

impl Blame {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let (found, known) = self.place.run(async |store| {
            let (grid, labels) = self.wanted.labelled(&store).await?;
            let found = analysis::blame(&grid, &store.settings().test_key, &labels);
            let first = found.iter().map(|it| it.first).min().unwrap_or(CommitIndex(0));
            let last = found.iter().map(|it| it.last).max().unwrap_or(first);
            Ok((found, store.commits(first, last).await.map_err(told)?))
        })?;
        let mut out = BufWriter::new(io::stdout().lock());
        for blame in &found {
            let suspects = || known.range(blame.first..=blame.last);
            if self.place.json {
                let mut listed = json!(blame);
                listed["suspects"] = suspects().map(|(_, commit)| json!(commit.hash)).collect();
                json_line(&mut out, &listed)?;
                continue;
            }
            let traces = things(blame.traces as u64, "trace");
            writeln!(out, "{}  {}  {traces}", blame.test, digest_or_word(blame.digest))?;
            for (index, commit) in suspects().take(SUSPECTS_SHOWN) {
                writeln!(out, "    {}", commit_line(*index, commit))?;
            }
            let more = suspects().count().saturating_sub(SUSPECTS_SHOWN);
            if more > 0 {
                writeln!(out, "    and {}", things(more as u64, "other"))?;
            }
        }
        if !self.place.json {
            writeln!(out, "{}", things(found.len() as u64, "untriaged digest"))?;
        }
        out.flush()?;
        Ok(if found.is_empty() { Outcome::Sound } else { Outcome::Damaged })
    }
}

/// Show lasting shifts in numbers, most significant first.
#[derive(Args)]
pub struct Steps {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    wanted: Wanted,
}

impl Steps {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let grid = self.place.run(async |store| self.wanted.grid(&store, Kind::Numbers).await)?;
        let mut found = Vec::new();
        for trace in &grid.traces {
            let Cells::Numbers(cells) = &trace.cells else { continue };
            let points = grid.columns.iter().copied().zip(cells.iter().copied());
            let points: Vec<_> = points.filter(|(_, number)| !number.is_nan()).collect();
            let steps = analysis::steps(&points, StepOptions::default());
            found.extend(steps.into_iter().map(|step| (&trace.params, step)));
        }
        found.sort_by(|one, other| other.1.score.total_cmp(&one.1.score));
        let mut out = BufWriter::new(io::stdout().lock());
        for (params, step) in &found {
            if self.place.json {
                let mut listed = json!(step);
                listed["id"] = json!(params.id());
                json_line(&mut out, &listed)?;
                continue;
            }
            let change = if step.before == 0.0 { 0.0 } else { step.after / step.before - 1.0 };
            let [before, after] = [step.before, step.after].map(|mean| format!("{mean:.4}"));
            writeln!(
                out,
                "{:+.1} %  @{} to @{}  {before} -> {after}  {params}",
                change * 100.0,
                step.good.0,
                step.bad.0
            )?;
        }
        if !self.place.json {
            let (steps, traces) = (found.len() as u64, grid.traces.len() as u64);
            writeln!(out, "{} in {}", things(steps, "step"), things(traces, "trace"))?;
        }
        out.flush()?;
        Ok(Outcome::Sound)
    }
}

/// Show all labels of digests; with --json, as a backup.
#[derive(Args)]
pub struct Labels {
    #[command(flatten)]
    place: Place,
}

impl Labels {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let all = self.place.run(async |store| store.all_labels().await.map_err(told))?;
        let mut out = BufWriter::new(io::stdout().lock());
        for (test, labels) in &all {
            for (digest, labelled) in labels {
                let mut listed = json!(labelled);
                if self.place.json {
                    listed["test"] = json!(test);
                    listed["digest"] = json!(digest);
                    json_line(&mut out, &listed)?;
                } else {
                    let label = listed["label"].as_str().unwrap_or_default();
                    writeln!(out, "{label:9}  {digest}  {test}  {}", labelled.by)?;
                }
            }
        }
        out.flush()?;
        Ok(Outcome::Sound)
    }
}
