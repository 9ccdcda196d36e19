//! Making and opening a table of traces. The settings are baked into row
//! names, so they are recorded once and checked ever after.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stele_bigtable::client::{Client, Filter, GcRule, Mutation, NewTable};
use tonic::Code;

use super::Store;
use crate::error::{Error, Result};
use crate::row_name::{self, SHARDS, SHARDS_MAX};
use crate::tile::{TILE_COMMITS, TILE_COMMITS_MAX};

const FAMILY: &str = "S";
const COLUMN: &[u8] = b"settings";
const VERSION: u32 = 1;
/// Versions of a label that are kept: its history.
const LABEL_VERSIONS: u32 = 100;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub version: u32,
    /// Commits in a tile.
    pub tile: u16,
    pub shards: u8,
    /// The key whose value is the test that digests are triaged for.
    pub test_key: String,
}

impl Default for Settings {
    fn default() -> Settings {
        let test_key = "name".into();
        Settings { version: VERSION, tile: TILE_COMMITS, shards: SHARDS, test_key }
    }
}

impl Settings {
    fn check(&self) -> Result<()> {
        if self.version != VERSION {
            return Err(Error::Conflict(format!(
                "the table has version {} of the format, and this program knows {VERSION}",
                self.version
            )));
        }
        if self.tile == 0 || self.tile > TILE_COMMITS_MAX {
            return Err(Error::invalid(format!(
                "a tile has 1 to {TILE_COMMITS_MAX} commits, not {}",
                self.tile
            )));
        }
        if self.shards == 0 || self.shards > SHARDS_MAX {
            return Err(Error::invalid(format!(
                "there are 1 to {SHARDS_MAX} shards, not {}",
                self.shards
            )));
        }
        if self.test_key.trim().is_empty() {
            return Err(Error::invalid("test_key is blank"));
        }
        Ok(())
    }

    fn from_bytes(bytes: &[u8]) -> Result<Settings> {
        let settings: Settings = serde_json::from_slice(bytes)
            .map_err(|error| Error::damaged(row_name::SETTINGS.as_bytes(), error.to_string()))?;
        settings.check()?;
        Ok(settings)
    }
}

/// The families of a table of traces.
pub(super) fn families() -> BTreeMap<String, GcRule> {
    let one = ["S", "O", "I", "D", "T", "V", "P", "M", "X", "C"];
    let mut families: BTreeMap<_, _> =
        one.map(|name| (name.to_string(), GcRule::MaxVersions(1))).into();
    families.insert("E".into(), GcRule::MaxVersions(LABEL_VERSIONS));
    families
}

/// Makes the table unless it is there, with or without anything in it.
pub(super) async fn create_table(client: &Client, id: &str) -> Result<()> {
    // The rows of a shard are much alike.
    let table = NewTable { families: families(), zstd: true, ..NewTable::new(id) };
    match client.create_table(table).await {
        Err(error) if error.code() != Code::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

impl Store {
    /// Makes a table, or opens it if it has the same settings already.
    pub async fn init(client: &Client, id: &str, settings: Settings) -> Result<Store> {
        settings.check()?;
        create_table(client, id).await?;
        let text = serde_json::to_string(&settings)
            .map_err(|error| Error::invalid(format!("settings: {error}")))?;
        let set = Mutation::set_at(FAMILY, COLUMN, 0, text);
        let there = Filter::column(FAMILY, COLUMN);
        client
            .table(id)?
            .check_and_mutate(row_name::SETTINGS, Some(there), [], [set])
            .await
            .map_err(|error| not_of_traces(id, error))?;
        let store = Store::open(client, id).await?;
        if *store.settings() != settings {
            return Err(Error::Conflict(format!(
                "table {id} is there with tiles of {} commits, {} shards and test key {:?}: these \
                 cannot be changed",
                store.settings().tile,
                store.settings().shards,
                store.settings().test_key
            )));
        }
        Ok(store)
    }

    /// Opens a table that `init` made.
    pub async fn open(client: &Client, id: &str) -> Result<Store> {
        let table = client.table(id)?;
        let row = table.read_row(row_name::SETTINGS, Some(Filter::latest())).await;
        let row = row.map_err(|error| not_of_traces(id, error))?;
        let value = row.as_ref().and_then(|row| row.value(FAMILY, COLUMN));
        let value = value.ok_or_else(|| {
            Error::NotFound(format!(
                "table {id} holds no traces: make it one with `stele traces init`"
            ))
        })?;
        Ok(Store::new(table, Settings::from_bytes(value)?))
    }
}

fn not_of_traces(id: &str, error: stele_bigtable::client::Error) -> Error {
    if error.is_not_found() {
        return Error::NotFound(format!(
            "there is no table {id} of traces: make it with `stele traces init`"
        ));
    }
    error.into()
}
