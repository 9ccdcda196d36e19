//! `stele engine`: tools for the files of the storage engine, and its benchmark.

mod bench;
mod damage;
mod dump_config;
mod dump_fragment;
mod dump_log;
mod verify;

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub use self::dump_config::ConfigPrinter;
use crate::Outcome;

#[derive(Subcommand)]
pub enum Command {
    /// Check every checksum, order and reference of a store that is not in use.
    Verify {
        /// Directory of the store.
        dir: PathBuf,
        /// The object store that has its files, if it has moved since the server was
        /// last started.
        #[arg(long, value_name = "URL")]
        store: Option<String>,
        #[command(flatten)]
        format: Format,
    },
    /// Show the records of a log.
    DumpLog {
        /// Directory of a store, directory of segments, or a single segment.
        path: PathBuf,
        /// Show the mutations of each commit too.
        #[arg(long)]
        cells: bool,
        #[command(flatten)]
        format: Format,
    },
    /// Show the contents of a fragment file.
    DumpFragment {
        file: PathBuf,
        /// Show every entry too.
        #[arg(long)]
        cells: bool,
        #[command(flatten)]
        format: Format,
    },
    /// Show the configuration of a store that is not in use: tables, tablets and files.
    DumpConfig {
        /// Directory of the store.
        dir: PathBuf,
        #[command(flatten)]
        format: Format,
    },
    /// Benchmark the engine on this machine, in a temporary directory.
    Bench(bench::Options),
}

#[derive(Args)]
pub struct Format {
    /// Print one JSON object (or one per line) instead of tables.
    #[arg(long)]
    json: bool,
}

pub fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Verify { dir, store, format } => verify::run(&dir, store.as_deref(), format.json),
        Command::DumpLog { path, cells, format } => dump_log::run(&path, cells, format.json),
        Command::DumpFragment { file, cells, format } => {
            dump_fragment::run(&file, cells, format.json)
        }
        Command::DumpConfig { dir, format } => dump_config::run(&dir, format.json),
        Command::Bench(options) => bench::run(&options),
    }
}
