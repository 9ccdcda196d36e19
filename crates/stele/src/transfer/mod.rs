//! `stele import` and `stele export`: rows of a table as CSV or lines of JSON.
//!
//! An import reads records (`records`) and turns each into mutations of one row
//! (`mapping`, `value`). Rows are written in batches, several at a time (`import`). How far
//! it came is in a file beside the source (`checkpoint`), from which the same command
//! continues; records that cannot be imported go to another file (`rejects`). `export`
//! writes what `import` reads.

mod checkpoint;
mod export;
mod import;
mod mapping;
mod records;
mod rejects;
mod value;

use std::path::Path;

use clap::ValueEnum;

pub use export::Export;
pub use import::Import;

/// The columns of a file with one cell per record.
const CELL_COLUMNS: [&str; 5] = ["key", "family", "qualifier", "timestamp", "value"];

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma-separated values with a header.
    Csv,
    /// One JSON object per line.
    Jsonl,
}

impl Format {
    /// Returns the given format, or that of the file's extension.
    fn of(given: Option<Format>, file: &Path) -> anyhow::Result<Format> {
        let extension = file.extension().and_then(|extension| extension.to_str());
        match (given, extension) {
            (Some(format), _) => Ok(format),
            (None, Some("csv")) => Ok(Format::Csv),
            (None, Some("jsonl" | "ndjson" | "json")) => Ok(Format::Jsonl),
            (None, Some("parquet")) => anyhow::bail!("Parquet files are not supported"),
            (None, _) => anyhow::bail!(
                "cannot tell the format of {}: name it with --format csv or --format jsonl",
                file.display()
            ),
        }
    }
}
