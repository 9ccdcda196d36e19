//! `stele traces trace`, `params`, `diff` and `bisect`: queries of stored results.

use std::io::{self, BufWriter, Write};

use clap::Args;
use serde_json::json;
use stele_traces::analysis::{self, Compared, StepOptions, first_bad, steps};
use stele_traces::store::Window;
use stele_traces::{CommitIndex, Kind, Store};

use super::{Place, commit_line, digest_or_word, told};
use crate::Outcome;
use crate::output::{json_line, things};

/// Show the full history of one trace. Exits with 1 if it does not exist.
#[derive(Args)]
pub struct Trace {
    #[command(flatten)]
    place: Place,
    /// Trace id: ,key=value,key=value,
    id: String,
}

impl Trace {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let params = stele_traces::Params::parse(&self.id).map_err(told)?;
        let found = self.place.run(async |store| store.history(&params).await.map_err(told))?;
        let Some(history) = found else {
            eprintln!("stele: there is no trace {params}");
            return Ok(Outcome::Absent);
        };
        let mut out = BufWriter::new(io::stdout().lock());
        if self.place.json {
            let told = json!({
                "id": params.id(),
                "options": history.options,
                "digests": history.digests,
                "numbers": history.numbers,
            });
            json_line(&mut out, &told)?;
        } else {
            for (key, value) in history.options.iter() {
                writeln!(out, "{key}: {value}")?;
            }
            if let Some((first, digest)) = history.digests.first() {
                let results = things(history.digests.len() as u64, "result");
                writeln!(out, "{results}, the first at @{}", first.0)?;
                writeln!(out, "@{}  {}", first.0, digest_or_word(*digest))?;
            }
            for change in analysis::changes(&history.digests) {
                writeln!(out, "@{}  {}", change.bad.0, digest_or_word(change.after))?;
            }
            for (index, number) in &history.numbers {
                writeln!(out, "@{}  {number}", index.0)?;
            }
        }
        out.flush()?;
        Ok(Outcome::Sound)
    }
}

/// Show all keys and values.
#[derive(Args)]
pub struct Params {
    #[command(flatten)]
    place: Place,
    /// First commit (inclusive).
    #[arg(long, value_name = "COMMIT")]
    first: Option<String>,
    /// Last commit (inclusive).
    #[arg(long, value_name = "COMMIT")]
    last: Option<String>,
}

impl Params {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let set = self.place.run(async |store| {
            let index = async |name: &Option<String>, default| match name {
                Some(name) => store.find_commit(name).await.map(|found| found.0),
                None => Ok(CommitIndex(default)),
            };
            let first = index(&self.first, 0).await.map_err(told)?;
            let last = index(&self.last, u32::MAX).await.map_err(told)?;
            store.param_set(first, last).await.map_err(told)
        })?;
        let mut out = BufWriter::new(io::stdout().lock());
        if self.place.json {
            json_line(&mut out, &set)?;
        } else {
            for (key, values) in &set.0 {
                let values: Vec<_> = values.iter().map(String::as_str).collect();
                writeln!(out, "{key}: {}", values.join(" "))?;
            }
        }
        out.flush()?;
        Ok(Outcome::Sound)
    }
}

/// Show the differences between two commits. Exits with 1 if there are any.
#[derive(Args)]
pub struct Diff {
    #[command(flatten)]
    place: Place,
    /// Earlier commit: a hash, or @ and an index.
    from: String,
    /// Later commit.
    to: String,
    /// Traces to select: key=value&key=value
    #[arg(default_value = "")]
    query: stele_traces::Query,
    /// Number of commits to look back for a result.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    lookback: u32,
    /// Show numbers instead of digests.
    #[arg(long)]
    numbers: bool,
}

