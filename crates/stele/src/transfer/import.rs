//! `stele import`: the records of a file become rows of a table.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;
use stele_bigtable_client::{Client, Error, RowEntry, Table};
use tokio::task::JoinHandle;
use tonic::Code;

use super::Format;
use super::checkpoint::{Checkpoint, Job, with_suffix};
use super::mapping::{Assignment, Layout, parse_time};
use super::records::{Read, Record, Records};
use super::rejects::Rejects;
use crate::Outcome;
use crate::connect::{BigtableServer, with_hint};
use crate::output::{print_line, things};
use crate::progress::Progress;

/// The size of a batch of rows, which is one request.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_ROWS: usize = 10_000;
/// The number of batches that are written at the same time.
const BATCHES: usize = 8;
/// How often the progress is written to disk.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(100);

/// Import rows from a CSV file or from lines of JSON.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele import users users.csv --map key=id --map profile:city=city --map stats:visits=visits@int64
  stele import users users.jsonl --map key=id,profile:name=name --timestamp updated
  stele export users users.csv && stele import copy users.csv

Without --map, the field `key` is the key, and other fields are named after their columns
(profile:city). A file with the fields key, family, qualifier, timestamp and value, as
`stele export` writes it, has one cell per record. Types: text, int64, float64, hex, base64.

An import that was interrupted continues where it ended when the same command is run again.
All cells of a record have the same time: that of --timestamp or --at, or else the time of
the file, so that importing it again changes nothing. Empty fields set no cell. Records that
cannot be imported go to FILE.rejected with the reasons.")]
pub struct Import {
    table: String,
    file: PathBuf,
    /// Format of the file [default: by its extension].
    #[arg(long)]
    format: Option<Format>,
    /// Field to import, and what it becomes: key=FIELD or FAMILY:QUALIFIER=FIELD, each with
    /// an optional @TYPE; may be repeated.
    #[arg(long = "map", value_name = "TARGET=FIELD[@TYPE]", value_delimiter = ',')]
    map: Vec<Assignment>,
    /// Field with the time of the cells: microseconds since 1970, or a date.
    #[arg(long, value_name = "FIELD")]
    timestamp: Option<String>,
    /// Time of all cells: microseconds since 1970, or a date.
    #[arg(long, value_name = "TIME", conflicts_with = "timestamp")]
    at: Option<String>,
    /// Separator of CSV fields: one character, or \\t.
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = parse_delimiter)]
    delimiter: u8,
    /// File for rejected records [default: FILE.rejected].
    #[arg(long, value_name = "FILE")]
    rejected: Option<PathBuf>,
    /// Import everything, even if an earlier import was interrupted.
    #[arg(long)]
    restart: bool,
    #[command(flatten)]
    server: BigtableServer,
}

fn parse_delimiter(typed: &str) -> Result<u8, String> {
    match typed.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err(format!("invalid separator {typed:?}: use one character, or \\t")),
    }
}

impl Import {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let format = Format::of(self.format, &self.file)?;
        let done = self.server.run(async |client| self.import(client, format).await)?;
        let rows = things(done.records, "record");
        if done.rejected == 0 {
            print_line(&format!("imported {rows} into table {}", self.table))?;
            return Ok(Outcome::Sound);
        }
        let rejected = things(done.rejected, "record");
        print_line(&format!(
            "imported {rows} into table {}; {rejected} rejected: see {}",
            self.table,
            self.rejected_path().display()
        ))?;
        Ok(Outcome::Findings)
    }

    fn rejected_path(&self) -> PathBuf {
        self.rejected.clone().unwrap_or_else(|| with_suffix(&self.file, ".rejected"))
    }

    async fn import(&self, client: Client, format: Format) -> anyhow::Result<Done> {
        let path = &self.file;
        let timestamp = self.timestamp.as_deref();
        let records = Records::open(path, format, self.delimiter, &self.map, timestamp)?;
        let layout = Layout::new(records.names(), &self.map, timestamp)
            .map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?;
        let info = client.get_table(&self.table).await.map_err(with_hint)?;
        let missing = layout.families().into_iter().find(|name| !info.families.contains_key(*name));
        if let Some(family) = missing {
            bail!(
                "table {} has no family {family}: add it with `stele table family add`",
                self.table
            );
        }
        let job = self.job(format, info.name)?;
        let progress_path = Checkpoint::path(path);
        let resumed = match self.restart {
            true => None,
            false => Checkpoint::read(&progress_path, &job)?,
        };
        let checkpoint = match resumed {
            Some(resumed) => resumed,
            None => Checkpoint::begin(job.clone(), self.at_micros(&job)?),
        };
        let Checkpoint { rejects_bytes, rejected, .. } = checkpoint;
        let records = match checkpoint.offset {
            0 => records,
            offset => {
                eprintln!("continuing after {}", things(checkpoint.records, "record"));
                records.seek(path, self.delimiter, offset)?
            }
        };
        let running = Running {
            table: client.table(&self.table).map_err(with_hint)?,
            layout: &layout,
            names: records.names().to_vec(),
            rejects: Rejects::open(self.rejected_path(), rejects_bytes, rejected)?,
            path: progress_path,
            checkpoint,
            in_flight: VecDeque::new(),
            written: Instant::now(),
            progress: Progress::new(),
        };
        running.run(records).await
    }

    fn job(&self, format: Format, table: String) -> anyhow::Result<Job> {
        let options = format!(
            "{format:?} {} {:?} {:?} {:?}",
            self.delimiter, self.map, self.timestamp, self.at
        );
        Job::new(&self.file, table, self.server.options()?.endpoint, options)
    }

    /// Returns the time of cells: as given, or that of the file, in milliseconds, which every
    /// table accepts.
    fn at_micros(&self, job: &Job) -> anyhow::Result<i64> {
        let micros = match &self.at {
            Some(at) => parse_time(at.as_bytes()).map_err(|why| anyhow::anyhow!("--at: {why}"))?,
            None => job.modified_micros,
        };
        Ok(micros - micros.rem_euclid(1000))
    }
}

