//! The rows of one table of traces: which row is written by what, in which order, and
//! what is cached between calls.
//!
//! `settings` creates and opens a table. `registration` assigns indexes to commits.
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
mod tile_rows;

use std::sync::Arc;

pub use commits::{COMMITS_MAX, Commit};
pub use copy::{Copied, copy};
pub use grid::{Cells, Grid, GridTrace, Window};
pub use history::History;
pub use labels::{Label, Labelled, Labels, NewLabel};
use parking_lot::Mutex;
pub use put::{Entry, Put, Stored, Value};
pub use registration::NewCommit;
pub use scan::{TileTrace, Tiles};
pub use settings::Settings;
use stele_bigtable_client::Table;
use tokio::sync::Semaphore;

use crate::tile::{CommitIndex, Offset, Tile};

/// The maximum number of concurrent calls of one store.
const CALLS_MAX: usize = 64;

/// One table of traces. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    table: Table,
    settings: Settings,
    calls: Arc<Semaphore>,
    sets: Mutex<param_sets::Cache>,
    digests: digest_map::Known,
    ids: digest_ids::Pool,
    rows: Mutex<tile_rows::Remembered>,
    marked: Mutex<listing::Marked>,
    commits: Mutex<commits::Found>,
}

impl Store {
    fn new(table: Table, settings: Settings) -> Store {
        Store {
            inner: Arc::new(Inner {
                table,
                settings,
                calls: Arc::new(Semaphore::new(CALLS_MAX)),
                sets: Mutex::default(),
                digests: digest_map::Known::default(),
                ids: digest_ids::Pool::default(),
                rows: Mutex::default(),
                marked: Mutex::default(),
                commits: Mutex::default(),
            }),
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The table's id, without project and instance.
    pub fn id(&self) -> &str {
        self.table().name().rsplit('/').next().unwrap_or_default()
    }

    fn table(&self) -> &Table {
        &self.inner.table
    }

    fn shards(&self) -> u8 {
        self.settings().shards
    }

    /// Returns the tile of a commit and the commit's offset in it.
    pub fn tile_of(&self, index: CommitIndex) -> (Tile, Offset) {
        Tile::of(index, self.settings().tile)
    }
}

/// Returns the current time in microseconds, rounded down to milliseconds as required
/// for cells.
pub fn now_micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    i64::try_from(millis).unwrap_or(i64::MAX / 1000).saturating_mul(1000)
}
