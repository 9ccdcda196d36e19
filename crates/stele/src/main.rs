//! The one binary: command line in, exit code out.
//!
//! 0 is success, 1 is damage found in a store or a row that is not there, 2 is
//! a wrong command or an input, output or call that failed.
#![forbid(unsafe_code)]

mod catalogue;
mod connection;
mod engine;
mod escape;
mod inject;
mod metastore;
mod name;
mod output;
mod private;
mod reach;
mod rows;
mod serve;
mod table;
mod timestamp;
mod traces;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;
use tracing_subscriber::EnvFilter;

/// Gives freed memory back to the system sooner than the system's own does,
/// and costs a server with many threads less.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A Bigtable you own.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a store: the Bigtable API over gRPC, and health, metrics and a status page over HTTP.
    #[command(args_override_self = true)]
    Serve(serve::Flags),
    /// Stand in for Google's Bigtable emulator, with its flags; nothing is kept.
    #[command(disable_help_flag = true)]
    Emulator {
        /// -host HOST, -port PORT, -address HOST:PORT
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
        flags: Vec<String>,
    },
    /// Make, show, change and drop tables.
    #[command(subcommand, arg_required_else_help = true)]
    Table(table::Command),
    Read(rows::Read),
    Lookup(rows::Lookup),
    Set(rows::Set),
    Delete(rows::Delete),
    Count(rows::Count),
    /// Make, fill, read and drop catalogues: ordered key-value indices.
    #[command(subcommand, arg_required_else_help = true)]
    Catalogue(catalogue::Command),
    /// Keep one result per commit per configuration, and ask what changed.
    #[command(subcommand, arg_required_else_help = true)]
    Traces(traces::Command),
    /// Mount servers on names, and find them by name.
    #[command(subcommand, arg_required_else_help = true)]
    Name(name::Command),
    /// Keys, transactions, watches, sessions and locks of the metastore.
    #[command(subcommand, arg_required_else_help = true)]
    Metastore(metastore::Command),
    /// Make a running server delay calls or fail them on purpose, to test how clients retry.
    #[command(subcommand, arg_required_else_help = true)]
    Inject(inject::Command),
    /// Look into the files of a storage engine, or measure it.
    #[command(subcommand, arg_required_else_help = true)]
    Engine(engine::Command),
}

/// How a command that could be carried out ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Sound,
    Damaged,
    Absent,
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    // Servers set up their own logs.
    if !matches!(command, Command::Serve(_) | Command::Emulator { .. }) {
        log_warnings();
    }
    let result = match command {
        Command::Serve(flags) => serve::run(flags),
        Command::Emulator { flags } => serve::emulator::run(&flags),
        Command::Table(command) => table::run(command),
        Command::Read(read) => read.run(),
        Command::Lookup(lookup) => lookup.run(),
        Command::Set(set) => set.run(),
        Command::Delete(delete) => delete.run(),
        Command::Count(count) => count.run(),
        Command::Catalogue(command) => catalogue::run(command),
        Command::Traces(command) => traces::run(command),
        Command::Name(command) => name::run(command),
        Command::Metastore(command) => metastore::run(command),
        Command::Inject(command) => inject::run(command),
        Command::Engine(command) => engine::run(command),
    };
    match result {
        Ok(Outcome::Sound) => ExitCode::SUCCESS,
        Ok(Outcome::Damaged | Outcome::Absent) => ExitCode::from(1),
        // Whoever read the output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stele: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// What tools have to say beside their output.
fn log_warnings() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
