//! Measures the memory of a million unflushed cells.

use std::path::Path;

use anyhow::Result;

use super::scans::fill;
use super::{Finding, Scale};
use crate::ours::{Ours, options};

/// Returns the bytes of the memory budget that unflushed cells use.
pub fn per_million_cells(scale: &Scale, dir: &Path) -> Result<Vec<Finding>> {
    let mut options = options();
    options.memory.budget_bytes = 8 << 30;
    options.flush.fragment_bytes = 4 << 30;
    let ours = Ours::open_with(dir, options)?;
    let cells = scale.of(1_000_000);
    fill(&ours, cells)?;
    let bytes = ours.store.stats().memory_used_bytes as f64;
    Ok(vec![
        Finding::new(format!("memory of {cells} cells of 16 + 100 B"), bytes, "B"),
        Finding::new("overhead per cell, without key and value", bytes / cells as f64 - 116.0, "B"),
    ])
}
