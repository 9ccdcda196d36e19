//! The rows of one table of traces: which row is written by what, in which order, and
//! what is cached between calls.
//!
//! A `Store` (`table`) is one table with its caches. `settings` creates and opens a table. `registration` assigns indexes to commits.
//! `put` writes results: it needs commits (`commits`), the tile's ordered param set
//! (`param_sets`) and digest ids (`digest_map`, `digest_ids`), marks the commit and
//! lists the ids (`listing`), and caches the rows it has written (`tile_rows`). `scan`
//! reads the traces of a tile, `grid` joins tiles, `history` follows one trace through
//! all tiles, `options` holds additional properties of traces. `labels` stores the
//! triage of digests. `copy` copies a table.

mod commits;
mod copy;
mod digest_ids;
mod digest_map;
mod grid;
mod history;
mod labels;
mod listing;
mod options;
mod parallel;
mod param_sets;
mod put;
mod registration;
mod scan;
mod settings;
mod table;
mod tile_rows;

pub use commits::{COMMITS_MAX, Commit, IndexedCommit};
pub use copy::{Copied, copy};
pub use grid::{Cells, Grid, GridTrace, Window};
pub use history::History;
pub use labels::{Label, Labelled, Labels, NewLabel};
pub use put::{Entry, Put, Stored, Value};
pub use registration::NewCommit;
pub use scan::{TileTrace, Tiles};
pub use settings::TableSettings;
pub use table::{Store, now_micros};
