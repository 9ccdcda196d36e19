//! `stele traces trace` and `params`: one trace, and the params of all.

use std::io::{self, BufWriter, Write};

use clap::Args;
use serde_json::json;
use stele_traces::{analysis, questions};

use super::{TableArgs, digest_name, user_error};
use crate::Outcome;
use crate::output::{json_line, things};

/// Show the full history of one trace. Exits with 1 if it does not exist.
#[derive(Args)]
pub struct Trace {
    #[command(flatten)]
    table: TableArgs,
    /// Trace id: ,key=value,key=value,
    id: String,
}

impl Trace {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let params = stele_traces::Params::parse(&self.id).map_err(user_error)?;
        let found =
            self.table.run(async |store| store.history(&params).await.map_err(user_error))?;
        let Some(history) = found else {
            eprintln!("stele: trace {params} not found");
            return Ok(Outcome::Absent);
        };
        let mut out = BufWriter::new(io::stdout().lock());
        if self.table.json {
            let line = json!({
                "id": params.id(),
                "options": history.options,
                "digests": history.digests,
                "numbers": history.numbers,
            });
            json_line(&mut out, &line)?;
        } else {
            for (key, value) in history.options.iter() {
                writeln!(out, "{key}: {value}")?;
            }
            if let Some((first, digest)) = history.digests.first() {
                let results = things(history.digests.len() as u64, "result");
                writeln!(out, "{results}, the first at @{}", first.0)?;
                writeln!(out, "@{}  {}", first.0, digest_name(*digest))?;
            }
            for change in analysis::changes(&history.digests) {
                writeln!(out, "@{}  {}", change.bad.0, digest_name(change.after))?;
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
    table: TableArgs,
    /// First commit (inclusive).
    #[arg(long, value_name = "COMMIT")]
    first: Option<String>,
    /// Last commit (inclusive).
    #[arg(long, value_name = "COMMIT")]
    last: Option<String>,
}

impl Params {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let (first, last) = (self.first.as_deref(), self.last.as_deref());
        let set = self.table.run(async |store| {
            let (first, last) = questions::range(&store, first, last).await.map_err(user_error)?;
            store.param_set(first, last).await.map_err(user_error)
        })?;
        let mut out = BufWriter::new(io::stdout().lock());
        if self.table.json {
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
