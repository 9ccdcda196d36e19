//! `stele traces`: one result per commit and configuration. Each command connects to the
//! Bigtable that holds the table; only `serve` is a server.

mod ask;
mod check;
mod copy;
mod ingest;
mod init;
mod label;
mod lists;
mod progress;
mod query;
mod serve;

use clap::{Args, Subcommand};
use stele_traces::http::INSTANCE;
use stele_traces::ingest::words;
use stele_traces::store::Commit;
use stele_traces::{CommitIndex, Digest, Error, Store};

use crate::Outcome;
use crate::connect::{BigtableServer as Connection, with_hint as advise};

#[derive(Subcommand)]
pub enum Command {
    Init(init::Init),
    Ingest(ingest::Ingest),
    Query(query::Query),
    Trace(ask::Trace),
    Params(ask::Params),
    Diff(ask::Diff),
    Bisect(ask::Bisect),
    Steps(lists::Steps),
    Blame(lists::Blame),
    Label(label::Label),
    Labels(lists::Labels),
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
pub struct Place {
    /// Table of traces.
    table: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    _own: Own,
}

/// Ends the help section of the server options; the command's own options follow.
#[derive(Args, Clone)]
#[command(next_help_heading = None::<&str>)]
struct Own {}

impl Place {
    /// Opens the table and runs `work` with it.
    fn run<T>(&self, work: impl AsyncFnOnce(Store) -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.connection.clone().within(INSTANCE).run(async |client| {
            let store = Store::open(&client, &self.table).await.map_err(told)?;
            work(store).await
        })
    }
}

/// Formats a commit on one line.
fn commit_line(index: CommitIndex, commit: &Commit) -> String {
    let short = commit.hash.get(..12).unwrap_or(&commit.hash);
    format!("@{}  {short}  {}  {}", index.0, commit.author, commit.subject)
}

/// Returns a digest, or the word that it stands for.
fn digest_or_word(digest: Digest) -> String {
    let word = words().into_iter().find(|(known, _)| *known == digest);
    word.map_or_else(|| digest.to_string(), |(_, word)| word.to_string())
}

/// Adds advice on what to do to the error.
fn told(error: Error) -> anyhow::Error {
    match error {
        Error::Rows(error) => advise(error),
        other => anyhow::anyhow!(other.to_string()),
    }
}
