//! Creates and opens a table of traces. Row names depend on the settings, so they are
//! stored when the table is created and checked whenever it is opened.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stele_bigtable_client::{Client, Filter, GcRule, Mutation, NewTable};
use stele_grpc::Pending;
use tonic::Code;

use super::Store;
use crate::error::{Error, Result};
use crate::row_name::{self, SHARDS, SHARDS_MAX};
use crate::tile::{TILE_COMMITS, TILE_COMMITS_MAX};

const FAMILY: &str = "S";
const COLUMN: &[u8] = b"settings";
const VERSION: u32 = 1;
/// The number of versions of a label that are kept as its history.
const LABEL_VERSIONS: u32 = 100;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSettings {
    pub version: u32,
    /// Number of commits in a tile.
    pub tile: u16,
    pub shards: u8,
    /// The key whose value is the test that digests are triaged for.
    pub test_key: String,
}

impl Default for TableSettings {
    fn default() -> TableSettings {
        let test_key = "name".into();
        TableSettings { version: VERSION, tile: TILE_COMMITS, shards: SHARDS, test_key }
    }
}

impl TableSettings {
    fn check(&self) -> Result<()> {
        if self.version != VERSION {
            return Err(Error::Conflict(format!(
                "the table has format version {}, but this program supports only version {VERSION}",
                self.version
            )));
        }
        if self.tile == 0 || self.tile > TILE_COMMITS_MAX {
            return Err(Error::invalid(format!(
                "invalid tile size {}: use 1 to {TILE_COMMITS_MAX} commits",
                self.tile
            )));
        }
        if self.shards == 0 || self.shards > SHARDS_MAX {
            return Err(Error::invalid(format!(
                "invalid number of shards {}: use 1 to {SHARDS_MAX}",
                self.shards
            )));
        }
        if self.test_key.trim().is_empty() {
            return Err(Error::invalid("test_key is blank"));
        }
        Ok(())
    }

    fn from_bytes(bytes: &[u8]) -> Result<TableSettings> {
        let settings: TableSettings = serde_json::from_slice(bytes)
            .map_err(|error| Error::damaged(row_name::SETTINGS.as_bytes(), error.to_string()))?;
        settings.check()?;
        Ok(settings)
    }
}

/// Returns the column families of a table of traces.
pub(super) fn families() -> BTreeMap<String, GcRule> {
    let one = ["S", "O", "I", "D", "T", "V", "P", "M", "X", "C"];
    let mut families: BTreeMap<_, _> =
        one.map(|name| (name.to_string(), GcRule::MaxVersions(1))).into();
    families.insert("E".into(), GcRule::MaxVersions(LABEL_VERSIONS));
    families
}

/// Creates the table unless it exists.
pub(super) async fn create_table(client: &Client, id: &str, shards: u8) -> Result<()> {
    let splits = row_name::splits(shards).map(Bytes::from).collect();
    // The rows of a shard are similar, so they compress well.
    let table = NewTable { families: families(), splits, zstd: true, ..NewTable::new(id) };
    match client.create_table(table).await {
        Err(error) if error.code() != Code::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

impl Store {
    /// Creates a table, or opens it if it has the same settings already.
    pub fn init<'a>(
        client: &'a Client,
        id: &'a str,
        settings: TableSettings,
    ) -> Pending<'a, Result<Store>> {
        Box::pin(async move {
            settings.check()?;
            create_table(client, id, settings.shards).await?;
            let text = serde_json::to_string(&settings)
                .map_err(|error| Error::invalid(format!("invalid settings: {error}")))?;
            let set = Mutation::set_at(FAMILY, COLUMN, 0, text);
            let existing = Filter::column(FAMILY, COLUMN);
            client
                .table(id)?
                .check_and_mutate(row_name::SETTINGS, Some(existing), [], [set])
                .await
                .map_err(|error| not_of_traces(id, error))?;
            let store = Store::open(client, id).await?;
            if *store.settings() != settings {
                return Err(Error::Conflict(format!(
                    "table {id} exists with tiles of {} commits, {} shards and test key {:?}: these \
                 cannot be changed",
                    store.settings().tile,
                    store.settings().shards,
                    store.settings().test_key
                )));
            }
            Ok(store)
        })
    }

    /// Opens a table that was created by `init`.
    pub fn open<'a>(client: &'a Client, id: &'a str) -> Pending<'a, Result<Store>> {
        Box::pin(async move {
            let table = client.table(id)?;
            let row = table.read_row(row_name::SETTINGS, Some(Filter::latest())).await;
            let row = row.map_err(|error| not_of_traces(id, error))?;
            let value = row.as_ref().and_then(|row| row.value(FAMILY, COLUMN));
            let value = value.ok_or_else(|| {
                Error::NotFound(format!(
                    "table {id} is not a table of traces: run `stele traces init` to make it one"
                ))
            })?;
            Ok(Store::new(table, TableSettings::from_bytes(value)?))
        })
    }
}

fn not_of_traces(id: &str, error: stele_bigtable_client::Error) -> Error {
    if error.is_not_found() {
        return Error::NotFound(format!(
            "table {id} of traces not found: create it with `stele traces init`"
        ));
    }
    error.into()
}
