//! `stele count`: counts rows while reading as little of each as possible.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use stele_bigtable_client::Filter;

use super::read::Rows;
use crate::Outcome;
use crate::connection::{Connection, advise};
use crate::output::{count, json_line};

/// How often progress is displayed.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

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
    connection: Connection,
}

impl Count {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let first_cell = [Filter::cells_per_row(1), Filter::strip_values()];
        let query = self.rows.query().filter(Filter::chain(first_cell));
        let counted = self.connection.run(async |client| {
            let mut rows = client.table(&self.table).map_err(advise)?.read_rows(query);
            let mut progress = Progress::new();
            let mut counted = 0;
            while rows.next().await.map_err(advise)?.is_some() {
                counted += 1;
                progress.show(counted);
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

/// A progress line on standard error, shown only on a terminal.
struct Progress {
    terminal: bool,
    shown_at: Instant,
    shown: bool,
}

impl Progress {
    fn new() -> Progress {
        let terminal = io::stderr().is_terminal();
        Progress { terminal, shown_at: Instant::now(), shown: false }
    }

    fn show(&mut self, rows: u64) {
        // Avoids reading the clock for every row.
        if !self.terminal || !rows.is_multiple_of(1024) || self.shown_at.elapsed() < PROGRESS_EVERY
        {
            return;
        }
        self.shown_at = Instant::now();
        self.shown = true;
        eprint!("\r{} rows so far", count(rows));
    }

    fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