impl Diff {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let kind = if self.numbers { Kind::Numbers } else { Kind::Digests };
        let (different, same) = self.place.run(async |store| {
            let mut grids = Vec::new();
            for name in [&self.from, &self.to] {
                let last = store.find_commit(name).await.map_err(told)?.0;
                let first = CommitIndex((last.0 + 1).saturating_sub(self.lookback));
                let window = Window::Range { first, last };
                grids.push(store.grid(kind, window, &self.query).await.map_err(told)?);
            }
            Ok(analysis::diff(&grids[0], &grids[1]))
        })?;
        let mut out = BufWriter::new(io::stdout().lock());
        if self.place.json {
            json_line(&mut out, &json!({"same": same, "different": different}))?;
        } else {
            for difference in &different {
                let [before, after] = [&difference.before, &difference.after].map(shown);
                writeln!(out, "{}  {before} -> {after}", difference.params)?;
            }
            let traces = things(different.len() as u64, "trace");
            writeln!(out, "{traces} changed, {same} the same")?;
        }
        out.flush()?;
        Ok(if different.is_empty() { Outcome::Sound } else { Outcome::Damaged })
    }
}

/// Find the commit that changed a trace. Exits with 1 if nothing changed.
#[derive(Args)]
pub struct Bisect {
    #[command(flatten)]
    place: Place,
    /// Trace id: ,key=value,key=value,
    id: String,
    /// Known good commit; without it, finds the commit that introduced the newest result.
    #[arg(long, value_name = "COMMIT")]
    good: Option<String>,
    /// Known bad commit.
    #[arg(long, value_name = "COMMIT")]
    bad: Option<String>,
    /// Find where numbers moved instead of where the digest changed.
    #[arg(long)]
    numbers: bool,
}

impl Bisect {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let params = stele_traces::Params::parse(&self.id).map_err(told)?;
        let found = self.place.run(async |store| {
            let good = index(&store, &self.good).await?;
            let bad = index(&store, &self.bad).await?;
            let history = store.history(&params).await.map_err(told)?.unwrap_or_default();
            let found = if self.numbers {
                let within = |at: CommitIndex| {
                    good.is_none_or(|good| at >= good) && bad.is_none_or(|bad| at <= bad)
                };
                let points: Vec<_> =
                    history.numbers.into_iter().filter(|(at, _)| within(*at)).collect();
                let step = steps(&points, StepOptions::default()).pop();
                step.map(|step| (step.good, step.bad, json!(step), false))
            } else {
                first_bad(&history.digests, good, bad).map(|found| {
                    let (good, bad) = (found.change.good, found.change.bad);
                    (good, bad, json!(found), found.came_back)
                })
            };
            let Some((good, bad, told_of, came_back)) = found else { return Ok(None) };
            let suspects = store.commits(CommitIndex(good.0 + 1), bad).await.map_err(told)?;
            Ok(Some((told_of, suspects, came_back)))
        })?;
        let mut out = BufWriter::new(io::stdout().lock());
        let Some((mut told_of, suspects, came_back)) = found else {
            if self.place.json {
                json_line(&mut out, &json!({"changed": false}))?;
            } else {
                writeln!(out, "nothing changed")?;
            }
            out.flush()?;
            return Ok(Outcome::Absent);
        };
        if self.place.json {
            told_of["suspects"] = suspects
                .iter()
                .map(|(index, commit)| json!({"index": index, "commit": **commit}))
                .collect();
            json_line(&mut out, &told_of)?;
        } else {
            let changed = &told_of["bad"];
            let commits = things(suspects.len() as u64, "commit");
            writeln!(out, "changed at @{changed}, brought by one of {commits}:")?;
            for (index, commit) in &suspects {
                writeln!(out, "{}", commit_line(*index, commit))?;
            }
            if came_back {
                writeln!(out, "the good result came back later: the trace may be flaky")?;
            }
        }
        out.flush()?;
        Ok(Outcome::Sound)
    }
}

/// Formats a result, or its absence.
fn shown(result: &Option<Compared>) -> String {
    match result {
        None => "nothing".into(),
        Some(Compared::Digest(digest)) => digest_or_word(*digest),
        Some(Compared::Number(number)) => number.to_string(),
    }
}

async fn index(store: &Store, name: &Option<String>) -> anyhow::Result<Option<CommitIndex>> {
    match name {
        None => Ok(None),
        Some(name) => Ok(Some(store.find_commit(name).await.map_err(told)?.0)),
    }
}
