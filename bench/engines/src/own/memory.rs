//! What a million cells cost in memory before they are flushed.

use std::path::Path;

use anyhow::Result;

use super::scans::fill;
use super::{Finding, Scale};
use crate::ours::{Ours, options};

/// Bytes of the memory budget in use by unflushed cells.
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
        Finding::new("of it beside key and value, per cell", bytes / cells as f64 - 116.0, "B"),
    ])
}
