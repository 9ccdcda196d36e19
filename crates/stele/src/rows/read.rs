//! `stele read` and `stele lookup`: streams rows, or reads one row.

use std::io::{self, BufWriter, Write};

use clap::Args;
use stele_bigtable_client::{Filter, Query, RowRange};

use super::Column;
use super::render::{Form, Printer};
use crate::Outcome;
use crate::connect::{BigtableServer, with_hint};
use crate::escape::{Typed, unescape};
use crate::timestamp::Timestamp;

/// Read rows.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele read users --limit 10
  stele read users --prefix de: --columns info:name,info:mail --versions 1
  stele read events --start 2026-01 --end 2026-02 --reversed --json
  stele read events --regex '.*-failed' --since 7d --keys-only

Bytes that are not printable are shown, and can be typed, as \\xNN.
With --json each row is one line; a key, qualifier or value that is not
printable UTF-8 is in a field whose name ends in _base64.")]
pub struct Read {
    table: String,
    #[command(flatten)]
    rows: Rows,
    #[command(flatten)]
    cells: Cells,
    /// Maximum number of rows.
    #[arg(long, value_name = "ROWS")]
    limit: Option<u64>,
    /// Read from the last row to the first.
    #[arg(long)]
    reversed: bool,
    /// Only rows whose keys match this pattern, in RE2 syntax.
    #[arg(long, value_name = "PATTERN")]
    regex: Option<Typed>,
    /// Omit the values.
    #[arg(long)]
    keys_only: bool,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    server: BigtableServer,
}

/// The rows to read.
#[derive(Args)]
pub struct Rows {
    /// Only rows whose keys start with this prefix.
    #[arg(long, conflicts_with_all = ["start", "end"])]
    prefix: Option<Typed>,
    /// First row to read (inclusive).
    #[arg(long, value_name = "KEY")]
    start: Option<Typed>,
    /// Row to stop before (exclusive).
    #[arg(long, value_name = "KEY")]
    end: Option<Typed>,
}

impl Rows {
    pub fn query(&self) -> Query {
        if let Some(Typed(prefix)) = &self.prefix {
            return Query::prefix(prefix.clone());
        }
        let start = self.start.as_ref().map(|Typed(key)| key.clone()).unwrap_or_default();
        let end = self.end.as_ref().map(|Typed(key)| key.clone());
        Query::range(RowRange { start, end })
    }
}

/// The cells of a row to read.
#[derive(Args)]
pub struct Cells {
    /// Only these families and columns, separated by commas.
    #[arg(long, value_name = "FAMILY[:QUALIFIER]", value_delimiter = ',')]
    columns: Vec<Column>,
    /// Number of newest versions of each column.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    versions: Option<i32>,
    /// Only cells from this time on: a date, microseconds, or an age such as 7d.
    #[arg(long, value_name = "TIME")]
    since: Option<Timestamp>,
    /// Only cells before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
}

impl Cells {
    fn filters(&self) -> Vec<Filter> {
        let mut filters = Vec::new();
        if !self.columns.is_empty() {
            let one = |column: &Column| match &column.qualifier {
                Some(qualifier) => Filter::column(&column.family, qualifier),
                None => Filter::family(&column.family),
            };
            filters.push(Filter::interleave(self.columns.iter().map(one)));
        }
        if self.since.is_some() || self.until.is_some() {
            let since = self.since.map_or(0, |since| since.0);
            filters.push(Filter::timestamps(since, self.until.map(|until| until.0)));
        }
        filters.extend(self.versions.map(Filter::versions));
        filters
    }
}

impl Read {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let mut query = self.rows.query();
        if let Some(limit) = self.limit {
            query = query.limit(limit);
        }
        if self.reversed {
            query = query.reversed();
        }
        let mut filters = self.cells.filters();
        if let Some(Typed(pattern)) = &self.regex {
            filters.insert(0, Filter::row_regex(pattern.clone()));
        }
        if self.keys_only {
            filters.push(Filter::strip_values());
        }
        if !filters.is_empty() {
            query = query.filter(Filter::chain(filters));
        }
        let mut printer = Printer::new(BufWriter::new(io::stdout().lock()), self.form);
        self.server.run(async |client| {
            let mut rows = client.table(&self.table).map_err(with_hint)?.read_rows(query);
            while let Some(row) = rows.next().await.map_err(with_hint)? {
                printer.row(&row)?;
            }
            Ok(printer.end()?)
        })?;
        Ok(Outcome::Sound)
    }
}

/// Read one row. Exits with 1 if it does not exist.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele lookup users de:4711
  stele lookup users 'k\\x00\\xff' --columns info --versions 1 --json")]
pub struct Lookup {
    table: String,
    /// Key of the row.
    #[arg(value_parser = unescape)]
    key: bytes::Bytes,
    #[command(flatten)]
    cells: Cells,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    server: BigtableServer,
}

impl Lookup {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let filters = self.cells.filters();
        let is_filtered = !filters.is_empty();
        let filter = is_filtered.then(|| Filter::chain(filters));
        let row = self.server.run(async |client| {
            let table = client.table(&self.table).map_err(with_hint)?;
            table.read_row(self.key.clone(), filter).await.map_err(with_hint)
        })?;
        let mut out = io::stdout().lock();
        match row {
            Some(row) => {
                let mut printer = Printer::new(out, self.form);
                printer.row(&row)?;
                printer.end()?;
                Ok(Outcome::Sound)
            }
            None => {
                if self.form.json {
                    writeln!(out, "null")?;
                } else {
                    let key = self.form.notation().bytes(&self.key);
                    let or = if is_filtered { ", or no cell matches" } else { "" };
                    eprintln!("stele: row {key} not found in table {}{or}", self.table);
                }
                Ok(Outcome::Absent)
            }
        }
    }
}
