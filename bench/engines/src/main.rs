//! Stele's engine beside its rivals, and on its own where nobody compares.
//!
//! `compare` runs all engines through the same workloads; `own` measures what
//! only ours has; `recover` times the replay of a long log; `load` writes for
//! a long time and plots how steady that is; `sequential` loads keys in order.
#![deny(unsafe_code)]

mod compare;
mod data;
mod engine;
mod load;
mod meter;
mod ours;
mod own;
mod recover;
mod report;
mod rivals;
mod sequential;
mod workload;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about, version)]
struct Cli {
    /// Where data is written; a disk, not memory. Left as it was found.
    #[arg(long, global = true, default_value = ".")]
    dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// All engines through the same workloads, with ratios.
    Compare(compare::CompareArgs),
    /// One engine, in a process of its own.
    #[command(hide = true)]
    Course(compare::CourseArgs),
    /// What only our engine is asked for.
    Own(own::OwnArgs),
    /// Replays a long log after a crash.
    Recover(recover::RecoverArgs),
    /// One side of the crash, in a process of its own.
    #[command(hide = true)]
    RecoverStep(recover::RecoverStepArgs),
    /// Loads much and plots how steady it goes.
    Load(load::LoadArgs),
    /// Loads keys in ascending order, and counts the bytes written for it.
    Sequential(sequential::SequentialArgs),
    /// One such load, in a process of its own.
    #[command(hide = true)]
    SequentialStep(sequential::SequentialStepArgs),
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match cli.command {
        Command::Compare(args) => args.run(&cli.dir),
        Command::Course(args) => args.run(),
        Command::Own(args) => args.run(&cli.dir),
        Command::Recover(args) => args.run(&cli.dir),
        Command::RecoverStep(args) => args.run(),
        Command::Load(args) => args.run(&cli.dir),
        Command::Sequential(args) => args.run(&cli.dir),
        Command::SequentialStep(args) => args.run(),
    }
}
