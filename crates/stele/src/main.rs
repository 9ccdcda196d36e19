//! The one binary: command line in, exit code out.
//!
//! 0 is success, 1 is damage found in a store, 2 is a wrong command or an
//! input or output that failed.
#![forbid(unsafe_code)]

mod engine;
mod output;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// A Bigtable you own.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look into the files of a storage engine, or measure it.
    #[command(subcommand, arg_required_else_help = true)]
    Engine(engine::Command),
}

/// How a command that could be carried out ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Sound,
    Damaged,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let result = match cli.command {
        Command::Engine(command) => engine::run(command),
    };
    match result {
        Ok(Outcome::Sound) => ExitCode::SUCCESS,
        Ok(Outcome::Damaged) => ExitCode::from(1),
        // Whoever read the output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stele: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
