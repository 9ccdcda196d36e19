//! `stele engine`: tools for the files of the storage engine, and its benchmark.

mod bench;
mod dump_fragment;
mod dump_log;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::Serialize;
use stele_engine::world::{Disk, Files};
use stele_engine::{Error, Result};

use crate::Outcome;

#[derive(Subcommand)]
pub enum Command {
    /// Check every checksum, order and reference of a store that is not in use.
    Verify {
        /// Directory of the store.
        dir: PathBuf,
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
        Command::Verify { dir, format } => verify::run(&dir, format.json),
        Command::DumpLog { path, cells, format } => dump_log::run(&path, cells, format.json),
        Command::DumpFragment { file, cells, format } => {
            dump_fragment::run(&file, cells, format.json)
        }
        Command::Bench(options) => bench::run(&options),
    }
}

fn files() -> Arc<dyn Files> {
    Arc::new(Disk)
}

/// A damaged location, as a line of a dump.
#[derive(Serialize)]
struct Damage {
    r#type: &'static str,
    path: String,
    offset: u64,
    what: String,
}

impl Damage {
    /// Describes an error about `path`.
    fn of(error: &Error, path: &Path) -> Damage {
        let (path, offset, what) = match error {
            Error::DataLoss { path, offset, what } => (path.as_path(), *offset, what.clone()),
            other => (path, 0, other.to_string()),
        };
        Damage { r#type: "damage", path: path.display().to_string(), offset, what }
    }
}

/// Opens a file to dump. Reports damage that prevents any output on standard error and
/// returns `None`.
fn open_shown<T>(opened: Result<T>) -> anyhow::Result<Option<T>> {
    match opened {
        Ok(shown) => Ok(Some(shown)),
        Err(error @ Error::DataLoss { .. }) => {
            eprintln!("stele: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
