//! `stele traces`: one result per commit per configuration. Each command
//! speaks to the Bigtable that holds the table; only `serve` serves.

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
use crate::connection::{Connection, advise};

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

/// Which table of traces, and how to tell what was found.
#[derive(Args, Clone)]
pub struct Place {
    /// The table of traces.
    table: String,
    /// JSON for programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    _own: Own,
}

/// Ends the server's part of the help: what follows is the command's own.
#[derive(Args, Clone)]
#[command(next_help_heading = None::<&str>)]
struct Own {}

impl Place {
    /// Opens the table and does `work` with it.
    fn run<T>(&self, work: impl AsyncFnOnce(Store) -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.connection.clone().within(INSTANCE).run(async |client| {
            let store = Store::open(&client, &self.table).await.map_err(told)?;
            work(store).await
        })
    }
}

/// A commit on a line of its own.
fn commit_line(index: CommitIndex, commit: &Commit) -> String {
    let short = commit.hash.get(..12).unwrap_or(&commit.hash);
    format!("@{}  {short}  {}  {}", index.0, commit.author, commit.subject)
}

/// A digest, or the word that it stands for.
fn digest_or_word(digest: Digest) -> String {
    let word = words().into_iter().find(|(known, _)| *known == digest);
    word.map_or_else(|| digest.to_string(), |(_, word)| word.to_string())
}

/// The error with what to do about it.
fn told(error: Error) -> anyhow::Error {
    match error {
        Error::Rows(error) => advise(error),
        other => anyhow::anyhow!(other.to_string()),
    }
}
