//! `stele traces ingest`: commits of a repository, and results from files.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::Args;
use serde_json::json;
use stele_traces::ingest::{Files, Format, Ingested, git};
use stele_traces::store::NewCommit;
use stele_traces::{CommitIndex, Params, Store};

use super::progress::Progress;
use super::{Place, told};
use crate::Outcome;
use crate::output::{json_line, things};

/// Commits that are registered together.
const BATCH_COMMITS: usize = 2_000;

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

impl Ingest {
    pub fn run(self) -> anyhow::Result<Outcome> {
        if self.paths.is_empty() && self.repo.is_none() {
            bail!("there is nothing to ingest: give files, or --repo");
        }
        let (commits, Ingested { results, skipped, .. }) = self.place.run(async |store| {
            let commits = self.register(&store).await?;
            Ok((commits, self.store(&store).await?))
        })?;
        let mut out = io::stdout().lock();
        if self.place.json {
            let told = json!({"commits": commits, "results": results, "skipped": skipped});
            json_line(&mut out, &told)?;
        } else {
            let new = things(commits, "new commit");
            write!(out, "{new}, {} stored", things(results, "result"))?;
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

    async fn store(&self, store: &Store) -> anyhow::Result<Ingested> {
        if self.paths.is_empty() {
            return Ok(Ingested::default());
        }
        let files = Files {
            paths: self.paths.clone(),
            labels: self.labels()?,
            commit: self.commit()?,
            time_micros: self.time_micros()?,
            format: self.format,
        };
        let mut progress = Progress::new();
        let show = |it: &Ingested| progress.show(it.done, it.results, "results");
        let ingested = files.ingest(store, show).await;
        progress.clear();
        ingested.map_err(told)
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
