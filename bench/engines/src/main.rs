//! Benchmarks of Stele's engine against other embedded engines, and of features that
//! only Stele has.
//!
//! `compare` runs all engines through the same workloads; `own` measures features that
//! only Stele has; `recover` times the replay of a long log; `load` writes for a long
//! time and plots the throughput; `sequential` loads keys in order.
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
    /// Directory for data, on a disk rather than in memory; cleaned up afterwards.
    #[arg(long, global = true, default_value = ".")]
    dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run all engines through the same workloads and print ratios.
    Compare(compare::CompareArgs),
    /// Run one engine, in its own process.
    #[command(hide = true)]
    Course(compare::CourseArgs),
    /// Measure features that only Stele's engine has.
    Own(own::OwnArgs),
    /// Replay a long log after a crash.
    Recover(recover::RecoverArgs),
    /// Write or replay the log, in its own process.
    #[command(hide = true)]
    RecoverStep(recover::RecoverStepArgs),
    /// Load a large amount of data and plot the throughput.
    Load(load::LoadArgs),
    /// Load keys in ascending order and count the bytes written.
    Sequential(sequential::SequentialArgs),
    /// Run one sequential load, in its own process.
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
