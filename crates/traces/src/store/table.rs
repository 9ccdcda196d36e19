//! One table of traces and what is cached of it.

use std::sync::Arc;

use parking_lot::Mutex;
use stele_bigtable_client::Table;
use tokio::sync::Semaphore;

use super::settings::TableSettings;
use super::{commits, digest_ids, digest_map, listing, param_sets, tile_rows};
use crate::tile::{CommitIndex, Offset, Tile};

/// The maximum number of concurrent calls of one store.
const CALLS_MAX: usize = 64;

/// One table of traces. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) table: Table,
    pub(super) settings: TableSettings,
    pub(super) calls: Arc<Semaphore>,
    pub(super) sets: Mutex<param_sets::Cache>,
    pub(super) digests: digest_map::Known,
    pub(super) ids: digest_ids::Pool,
    pub(super) rows: Mutex<tile_rows::Remembered>,
    pub(super) marked: Mutex<listing::Marked>,
    pub(super) commits: Mutex<commits::Found>,
}

impl Store {
    pub(super) fn new(table: Table, settings: TableSettings) -> Store {
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

    pub fn settings(&self) -> &TableSettings {
        &self.inner.settings
    }

    /// Returns the table's id without project and instance.
    pub fn id(&self) -> &str {
        self.table().name().rsplit('/').next().unwrap_or_default()
    }

    pub(super) fn table(&self) -> &Table {
        &self.inner.table
    }

    pub(super) fn shards(&self) -> u8 {
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
