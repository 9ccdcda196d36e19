//! `stele traces diff`: compares two commits.

use std::io::{self, BufWriter, Write};

use clap::Args;
use serde_json::json;
use stele_traces::analysis::Compared;
use stele_traces::memory::RequestMemory;
use stele_traces::{Error, Kind, Store, questions};

use super::{TableArgs, digest_name, user_error};
use crate::Outcome;
use crate::output::{json_line, things};

/// Show the differences between two commits. Exits with 1 if there are any.
#[derive(Args)]
pub struct Diff {
    #[command(flatten)]
    table: TableArgs,
    /// Earlier commit: a hash, or @ and an index.
    from: String,
    /// Later commit.
    to: String,
    /// Traces to select: key=value&key=value
    #[arg(default_value = "")]
    query: stele_traces::Query,
    /// Number of commits to look back for a result.
    #[arg(long, default_value_t = questions::LOOKBACK, value_parser = clap::value_parser!(u32).range(1..))]
    lookback: u32,
    /// Show numbers instead of digests.
    #[arg(long)]
    numbers: bool,
}

impl Diff {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let found = self.table.run(async |store| self.compare(&store).await.map_err(user_error))?;
        let mut out = BufWriter::new(io::stdout().lock());
        if self.table.json {
            json_line(&mut out, &json!({"same": found.same, "different": found.different}))?;
        } else {
            for difference in &found.different {
                let [before, after] = [&difference.before, &difference.after].map(result);
                writeln!(out, "{}  {before} -> {after}", difference.params)?;
            }
            let traces = things(found.different.len() as u64, "trace");
            writeln!(out, "{traces} changed, {} unchanged", found.same)?;
        }
        out.flush()?;
        Ok(if found.different.is_empty() { Outcome::Sound } else { Outcome::Findings })
    }

    async fn compare(&self, store: &Store) -> Result<questions::Differences, Error> {
        let kind = if self.numbers { Kind::Numbers } else { Kind::Digests };
        let from = store.find_commit(&self.from).await?.0;
        let to = store.find_commit(&self.to).await?.0;
        let mut held = [RequestMemory::uncounted(), RequestMemory::uncounted()];
        questions::diff(store, [from, to], kind, &self.query, self.lookback, &mut held).await
    }
}

/// Formats a result, or its absence.
fn result(result: &Option<Compared>) -> String {
    match result {
        None => "none".into(),
        Some(Compared::Digest(digest)) => digest_name(*digest),
        Some(Compared::Number(number)) => number.to_string(),
    }
}
