//! `stele traces`: one result per commit and configuration. Each command connects to the
//! Bigtable that holds the table; only `serve` is a server.

mod bisect;
mod blame;
mod check;
mod copy;
mod diff;
mod ingest;
mod init;
mod label;
mod query;
mod serve;
mod steps;
mod trace;

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::{Args, Subcommand};
use stele_traces::http::INSTANCE;
use stele_traces::ingest::named_digests;
use stele_traces::store::Commit;
use stele_traces::{CommitIndex, Digest, Error, Store};

use crate::Outcome;
use crate::connect::{BigtableServer, with_hint};

#[derive(Subcommand)]
pub enum Command {
    Init(init::Init),
    Ingest(ingest::Ingest),
    Query(query::Query),
    Trace(trace::Trace),
    Params(trace::Params),
    Diff(diff::Diff),
    Bisect(bisect::Bisect),
    Steps(steps::Steps),
    Blame(blame::Blame),
    Label(label::Label),
    Labels(label::Labels),
    Check(check::Check),
    Copy(copy::Copy),
    Serve(serve::Serve),
}

pub fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Init(command) => command.run(),
        Command::Ingest(command) => command.run(),
        Command::Query(command) => command.run(),
        Command::Trace(command) => command.run(),
        Command::Params(command) => command.run(),
        Command::Diff(command) => command.run(),
        Command::Bisect(command) => command.run(),
        Command::Steps(command) => command.run(),
        Command::Blame(command) => command.run(),
        Command::Label(command) => command.run(),
        Command::Labels(command) => command.run(),
        Command::Check(command) => command.run(),
        Command::Copy(command) => command.run(),
        Command::Serve(command) => command.run(),
    }
}

/// The table of traces and the output format.
#[derive(Args, Clone)]
pub struct TableArgs {
    /// Table of traces.
    #[arg(value_name = "TABLE")]
    table_id: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: BigtableServer,
    #[command(flatten)]
    _own: Own,
}

/// Ends the help section of the server options; the command's own options follow.
#[derive(Args, Clone)]
#[command(next_help_heading = None::<&str>)]
struct Own {}

impl TableArgs {
    /// Opens the table and runs `work` with it.
    fn run<T>(&self, work: impl AsyncFnOnce(Store) -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.connection.clone().within(INSTANCE).run(async |client| {
            let store = Store::open(&client, &self.table_id).await.map_err(user_error)?;
            work(store).await
        })
    }
}

/// Registered commits by their index.
type Commits = BTreeMap<CommitIndex, Arc<Commit>>;

/// Formats a commit on one line.
fn commit_line(index: CommitIndex, commit: &Commit) -> String {
    let short = commit.hash.get(..12).unwrap_or(&commit.hash);
    format!("@{}  {short}  {}  {}", index.0, commit.author, commit.subject)
}

/// Returns the name of a digest that represents a fixed outcome, or its hex digits.
fn digest_name(digest: Digest) -> String {
    let known = named_digests().into_iter().find(|(known, _)| *known == digest);
    known.map_or_else(|| digest.to_string(), |(_, name)| name.to_string())
}

/// Converts an error of the store to one for people, with advice on what to do.
fn user_error(error: Error) -> anyhow::Error {
    match error {
        Error::Rows(error) => with_hint(error),
        other => anyhow::anyhow!(other.to_string()),
    }
}
