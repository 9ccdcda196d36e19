//! `stele traces`: one result per commit and configuration. Each command connects to the
//! Bigtable that holds the table (`table`); only `serve` is a server. `text` formats what
//! several commands print.

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
mod table;
mod text;
mod trace;

use clap::Subcommand;

use self::table::TableArgs;
use self::text::{Commits, commit_line, digest_name, user_error};
use crate::Outcome;

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
