//! Ingests results from files: a thread reads files while earlier batches are stored.
//! Two batches are stored at once, so that neither disk nor CPU is idle.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::UNIX_EPOCH;

use stele_grpc::Pending;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Format, Reader, Report, guess, read_criterion_directory};
use crate::error::{Error, Result};
use crate::params::Params;
use crate::store::{Put, Store, now_micros};

/// The approximate number of results in a batch.
const BATCH_ENTRIES: usize = 500_000;
/// The maximum number of batches stored concurrently.
const STORING_MAX: usize = 2;
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Files to ingest, and metadata that they do not contain.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Files, and directories written by Criterion.
    pub paths: Vec<PathBuf>,
    /// Added to the params of every result that does not have them.
    pub labels: Params,
    /// The commit of files that do not name one.
    pub commit: Option<String>,
    /// The time of the results, which overrides that in the files.
    pub time_micros: Option<i64>,
    /// The format; detected if `None`.
    pub format: Option<Format>,
}

/// Progress of an ingestion.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ingested {
    pub results: u64,
    pub skipped: u64,
    /// The fraction of all files that has been read.
    pub done: f64,
}

/// Results passed on by the reading thread.
#[derive(Default)]
struct PutBatch {
    puts: Vec<Put>,
    entries: usize,
    skipped: usize,
    done: f64,
}

impl Files {
    /// Stores the results of all files and reports progress. The operation is
    /// idempotent.
    pub fn ingest<'a>(
        self,
        store: &'a Store,
        report: &'a mut (dyn FnMut(&Ingested) + Send),
    ) -> Pending<'a, Result<Ingested>> {
        Box::pin(self.store_results(store, report))
    }

    async fn store_results(
        self,
        store: &Store,
        report: &mut (dyn FnMut(&Ingested) + Send),
    ) -> Result<Ingested> {
        let (send, mut receive) = mpsc::channel::<PutBatch>(1);
        let reading = thread::spawn(move || self.read_all(&send));
        let mut ingested = Ingested::default();
        let mut storing: JoinSet<Result<usize>> = JoinSet::new();
        let mut commits: HashSet<String> = HashSet::new();
        while let Some(batch) = receive.recv().await {
            // Of two results of one commit, the later one must be stored later.
            let again = batch.puts.iter().any(|put| commits.contains(&put.commit));
            while storing.len() >= STORING_MAX || again && !storing.is_empty() {
                ingested.results += stored(&mut storing).await?;
            }
            if storing.is_empty() {
                commits.clear();
            }
            commits.extend(batch.puts.iter().map(|put| put.commit.clone()));
            ingested.skipped += batch.skipped as u64;
            ingested.done = batch.done;
            report(&ingested);
            let store = store.clone();
            storing.spawn(async move { Ok(store.put(&batch.puts).await?.entries) });
        }
        while !storing.is_empty() {
            ingested.results += stored(&mut storing).await?;
        }
        report(&ingested);
        match reading.join() {
            Ok(read) => read.map(|()| ingested),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Reads files one after another into batches, until the receiver is dropped.
    fn read_all(&self, send: &mpsc::Sender<PutBatch>) -> Result<()> {
        let mut reader = Reader::new(self.labels.clone());
        let mut batch = PutBatch::default();
        let mut commits = HashSet::new();
        for (at, path) in self.paths.iter().enumerate() {
            let read = self.read(path, &mut reader);
            for (report, time_micros) in read.map_err(|error| of_file(path, error))? {
                let commit = report.commit.or_else(|| self.commit.clone());
                let commit = commit.ok_or_else(|| {
                    let what = "the file names no commit: pass --commit or --repo";
                    of_file(path, Error::invalid(what))
                })?;
                // A batch contains each commit once, because a put has one time.
                if batch.entries >= BATCH_ENTRIES || !commits.insert(commit.clone()) {
                    let mut full = std::mem::take(&mut batch);
                    full.done = at as f64 / self.paths.len() as f64;
                    if send.blocking_send(full).is_err() {
                        return Ok(());
                    }
                    commits = HashSet::from([commit.clone()]);
                }
                batch.entries += report.entries.len();
                batch.skipped += report.skipped;
                batch.puts.push(Put { commit, time_micros, entries: report.entries });
            }
        }
        batch.done = 1.0;
        // The receiver is dropped only after an error, which is reported there.
        let _ = send.blocking_send(batch);
        Ok(())
    }

    fn read(&self, path: &Path, reader: &mut Reader) -> Result<Vec<(Report, i64)>> {
        let failed = |error: std::io::Error| Error::invalid(error.to_string());
        let found = std::fs::metadata(path).map_err(failed)?;
        let modified_micros =
            found.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let modified_micros =
            modified_micros.map_or_else(now_micros, |since| since.as_micros() as i64);
        let reports = if found.is_dir() {
            let report = read_criterion_directory(path, &self.labels)?;
            if report.entries.is_empty() {
                return Err(Error::invalid("the directory contains no Criterion results"));
            }
            vec![report]
        } else {
            if found.len() > FILE_BYTES_MAX {
                return Err(Error::TooLarge(format!(
                    "the file is larger than the limit of {FILE_BYTES_MAX} bytes"
                )));
            }
            let bytes = std::fs::read(path).map_err(failed)?;
            let format = self.format.or_else(|| guess(&bytes));
            let unknown = || Error::invalid("unknown format: pass --format");
            reader.read(format.ok_or_else(unknown)?, &bytes)?
        };
        let with_time = |report: Report| {
            let time = self.time_micros.or(report.time_micros).unwrap_or(modified_micros);
            (report, time)
        };
        Ok(reports.into_iter().map(with_time).collect())
    }
}

async fn stored(storing: &mut JoinSet<Result<usize>>) -> Result<u64> {
    match storing.join_next().await {
        None => Ok(0),
        Some(Ok(entries)) => entries.map(|entries| entries as u64),
        Some(Err(stopped)) => match stopped.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(stopped) => Err(Error::Conflict(format!("the ingestion was aborted: {stopped}"))),
        },
    }
}

/// Adds the name of the file to an error.
fn of_file(path: &Path, error: Error) -> Error {
    let named = |what: String| format!("{}: {what}", path.display());
    match error {
        Error::Invalid(what) => Error::Invalid(named(what)),
        Error::TooLarge(what) => Error::TooLarge(named(what)),
        other => other,
    }
}
