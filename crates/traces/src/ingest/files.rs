//! Results from files: a thread reads them while what was read before is
//! stored. Two batches are stored at once, so that neither the disk nor the
//! processor waits for the other.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::UNIX_EPOCH;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Format, Reader, Report, guess, read_criterion_directory};
use crate::error::{Error, Result};
use crate::params::Params;
use crate::store::{Put, Store, now_micros};

/// Results that are stored together, about.
const BATCH_ENTRIES: usize = 500_000;
/// Batches that are being stored at once.
const STORING_MAX: usize = 2;
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Files to be ingested, and what they do not say themselves.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Files, and directories that Criterion wrote.
    pub paths: Vec<PathBuf>,
    /// Laid under the params of every result.
    pub labels: Params,
    /// The commit of files that name none.
    pub commit: Option<String>,
    /// When the results were made, instead of what their files say.
    pub time_micros: Option<i64>,
    /// Instead of guessing.
    pub format: Option<Format>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ingested {
    pub results: u64,
    pub skipped: u64,
    /// The share of all files that has been read.
    pub done: f64,
}

/// What the reading thread hands over.
#[derive(Default)]
struct Batch {
    puts: Vec<Put>,
    entries: usize,
    skipped: usize,
    done: f64,
}

impl Files {
    /// Stores the results of all files. Doing it again changes nothing.
    pub async fn ingest(self, store: &Store, mut told: impl FnMut(&Ingested)) -> Result<Ingested> {
        let (send, mut receive) = mpsc::channel::<Batch>(1);
        let reading = thread::spawn(move || self.read_all(&send));
        let mut ingested = Ingested::default();
        let mut storing: JoinSet<Result<usize>> = JoinSet::new();
        let mut commits: HashSet<String> = HashSet::new();
        while let Some(batch) = receive.recv().await {
            // Of two results of one commit the later one is stored later.
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
            told(&ingested);
            let store = store.clone();
            storing.spawn(async move { Ok(store.put(&batch.puts).await?.entries) });
        }
        while !storing.is_empty() {
            ingested.results += stored(&mut storing).await?;
        }
        told(&ingested);
        match reading.join() {
            Ok(read) => read.map(|()| ingested),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Reads files one after another into batches, until nobody wants them.
    fn read_all(&self, send: &mpsc::Sender<Batch>) -> Result<()> {
        let mut reader = Reader::new(self.labels.clone());
        let mut batch = Batch::default();
        let mut commits = HashSet::new();
        for (at, path) in self.paths.iter().enumerate() {
            let read = self.read(path, &mut reader);
            for (report, time_micros) in read.map_err(|error| of_file(path, error))? {
                let commit = report.commit.or_else(|| self.commit.clone());
                let commit = commit.ok_or_else(|| {
                    let what = "it names no commit, and none was given: say --commit, or --repo";
                    of_file(path, Error::invalid(what))
                })?;
                // One commit has one time in a batch.
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
        // Whoever has left has failed, and says so itself.
        let _ = send.blocking_send(batch);
        Ok(())
    }

    fn read(&self, path: &Path, reader: &mut Reader) -> Result<Vec<(Report, i64)>> {
        let failed = |error: std::io::Error| Error::invalid(error.to_string());
        let found = std::fs::metadata(path).map_err(failed)?;
        let made = found.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let made = made.map_or_else(now_micros, |since| since.as_micros() as i64);
        let reports = if found.is_dir() {
            let report = read_criterion_directory(path, &self.labels)?;
            if report.entries.is_empty() {
                return Err(Error::invalid("this directory holds no results of Criterion"));
            }
            vec![report]
        } else {
            if found.len() > FILE_BYTES_MAX {
                return Err(Error::TooLarge(format!("a file may have {FILE_BYTES_MAX} bytes")));
            }
            let bytes = std::fs::read(path).map_err(failed)?;
            let format = self.format.or_else(|| guess(&bytes));
            let unknown = || Error::invalid("its format is not known: tell it with --format");
            reader.read(format.ok_or_else(unknown)?, &bytes)?
        };
        let with_time = |report: Report| {
            let time = self.time_micros.or(report.time_micros).unwrap_or(made);
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
            Err(stopped) => Err(Error::Conflict(format!("the work was given up: {stopped}"))),
        },
    }
}

/// The error, told with the file that it is about.
fn of_file(path: &Path, error: Error) -> Error {
    let told = |what: String| format!("{}: {what}", path.display());
    match error {
        Error::Invalid(what) => Error::Invalid(told(what)),
        Error::TooLarge(what) => Error::TooLarge(told(what)),
        other => other,
    }
}
