//! `stele traces ingest`: registers the commits of a repository and stores results from
//! files.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::Args;
use serde_json::json;
use stele_traces::ingest::{Files, Format, Ingested, git, time_micros};
use stele_traces::store::Commit;
use stele_traces::{Error, Params, Store};

use super::{TableArgs, user_error};
use crate::Outcome;
use crate::output::{json_line, things};
use crate::progress::Progress;

/// Store results from files. Idempotent.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele traces ingest ci --repo . target/junit.xml --param os=linux
  stele traces ingest bench --repo . --commit HEAD~2 target/criterion
  stele traces ingest ci results/*.json
  stele traces ingest ci --repo .          (only the commits)

The format (JUnit, Criterion, Google Benchmark or Stele's own JSON) is detected
from the start of a file. The time of a result is given by its file's content or
by --time, else it is the file's modification time. Of two results of a trace at
a commit, the newer one counts.

A table follows the first-parent line of one branch. Results of a commit that is
not on it, such as that of a pull request, are refused and nothing is stored;
with --skip-off-branch the command then exits with 0.")]
pub struct Ingest {
    #[command(flatten)]
    table: TableArgs,
    /// Result files, and directories written by Criterion.
    paths: Vec<PathBuf>,
    /// Git repository whose commits are registered first.
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    /// Branch that the table follows [default: the default branch of
    /// origin, or else main or master]
    #[arg(long, requires = "repo", verbatim_doc_comment)]
    branch: Option<String>,
    /// If the commit is not on the branch, store nothing and exit with 0.
    #[arg(long, requires = "repo")]
    skip_off_branch: bool,
    /// Commit of files that name none: a hash, @ and an index, or with
    /// --repo any revision that git resolves [default with --repo: HEAD]
    #[arg(long, verbatim_doc_comment)]
    commit: Option<String>,
    /// Input format instead of detection: json, junit, criterion or google-benchmark.
    #[arg(long)]
    format: Option<Format>,
    /// Default params for every result, as key=value; the result's own params take
    /// precedence.
    #[arg(long = "param", value_name = "KEY=VALUE")]
    params: Vec<String>,
    /// Time of the results, in seconds since 1970.
    #[arg(long, value_name = "SECONDS")]
    time: Option<f64>,
}

/// The repository's data for an ingest.
struct Checkout {
    branch: String,
    /// The commits of the branch's first-parent history, oldest first.
    line: Vec<Commit>,
    /// The commit of files that name none, unless it is given by index.
    commit: Option<String>,
}

impl Checkout {
    /// Returns whether the table has the commit, or will have it after following the
    /// branch.
    async fn is_followed(&self, store: &Store) -> anyhow::Result<bool> {
        let Some(hash) = &self.commit else { return Ok(true) };
        if self.line.iter().rev().any(|commit| commit.hash == *hash) {
            return Ok(true);
        }
        match store.find_commit(hash).await {
            Ok(_) => Ok(true),
            Err(Error::UnknownCommit(_)) => Ok(false),
            Err(error) => Err(user_error(error)),
        }
    }
}

/// Returns the short name of a branch.
fn short(branch: &str) -> &str {
    let names = ["refs/heads/", "refs/remotes/"];
    names.iter().find_map(|prefix| branch.strip_prefix(prefix)).unwrap_or(branch)
}

impl Ingest {
    pub fn run(self) -> anyhow::Result<Outcome> {
        if self.paths.is_empty() && self.repo.is_none() {
            bail!("nothing to ingest: give files or --repo");
        }
        let checkout = self.checkout()?;
        let done = self.table.run(async |store| {
            let Some(checkout) = checkout else {
                return Ok(Some((0, self.store(&store, None).await?)));
            };
            if !checkout.is_followed(&store).await? {
                return self.skip(&checkout).map(|()| None);
            }
            let commit = checkout.commit.clone();
            let commits = self.register(&store, checkout).await?;
            Ok(Some((commits, self.store(&store, commit).await?)))
        })?;
        let Some((commits, Ingested { results, skipped, .. })) = done else {
            return Ok(Outcome::Sound);
        };
        let mut out = io::stdout().lock();
        if self.table.json {
            let line = json!({"commits": commits, "results": results, "skipped": skipped});
            json_line(&mut out, &line)?;
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

    /// Reads the repository, if one is given: the first-parent history that the table
    /// follows, and the commit of files that name none.
    fn checkout(&self) -> anyhow::Result<Option<Checkout>> {
        let Some(repo) = &self.repo else { return Ok(None) };
        let branch = match &self.branch {
            Some(branch) => branch.clone(),
            None => git::main_branch(repo).map_err(user_error)?,
        };
        let line = git::commits(repo, &branch).map_err(user_error)?;
        let commit = match self.commit.as_deref() {
            _ if self.paths.is_empty() => None,
            Some(index) if index.starts_with('@') => None,
            name => Some(git::resolve(repo, name.unwrap_or("HEAD")).map_err(user_error)?),
        };
        Ok(Some(Checkout { branch, line, commit }))
    }

    /// Registers the new commits of the branch.
    async fn register(&self, store: &Store, checkout: Checkout) -> anyhow::Result<u64> {
        let mut progress = Progress::new();
        let mut show = |done: usize, total: usize| {
            progress.show(done as f64 / total as f64, done as u64, "commits");
        };
        let registered = store.follow(checkout.line, &mut show).await;
        progress.clear();
        registered.map_err(|error| match error {
            Error::Conflict(what) => {
                let branch = short(&checkout.branch);
                anyhow!("{branch}: {what}\nhint: --branch names the branch that the table follows")
            }
            other => user_error(other),
        })
    }

    /// Reports that nothing was stored because the commit is not on the branch. An error
    /// unless `--skip-off-branch` is given.
    fn skip(&self, checkout: &Checkout) -> anyhow::Result<()> {
        let commit = checkout.commit.as_deref().unwrap_or("HEAD");
        let what = format!(
            "commit {commit} is not on the first-parent line of {}, which the table follows",
            short(&checkout.branch)
        );
        if !self.skip_off_branch {
            bail!(
                "{what}: nothing was stored\nhint: pass --skip-off-branch to succeed without \
                 storing, or --branch if the table follows another branch"
            );
        }
        let mut out = io::stdout().lock();
        if self.table.json {
            json_line(
                &mut out,
                &json!({"commits": 0, "results": 0, "skipped": 0, "off_branch": commit}),
            )?;
        } else {
            writeln!(out, "nothing stored: {what}")?;
        }
        Ok(())
    }

    async fn store(&self, store: &Store, commit: Option<String>) -> anyhow::Result<Ingested> {
        if self.paths.is_empty() {
            return Ok(Ingested::default());
        }
        let files = Files {
            paths: self.paths.clone(),
            labels: Params::parse_pairs(&self.params).map_err(user_error)?,
            commit: commit.or_else(|| self.commit.clone()),
            time_micros: self.time.map(time_micros).transpose().map_err(user_error)?,
            format: self.format,
        };
        let mut progress = Progress::new();
        let mut show = |it: &Ingested| progress.show(it.done, it.results, "results");
        let ingested = files.ingest(store, &mut show).await;
        progress.clear();
        ingested.map_err(user_error)
    }
}
