//! What only our engine is asked for, without a rival beside it: seeks in wide
//! rows, reverse scans, locality groups, reads during compaction, memory.

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

/// One number with its meaning.
#[derive(Serialize)]
pub struct Finding {
    pub what: String,
    pub value: f64,
    pub unit: &'static str,
    /// What the value should not go above, where something was promised.
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
    /// Measurements to take, with commas between them; all if none is named.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Divide the sizes by this.
    #[arg(long, default_value_t = 1)]
    shrink: u64,
    /// Print every finding as a line of JSON too.
    #[arg(long)]
    json: bool,
}

/// How large the data of the measurements is.
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
            ensure!(known.contains(&name.as_str()), "measurements are {}", known.join(", "));
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
