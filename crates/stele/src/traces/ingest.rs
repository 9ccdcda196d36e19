//! `stele traces ingest`: commits of a repository, and results from files.
//! Files are read in a thread of their own while what was read is stored.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde_json::json;
use stele_traces::ingest::{self, Format, Report, git, read_criterion_directory};
use stele_traces::store::{NewCommit, Put, now_micros};
use stele_traces::{CommitIndex, Params, Store};
use tokio::sync::mpsc;

use super::progress::Progress;
use super::{Place, told};
use crate::Outcome;
use crate::output::{json_line, things};

/// Results that are stored together, about.
const BATCH_ENTRIES: usize = 200_000;
/// Commits that are registered together.
const BATCH_COMMITS: usize = 2_000;
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Store results from files. Doing it again changes nothing.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele traces ingest ci --repo . target/junit.xml --param os=linux
  stele traces ingest bench --repo . --commit HEAD~2 target/criterion
  stele traces ingest ci results/*.json
  stele traces ingest ci --repo .          (only the commits)

JUnit reports, Criterion's directories, Google Benchmark's JSON and our own JSON
are told apart by how they begin. Results are as old as their files, unless
these or --time say otherwise; of two results the newer one counts.")]
pub struct Ingest {
    #[command(flatten)]
    place: Place,
    /// Files, and directories that Criterion wrote.
    paths: Vec<PathBuf>,
    /// A git repository whose commits are registered first.
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    /// Its main branch.
    #[arg(long, default_value = "HEAD")]
    branch: String,
    /// The commit of files that name none: a hash, @ and an index, or with
    /// --repo any name that git knows [default with --repo: HEAD]
    #[arg(long, verbatim_doc_comment)]
    commit: Option<String>,
    /// json, junit, criterion or google-benchmark, instead of guessing.
    #[arg(long)]
    format: Option<Format>,
    /// key=value to be laid under the params of every result.
    #[arg(long = "param", value_name = "KEY=VALUE")]
    params: Vec<String>,
    /// When the results were made, in seconds since 1970.
    #[arg(long, value_name = "SECONDS")]
    time: Option<f64>,
}

/// What a reader thread hands over.
struct Batch {
    puts: Vec<Put>,
    skipped: usize,
    /// The share of all bytes that has been read.
    done: f64,
}

impl Ingest {
    pub fn run(self) -> anyhow::Result<Outcome> {
        if self.paths.is_empty() && self.repo.is_none() {
            bail!("there is nothing to ingest: give files, or --repo");
        }
        let (commits, stored, skipped) = self.place.run(async |store| {
            let commits = self.register(&store).await?;
            let (stored, skipped) = self.store(&store).await?;
            Ok((commits, stored, skipped))
        })?;
        let mut out = io::stdout().lock();
        if self.place.json {
            let told = json!({"commits": commits, "results": stored, "skipped": skipped});
            json_line(&mut out, &told)?;
        } else {
            let new = things(commits, "new commit");
            write!(out, "{new}, {} stored", things(stored, "result"))?;
            writeln!(
                out,
                "{}",
                if skipped > 0 { format!(", {skipped} skipped") } else { String::new() }
            )?;
        }
        Ok(Outcome::Sound)
    }

    /// Registers the commits that are new.
    async fn register(&self, store: &Store) -> anyhow::Result<u64> {
        let Some(repo) = &self.repo else { return Ok(0) };
        let commits = git::commits(repo, &self.branch).map_err(told)?;
        let known = match store.head().await.map_err(told)? {
            None => 0,
            Some((head, stored)) => {
                let here = commits.get(head.0 as usize);
                if here.is_none_or(|here| here.hash != stored.hash) {
                    bail!(
                        "@{} of the table is {}, which is not commit {} of {}: is it another \
                         repository, or was its history changed?",
                        head.0,
                        stored.hash,
                        head.0,
                        repo.display()
                    );
                }
                head.0 as usize + 1
            }
        };
        let mut progress = Progress::new();
        let new: Vec<NewCommit> = commits
            .into_iter()
            .zip(0..)
            .skip(known)
            .map(|(commit, index)| NewCommit { commit, index: Some(CommitIndex(index)) })
            .collect();
        for (at, part) in new.chunks(BATCH_COMMITS).enumerate() {
            store.register(part).await.map_err(told)?;
            let done = at * BATCH_COMMITS + part.len();
            progress.show(done as f64 / new.len() as f64, done as u64, "commits");
        }
        progress.clear();
        Ok(new.len() as u64)
    }

    async fn store(&self, store: &Store) -> anyhow::Result<(u64, u64)> {
        let reader = Reader {
            labels: self.labels()?,
            commit: self.commit()?,
            time_micros: self.time_micros()?,
            format: self.format,
            paths: self.paths.clone(),
        };
        let (send, mut receive) = mpsc::channel(1);
        let reading = thread::spawn(move || reader.run(&send));
        let mut progress = Progress::new();
        let (mut stored, mut skipped) = (0, 0);
        while let Some(batch) = receive.recv().await {
            stored += store.put(&batch.puts).await.map_err(told)?.entries as u64;
            skipped += batch.skipped as u64;
            progress.show(batch.done, stored, "results");
        }
        progress.clear();
        let read = reading.join().map_err(|_| anyhow!("the thread that reads files ended"))?;
        read.map(|()| (stored, skipped))
    }

    fn labels(&self) -> anyhow::Result<Params> {
        let pair = |text: &String| {
            let pair =
                text.split_once('=').map(|(key, value)| (key.to_string(), value.to_string()));
            pair.ok_or_else(|| anyhow!("--param {text}: write KEY=VALUE"))
        };
        let pairs: Vec<_> = self.params.iter().map(pair).collect::<Result<_, _>>()?;
        Params::new(pairs).map_err(told)
    }

    /// The hash of the commit of files that name none.
    fn commit(&self) -> anyhow::Result<Option<String>> {
        match (&self.repo, self.commit.as_deref()) {
            (_, Some(index)) if index.starts_with('@') => Ok(Some(index.into())),
            (Some(repo), name) => {
                let resolved = git::resolve(repo, name.unwrap_or(&self.branch));
                resolved.map(Some).map_err(told)
            }
            (None, name) => Ok(name.map(str::to_string)),
        }
    }

    fn time_micros(&self) -> anyhow::Result<Option<i64>> {
        match self.time {
            None => Ok(None),
            Some(time) if (0.0..253_402_300_800.0).contains(&time) => Ok(Some((time * 1e6) as i64)),
            Some(time) => bail!("--time {time} is not in seconds since 1970"),
        }
    }
}

/// Reads files one after another into batches.
struct Reader {
    paths: Vec<PathBuf>,
    labels: Params,
    commit: Option<String>,
    time_micros: Option<i64>,
    format: Option<Format>,
}

impl Reader {
    fn run(&self, send: &mpsc::Sender<Batch>) -> anyhow::Result<()> {
        let mut batch = Batch { puts: Vec::new(), skipped: 0, done: 0.0 };
        let mut commits = HashSet::new();
        let mut entries = 0;
        for (at, path) in self.paths.iter().enumerate() {
            for (report, time) in self.read(path).with_context(|| path.display().to_string())? {
                let commit = report.commit.clone().or_else(|| self.commit.clone());
                let commit = commit.ok_or_else(|| {
                    anyhow!("{} names no commit: give --commit or --repo", path.display())
                })?;
                // One commit has one time in a batch.
                if entries >= BATCH_ENTRIES || !commits.insert(commit.clone()) {
                    let next = Batch { puts: Vec::new(), skipped: 0, done: 0.0 };
                    let mut full = std::mem::replace(&mut batch, next);
                    full.done = at as f64 / self.paths.len() as f64;
                    if send.blocking_send(full).is_err() {
                        return Ok(());
                    }
                    (commits, entries) = (HashSet::from([commit.clone()]), 0);
                }
                entries += report.entries.len();
                batch.skipped += report.skipped;
                batch.puts.push(Put { commit, time_micros: time, entries: report.entries });
            }
        }
        batch.done = 1.0;
        // Whoever has left has failed, and says so itself.
        let _ = send.blocking_send(batch);
        Ok(())
    }

    fn read(&self, path: &Path) -> anyhow::Result<Vec<(Report, i64)>> {
        let found = std::fs::metadata(path)?;
        let made =
            found.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let made = made.map_or_else(now_micros, |since| since.as_micros() as i64);
        let reports = if found.is_dir() {
            let report = read_criterion_directory(path, &self.labels).map_err(told)?;
            if report.entries.is_empty() {
                bail!("this directory holds no results of Criterion");
            }
            vec![report]
        } else {
            if found.len() > FILE_BYTES_MAX {
                bail!("a file may have {FILE_BYTES_MAX} bytes");
            }
            let bytes = std::fs::read(path)?;
            let format = self.format.or_else(|| ingest::guess(&bytes));
            let format = format.ok_or_else(|| anyhow!("the format is not known: give --format"))?;
            ingest::read(format, &bytes, &self.labels).map_err(told)?
        };
        let with_time = |report: Report| {
            let time = self.time_micros.or(report.time_micros).unwrap_or(made);
            (report, time)
        };
        Ok(reports.into_iter().map(with_time).collect())
    }
}
