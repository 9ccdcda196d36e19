//! The rows of one table of traces: who writes which row, in which order, and
//! what may be remembered between calls.
//!
//! `settings` make and open a table. `registration` gives commits their
//! indexes. `put` writes results: it needs commits
//! (`commits`), the tile's ordered param set (`param_sets`) and digest ids
//! (`digest_map`, `digest_ids`), marks the commit and lists the ids
//! (`listing`), and remembers the rows it has met (`tile_rows`). `scan` reads the traces of a tile, `grid` lays tiles side by
//! side, `history` follows one trace through all tiles, `options` tell more of
//! each. `labels` keep what
//! people decided about digests. `copy` moves a table elsewhere.

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
use stele_bigtable::client::Table;
use tokio::sync::Semaphore;

use crate::tile::{CommitIndex, Offset, Tile};

/// Calls of one store that may be under way at once.
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

    /// The tile of a commit and the commit's place in it.
    pub fn tile_of(&self, index: CommitIndex) -> (Tile, Offset) {
        Tile::of(index, self.settings().tile)
    }
}

/// A time that cells may have, in microseconds: now, to the millisecond.
pub fn now_micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = since.map_or(0, |since| since.as_millis());
    i64::try_from(millis).unwrap_or(i64::MAX / 1000).saturating_mul(1000)
}
