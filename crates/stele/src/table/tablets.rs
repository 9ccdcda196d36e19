//! The commands that show and change the tablets of a table.

use std::io;

use clap::{Args, Subcommand};
use stele_tables_api::Client;
use stele_tables_api::proto::{CompactTableReply, RowRange, VerifyTableReply};
use tonic::Status;

use super::commands::Format;
use super::tablets_render::{self as render, Verified};
use crate::Outcome;
use crate::connect::{BigtableServer, TabletsError, with_hint};
use crate::engine::ConfigPrinter;
use crate::escape::Typed;
use crate::output::text;
use crate::progress::Progress;

#[derive(Subcommand)]
pub enum Command {
    /// List the tablets of a table: ranges of rows that are stored and served separately.
    #[command(after_help = "\
Example:
  stele table tablets users --json

`end row` is the first row after the tablet. Sizes are approximate.")]
    Tablets {
        table: String,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Split a tablet before a row. Clients do not notice it.
    #[command(after_help = "Example:\n  stele table split users m")]
    Split {
        table: String,
        /// First row of the upper half; bytes that are not printable as \xNN.
        row: Typed,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Join the two tablets that meet at a row. Clients do not notice it.
    #[command(after_help = "Example:\n  stele table join users m")]
    Join {
        table: String,
        /// First row of the upper tablet; bytes that are not printable as \xNN.
        row: Typed,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Write a table's memory to disk and merge the files of each tablet into one run.
    #[command(after_help = "\
Example:
  stele table compact users

Deleted and expired cells are removed from disk. The server compacts by itself when
necessary; interrupting the command ends the work after the current tablet.")]
    Compact {
        table: String,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Serve the rows of unloaded tablets again.
    #[command(
        after_help = "Examples:\n  stele table load users\n  stele table load users --start m"
    )]
    Load {
        table: String,
        #[command(flatten)]
        rows: Rows,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Stop serving the rows of tablets, until they are loaded again.
    #[command(after_help = "\
Examples:
  stele table unload users --start m --end n
  stele table unload users

Everything in memory is written to files first. Reads and writes of the rows fail with
FAILED_PRECONDITION until `stele table load`, also after a restart.")]
    Unload {
        table: String,
        #[command(flatten)]
        rows: Rows,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Delete unused files from the object store of a server.
    #[command(after_help = "\
Examples:
  stele table gc --dry-run
  stele table gc

A file is deleted by the second collection that finds it unused. The server collects by
itself, every hour unless `stele serve --store-gc` says otherwise.")]
    Gc {
        /// Only show what is unused.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Read all files of a table that is in use and check them.
    #[command(after_help = "\
Example:
  stele table verify users

Checks every checksum, the order of cells and the bounds of each file. The exit code is
1 if something is damaged. `stele engine verify` checks a whole store that is not in use.")]
    Verify {
        table: String,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Show the configuration of the server: tables, tablets and their files.
    #[command(after_help = "\
Example:
  stele table dump-config users --json

`stele engine dump-config` shows that of a store that is not in use.")]
    DumpConfig {
        /// Only the part about this table.
        table: Option<String>,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
}

/// The rows whose tablets are loaded or unloaded.
#[derive(Args)]
pub struct Rows {
    /// Only tablets with rows from this one on.
    #[arg(long, value_name = "ROW")]
    start: Option<Typed>,
    /// Only tablets with rows before this one.
    #[arg(long, value_name = "ROW")]
    end: Option<Typed>,
}

impl From<Rows> for RowRange {
    fn from(rows: Rows) -> RowRange {
        let start = rows.start.map(|Typed(row)| row).unwrap_or_default();
        RowRange { start, end: rows.end.map(|Typed(row)| row) }
    }
}

pub(super) fn failed(status: Status) -> anyhow::Error {
    with_hint(TabletsError(status))
}

pub fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Tablets { table, format, server } => {
            let name = server.table_name(&table)?;
            let tablets =
                server.run_tablets(async |client| client.tablets(&name).await.map_err(failed))?;
            render::tablets(&mut io::stdout().lock(), &name, &tablets, format.json)?;
        }
        Command::Split { table, row: Typed(row), format, server } => {
            let name = server.table_name(&table)?;
            let created = server
                .run_tablets(async |client| client.split(&name, &row).await.map_err(failed))?;
            let line = match created {
                true => format!("split table {table} at row {}", text(&row)),
                false => format!("table {table} is already split at row {}", text(&row)),
            };
            render::boundary(
                &mut io::stdout().lock(),
                &name,
                &row,
                ("created", created),
                &line,
                format.json,
            )?;
        }
        Command::Join { table, row: Typed(row), format, server } => {
            let name = server.table_name(&table)?;
            server.run_tablets(async |client| client.join(&name, &row).await.map_err(failed))?;
            let line = format!("joined the tablets of table {table} at row {}", text(&row));
            render::boundary(
                &mut io::stdout().lock(),
                &name,
                &row,
                ("joined", true),
                &line,
                format.json,
            )?;
        }
        Command::Compact { table, format, server } => {
            let name = server.table_name(&table)?;
            let done = server.run_tablets(async |client| compact(&client, &name).await)?;
            render::compacted(&mut io::stdout().lock(), &table, &name, &done, format.json)?;
        }
        Command::Load { table, rows, format, server } => {
            let name = server.table_name(&table)?;
            let loaded = server.run_tablets(async |client| {
                client.load(&name, rows.into()).await.map_err(failed)
            })?;
            render::changed(
                &mut io::stdout().lock(),
                &table,
                &name,
                "loaded",
                loaded,
                format.json,
            )?;
        }
        Command::Unload { table, rows, format, server } => {
            let name = server.table_name(&table)?;
            let unloaded = server.run_tablets(async |client| {
                client.unload(&name, rows.into()).await.map_err(failed)
            })?;
            let out = &mut io::stdout().lock();
            render::changed(out, &table, &name, "unloaded", unloaded, format.json)?;
        }
        Command::Gc { dry_run, format, server } => {
            let collected =
                server.run_tablets(async |client| client.collect(dry_run).await.map_err(failed))?;
            render::collected(&mut io::stdout().lock(), &collected, dry_run, format.json)?;
        }
        Command::Verify { table, format, server } => {
            let name = server.table_name(&table)?;
            let verified = server.run_tablets(async |client| verify(&client, &name).await)?;
            render::verified(&mut io::stdout().lock(), &name, &verified, format.json)?;
            if !verified.problems.is_empty() {
                return Ok(Outcome::Damaged);
            }
        }
        Command::DumpConfig { table, format, server } => {
            let name = table.map(|table| server.table_name(&table)).transpose()?;
            server.run_tablets(async |client| {
                let mut parts = client.dump_config(name.as_deref()).await.map_err(failed)?;
                let mut printer = ConfigPrinter::new(io::stdout().lock(), format.json);
                while let Some(part) = parts.next().await.map_err(failed)? {
                    printer.part(&part)?;
                }
                Ok(printer.end()?)
            })?;
        }
    }
    Ok(Outcome::Sound)
}

/// Compacts a table and returns the last message.
async fn compact(client: &Client, table: &str) -> anyhow::Result<CompactTableReply> {
    let mut progress = Progress::new();
    let mut replies = client.compact(table).await.map_err(failed)?;
    let mut last = CompactTableReply::default();
    while let Some(reply) = replies.next().await.map_err(failed)? {
        let done = reply.tablets_done as f64 / reply.tablets.max(1) as f64;
        progress.show(done, reply.tablets_done, "tablets");
        last = reply;
    }
    progress.clear();
    Ok(last)
}

/// Verifies a table and returns what was found.
async fn verify(client: &Client, table: &str) -> anyhow::Result<Verified> {
    let mut progress = Progress::new();
    let mut replies = client.verify(table).await.map_err(failed)?;
    let mut verified = Verified::default();
    while let Some(reply) = replies.next().await.map_err(failed)? {
        let VerifyTableReply { bytes_done, bytes, files_done, .. } = reply;
        progress.show(bytes_done as f64 / bytes.max(1) as f64, files_done, "files");
        verified.add(reply);
    }
    progress.clear();
    Ok(verified)
}
