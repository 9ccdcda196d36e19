//! `stele count`: counts rows while reading as little of each as possible.

use std::io::{self, Write};

use clap::Args;
use serde_json::json;
use stele_bigtable_client::Filter;

use super::read::Rows;
use crate::Outcome;
use crate::connect::{BigtableServer, with_hint};
use crate::output::json_line;
use crate::progress::Progress;

/// How many rows are counted between two readings of the clock.
const PROGRESS_ROWS: u64 = 1024;

/// Count rows.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele count users
  stele count events --prefix 2026-01 --json")]
pub struct Count {
    table: String,
    #[command(flatten)]
    rows: Rows,
    /// Print {"rows": N} instead of the bare number.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: BigtableServer,
}

impl Count {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let first_cell = [Filter::cells_per_row(1), Filter::strip_values()];
        let query = self.rows.query().filter(Filter::chain(first_cell));
        let counted = self.server.run(async |client| {
            let mut rows = client.table(&self.table).map_err(with_hint)?.read_rows(query);
            let mut progress = Progress::without_total();
            let mut counted: u64 = 0;
            while rows.next().await.map_err(with_hint)?.is_some() {
                counted += 1;
                if counted.is_multiple_of(PROGRESS_ROWS) {
                    progress.show(0.0, counted, "rows");
                }
            }
            progress.clear();
            Ok(counted)
        })?;
        let mut out = io::stdout().lock();
        if self.json {
            json_line(&mut out, &json!({"rows": counted}))?;
        } else {
            writeln!(out, "{counted}")?;
        }
        Ok(Outcome::Sound)
    }
}