/// The outcome of an import, counting what earlier runs of it did.
struct Done {
    records: u64,
    rejected: u64,
}

/// A batch being written; its outcome has one result for each row.
type Outcomes = JoinHandle<Vec<Result<(), Error>>>;

/// An import in progress.
struct Running<'i> {
    table: Table,
    layout: &'i Layout,
    names: Vec<String>,
    rejects: Rejects,
    path: PathBuf,
    checkpoint: Checkpoint,
    /// Batches that are being written, oldest first.
    in_flight: VecDeque<(Batch, Outcomes)>,
    /// When the progress was written last.
    written: Instant,
    progress: Progress,
}

/// Records that are written together, and where the next one begins.
#[derive(Default)]
struct Batch {
    /// Each row's record, by number.
    records: Vec<(u64, Record)>,
    /// Records that could not become rows: numbers, reasons, records.
    malformed: Vec<(u64, String, Value)>,
    count: u64,
    offset: u64,
}

impl Running<'_> {
    async fn run(mut self, mut records: Records) -> anyhow::Result<Done> {
        let mut number = self.checkpoint.records + self.checkpoint.rejected;
        loop {
            let (batch, rows, ended) = self.next_batch(&mut records, &mut number)?;
            let table = self.table.clone();
            // Large tables of futures would be polled by one thread; tasks are not.
            let writing = tokio::spawn(async move { table.write_rows(rows).await });
            self.in_flight.push_back((batch, writing));
            while self.in_flight.len() > if ended { 0 } else { BATCHES } {
                self.finish_oldest().await?;
            }
            if ended {
                break;
            }
        }
        self.progress.clear();
        // Nothing is left to continue.
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{}", self.path.display()));
            }
            _ => {}
        }
        Ok(Done { records: self.checkpoint.records, rejected: self.checkpoint.rejected })
    }

    /// Reads the next batch. Returns whether it is the last one.
    fn next_batch(
        &self,
        records: &mut Records,
        number: &mut u64,
    ) -> anyhow::Result<(Batch, Vec<RowEntry>, bool)> {
        let (mut batch, mut rows) = (Batch::default(), Vec::new());
        let mut bytes = 0;
        let mut ended = false;
        while bytes < BATCH_BYTES && batch.count < BATCH_ROWS as u64 {
            let read =
                records.next(self.layout).with_context(|| format!("record {}", *number + 1))?;
            match read {
                Read::End => {
                    ended = true;
                    break;
                }
                Read::Malformed { reason, shown } => {
                    *number += 1;
                    batch.malformed.push((*number, reason, shown));
                }
                Read::Record(record) => {
                    *number += 1;
                    match self.layout.row(&record, self.checkpoint.at_micros) {
                        Ok(row) => {
                            bytes += row.len();
                            rows.push(row);
                            batch.records.push((*number, record));
                        }
                        Err(reason) => {
                            let shown = record.shown(&self.names);
                            batch.malformed.push((*number, reason, shown));
                        }
                    }
                }
            }
            batch.count += 1;
        }
        batch.offset = records.offset();
        Ok((batch, rows, ended))
    }

    /// Waits for the oldest batch. Everything before its end is done then.
    async fn finish_oldest(&mut self) -> anyhow::Result<()> {
        let Some((batch, writing)) = self.in_flight.pop_front() else { return Ok(()) };
        let outcomes = writing.await.context("writing a batch")?;
        let mut rejected = batch.malformed;
        for (outcome, (number, record)) in outcomes.into_iter().zip(&batch.records) {
            match outcome {
                Ok(()) => {}
                // The record is at fault; others may be written.
                Err(error)
                    if error.code() == Code::InvalidArgument
                        || error.message().contains("column family not found") =>
                {
                    rejected.push((*number, error.message(), record.shown(&self.names)));
                }
                Err(error) => return Err(with_hint(error)),
            }
        }
        rejected.sort_by_key(|(number, ..)| *number);
        for (number, reason, record) in &rejected {
            self.rejects.add(*number, reason, record)?;
        }
        let checkpoint = &mut self.checkpoint;
        checkpoint.offset = batch.offset;
        checkpoint.records += batch.count - rejected.len() as u64;
        checkpoint.rejected = self.rejects.count;
        checkpoint.rejects_bytes = self.rejects.bytes();
        let done = checkpoint.offset as f64 / checkpoint.job.bytes.max(1) as f64;
        self.progress.show(done, checkpoint.records, "records");
        if self.written.elapsed() >= CHECKPOINT_EVERY {
            checkpoint.write(&self.path)?;
            self.written = Instant::now();
        }
        Ok(())
    }
}

/// What is left when an import fails: the progress is written, so that it can continue.
impl Drop for Running<'_> {
    fn drop(&mut self) {
        let is_done = self.checkpoint.offset >= self.checkpoint.job.bytes;
        if !is_done && self.checkpoint.offset > 0 {
            // The last one that was written is valid, too.
            let _ = self.checkpoint.write(&self.path);
        }
    }
}
