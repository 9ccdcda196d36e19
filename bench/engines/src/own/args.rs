//! The command that runs the measurements.

use std::path::Path;

use anyhow::{Result, ensure};
use clap::Args;

use super::{Finding, compaction, memory, scans, seeks, tablets};

type Measurement = fn(&Scale, &Path) -> Result<Vec<Finding>>;

const MEASUREMENTS: [(&str, Measurement); 9] = [
    ("versions", seeks::versions),
    ("columns", seeks::columns),
    ("tombstones", seeks::tombstones),
    ("reverse", scans::reverse),
    ("groups", scans::groups),
    ("compaction", compaction::reads_while_compacting),
    ("memory", memory::per_million_cells),
    ("tablets", tablets::many),
    ("splits", tablets::splits),
];

#[derive(Args)]
pub struct OwnArgs {
    /// Measurements to run, separated by commas; all if omitted.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Divide the data sizes by this.
    #[arg(long, default_value_t = 1)]
    shrink: u64,
    /// Also print every finding as a line of JSON.
    #[arg(long)]
    json: bool,
}

/// The data sizes of the measurements.
pub struct Scale {
    shrink: u64,
}

impl Scale {
    pub fn of(&self, full: u64) -> u64 {
        (full / self.shrink.max(1)).max(100)
    }
}

impl OwnArgs {
    pub fn run(&self, dir: &Path) -> Result<()> {
        for name in &self.only {
            let known = MEASUREMENTS.map(|(name, _)| name);
            ensure!(
                known.contains(&name.as_str()),
                "unknown measurement {name:?}: use {}",
                known.join(", ")
            );
        }
        let scale = Scale { shrink: self.shrink };
        let mut rows = Vec::new();
        for (name, measurement) in MEASUREMENTS {
            if !self.only.is_empty() && !self.only.iter().any(|chosen| chosen == name) {
                continue;
            }
            eprintln!("measuring {name}");
            let data = tempfile::tempdir_in(dir)?;
            for finding in measurement(&scale, data.path())? {
                if self.json {
                    println!("{}", serde_json::to_string(&finding)?);
                }
                rows.push(finding.row());
            }
        }
        println!("\n| measurement | value | at most | |\n|---|---|---|---|");
        rows.iter().for_each(|row| println!("{row}"));
        Ok(())
    }
}
