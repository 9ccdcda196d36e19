//! `stele traces query`: shows traces over commits, one letter per digest.

use std::io::{self, BufWriter, Write};

use clap::Args;
use serde_json::json;
use stele_traces::store::{Cells, Grid, Window};
use stele_traces::{Error, Kind, Store, questions};

use super::{TableArgs, user_error};
use crate::Outcome;
use crate::output::{json_line, things};

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// Show traces over the newest commits with data.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele traces query ci
  stele traces query ci 'os=Android&gpu=~nvidia&name=!blur' -n 50
  stele traces query bench 'name=~^sort' --numbers --json

Values of one key are alternatives. * matches any value, ~ starts a regular
expression, ! negates the values of the key, and = takes the rest literally.")]
pub struct Query {
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    selection: Selection,
    /// Show numbers instead of digests.
    #[arg(long)]
    numbers: bool,
}

/// The traces and commits that a command is about.
#[derive(Args)]
pub struct Selection {
    /// Traces to select: key=value&key=value
    #[arg(default_value = "")]
    pub query: stele_traces::Query,
    /// Number of newest commits with data.
    #[arg(short = 'n', long = "commits", value_name = "N", default_value_t = 64)]
    count: usize,
    /// First commit (inclusive), with or without data.
    #[arg(long, value_name = "COMMIT", conflicts_with = "count")]
    first: Option<String>,
    /// Last commit (inclusive).
    #[arg(long, value_name = "COMMIT")]
    last: Option<String>,
}

impl Selection {
    pub async fn window(&self, store: &Store) -> Result<Window, Error> {
        let (first, last) = (self.first.as_deref(), self.last.as_deref());
        questions::window(store, first, last, self.count).await
    }
}

impl Query {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let kind = if self.numbers { Kind::Numbers } else { Kind::Digests };
        let grid =
            self.table.run(async |store| self.grid(&store, kind).await.map_err(user_error))?;
        let mut out = BufWriter::new(io::stdout().lock());
        if self.table.json {
            show_json(&mut out, &grid)?
        } else {
            show(&mut out, &grid)?
        }
        out.flush()?;
        let empty = grid.traces.is_empty();
        Ok(if empty { Outcome::Absent } else { Outcome::Sound })
    }

    async fn grid(&self, store: &Store, kind: Kind) -> Result<Grid, Error> {
        let window = self.selection.window(store).await?;
        store.grid(kind, window, &self.selection.query).await
    }
}

/// Writes one line per trace.
fn show_json(out: &mut impl Write, grid: &Grid) -> io::Result<()> {
    for trace in &grid.traces {
        let results: Vec<_> = match &trace.cells {
            Cells::Digests(cells) => {
                let found = grid.columns.iter().zip(cells).filter(|(_, number)| **number != 0);
                found.map(|(at, it)| json!([at, grid.digests[*it as usize - 1]])).collect()
            }
            Cells::Numbers(cells) => {
                let found = grid.columns.iter().zip(cells).filter(|(_, it)| !it.is_nan());
                found.map(|(at, it)| json!([at, it])).collect()
            }
        };
        json_line(out, &json!({"id": trace.params.id(), "results": results}))?;
    }
    Ok(())
}

fn show(out: &mut impl Write, grid: &Grid) -> io::Result<()> {
    let (Some(first), Some(last)) = (grid.columns.first(), grid.columns.last()) else {
        return writeln!(out, "no results");
    };
    let traces = things(grid.traces.len() as u64, "trace");
    let commits = things(grid.columns.len() as u64, "commit");
    writeln!(out, "{traces} at {commits}, @{} to @{}", first.0, last.0)?;
    for trace in &grid.traces {
        match &trace.cells {
            Cells::Digests(cells) => writeln!(out, "{}  {}", letters(cells), trace.params)?,
            Cells::Numbers(cells) => {
                let present: Vec<_> = cells.iter().filter(|number| !number.is_nan()).collect();
                let (first, last) = (present.first(), present.last());
                let number = |number: Option<&&f64>| number.map_or(0.0, |number| **number);
                writeln!(
                    out,
                    "{:>14.4} -> {:>14.4}  {:4} results  {}",
                    number(first),
                    number(last),
                    present.len(),
                    trace.params
                )?;
            }
        }
    }
    Ok(())
}

/// Maps digests to letters. Each trace starts with a: only changes matter.
fn letters(cells: &[u32]) -> String {
    let mut seen: Vec<u32> = Vec::new();
    let letter = |number: &u32| {
        if *number == 0 {
            return '.';
        }
        let at = seen.iter().position(|other| other == number).unwrap_or_else(|| {
            seen.push(*number);
            seen.len() - 1
        });
        LETTERS[at % LETTERS.len()] as char
    };
    cells.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_digests_have_equal_letters() {
        assert_eq!(letters(&[7, 7, 0, 9, 7, 3]), "aa.bac");
    }
}
