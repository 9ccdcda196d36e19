//! `stele traces bisect`: finds the commit that changed a trace.

use std::io::{self, BufWriter, Write};

use clap::Args;
use serde_json::json;
use stele_traces::questions::{Bisect as Question, Cause};
use stele_traces::{Error, Kind, Params, Store};

use super::{Commits, TableArgs, commit_line, user_error};
use crate::Outcome;
use crate::output::{json_line, things};

/// Find the commit that changed a trace. Exits with 1 if nothing changed.
#[derive(Args)]
pub struct Bisect {
    #[command(flatten)]
    table: TableArgs,
    /// Trace id: ,key=value,key=value,
    id: String,
    /// Known good commit; without it, finds the commit that introduced the newest result.
    #[arg(long, value_name = "COMMIT")]
    good: Option<String>,
    /// Known bad commit.
    #[arg(long, value_name = "COMMIT")]
    bad: Option<String>,
    /// Find where numbers shifted instead of where the digest changed.
    #[arg(long)]
    numbers: bool,
}

impl Bisect {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let params = Params::parse(&self.id).map_err(user_error)?;
        let found =
            self.table.run(async |store| self.find(&store, &params).await.map_err(user_error))?;
        let mut out = BufWriter::new(io::stdout().lock());
        let Some((cause, suspects)) = found else {
            if self.table.json {
                json_line(&mut out, &json!({"changed": false}))?;
            } else {
                writeln!(out, "nothing changed")?;
            }
            out.flush()?;
            return Ok(Outcome::Absent);
        };
        if self.table.json {
            let mut line = json!(cause);
            line["suspects"] = suspects
                .iter()
                .map(|(index, commit)| json!({"index": index, "commit": **commit}))
                .collect();
            json_line(&mut out, &line)?;
        } else {
            let commits = things(suspects.len() as u64, "commit");
            writeln!(out, "changed at @{}, introduced by one of {commits}:", cause.bad().0)?;
            for (index, commit) in &suspects {
                writeln!(out, "{}", commit_line(*index, commit))?;
            }
            if cause.came_back() {
                writeln!(out, "the good result occurs again later: the trace may be flaky")?;
            }
        }
        out.flush()?;
        Ok(Outcome::Sound)
    }

    /// Returns the change and its suspects; `None` if nothing changed.
    async fn find(
        &self,
        store: &Store,
        params: &Params,
    ) -> Result<Option<(Cause, Commits)>, Error> {
        let kind = if self.numbers { Kind::Numbers } else { Kind::Digests };
        let (good, bad) = (self.good.as_deref(), self.bad.as_deref());
        let cause = (Question { params, kind, good, bad }).run(store).await?;
        let Some(cause) = cause else { return Ok(None) };
        let (first, last) = cause.suspects().into_inner();
        let suspects = store.commits(first, last).await?;
        Ok(Some((cause, suspects)))
    }
}
