//! Measurements of features that only Stele's engine has: seeks in wide rows, reverse
//! scans, locality groups, reads during compaction, memory.

pub mod compaction;
pub mod counting;
pub mod memory;
pub mod scans;
pub mod seeks;

use std::path::Path;

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::report::grouped;

/// A measured value and its description.
#[derive(Serialize)]
pub struct Finding {
    pub what: String,
    pub value: f64,
    pub unit: &'static str,
    /// The upper bound of the value, if there is one.
    pub at_most: Option<f64>,
}

impl Finding {
    pub fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Finding {
        Finding { what: what.into(), value, unit, at_most: None }
    }

    pub fn at_most(mut self, limit: f64) -> Finding {
        self.at_most = Some(limit);
        self
    }

    fn row(&self) -> String {
        let text = |value: f64| {
            if value >= 1_000.0 { grouped(value) } else { format!("{value:.2}") }
        };
        let (limit, word) = match self.at_most {
            None => (String::new(), ""),
            Some(limit) if self.value <= limit => (text(limit), "met"),
            Some(limit) => (text(limit), "**missed**"),
        };
        format!("| {} | {} {} | {limit} | {word} |", self.what, text(self.value), self.unit)
    }
}

type Measurement = fn(&Scale, &Path) -> Result<Vec<Finding>>;

const MEASUREMENTS: [(&str, Measurement); 7] = [
    ("versions", seeks::versions),
    ("columns", seeks::columns),
    ("tombstones", seeks::tombstones),
    ("reverse", scans::reverse),
    ("groups", scans::groups),
    ("compaction", compaction::reads_while_compacting),
    ("memory", memory::per_million_cells),
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
