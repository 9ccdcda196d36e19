//! The tables of traces that a server serves: opened on first use and kept open.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use stele_bigtable_client::Client;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer::{Answer, Answered};
use super::request::{Args, json as json_body};
use crate::error::{Error, Result};
use crate::memory::{Memory, RequestMemory};
use crate::store::{Store, TableSettings};

/// The maximum number of concurrent requests that read grids or store results.
const HEAVY_MAX: usize = 4;
/// The maximum number of open tables.
const OPEN_MAX: usize = 1000;

#[derive(Clone)]
pub struct Tables {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    open: Mutex<HashMap<String, Store>>,
    heavy: Arc<Semaphore>,
    memory: Memory,
}

impl Tables {
    pub fn new(client: Client, memory: Memory) -> Tables {
        let (open, heavy) = (Mutex::default(), Arc::new(Semaphore::new(HEAVY_MAX)));
        Tables { shared: Arc::new(Shared { client, open, heavy, memory }) }
    }

    pub async fn open(&self, id: &str) -> Result<Store> {
        if let Some(store) = self.shared.open.lock().get(id) {
            return Ok(store.clone());
        }
        check_id(id)?;
        let store = Store::open(&self.shared.client, id).await?;
        self.cache(id, store.clone());
        Ok(store)
    }

    fn cache(&self, id: &str, store: Store) {
        let mut open = self.shared.open.lock();
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(id.into(), store);
    }

    /// Waits for a permit to do heavy work. A holder must not wait for its client,
    /// because a slow client would block all others.
    pub async fn heavy(&self) -> OwnedSemaphorePermit {
        let turn = self.shared.heavy.clone().acquire_owned().await;
        turn.expect("the semaphore is never closed")
    }

    /// Returns a reservation for a grid that is about to be read.
    pub fn grid_memory(&self) -> RequestMemory {
        RequestMemory::of(&self.shared.memory.grids)
    }

    /// Returns a reservation for a body that is about to be received.
    pub fn body_memory(&self) -> RequestMemory {
        RequestMemory::of(&self.shared.memory.bodies)
    }
}

/// The table named in the path.
pub struct Named(pub Store);

impl FromRequestParts<Tables> for Named {
    type Rejection = Answer;

    async fn from_request_parts(parts: &mut Parts, tables: &Tables) -> Result<Named, Answer> {
        let id = path_param(parts, "table").await?;
        Ok(Named(tables.open(&id).await?))
    }
}

/// Returns a parameter of the path.
pub async fn path_param(parts: &mut Parts, wanted: &str) -> Result<String, Answer> {
    let params = RawPathParams::from_request_parts(parts, &()).await;
    let params = params.map_err(|_| Error::invalid("the path is not valid UTF-8"))?;
    let found = params.iter().find(|(name, _)| *name == wanted);
    let found = found.ok_or_else(|| Error::invalid(format!("the path has no {wanted}")))?;
    Ok(found.1.to_string())
}

/// Checks that a table id is valid for Bigtable.
fn check_id(id: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if (1..=50).contains(&id.len()) && id.bytes().all(allowed) && !id.starts_with(['.', '-']) {
        return Ok(());
    }
    Err(Error::invalid("invalid table name: use 1 to 50 letters, digits, _, . or -"))
}

pub async fn list(State(tables): State<Tables>, args: Args) -> Answered {
    args.only(&[])?;
    let ids = tables.shared.client.list_tables().await.map_err(Error::from)?;
    let mut found = Vec::new();
    for id in ids {
        match tables.open(&id).await {
            Ok(store) => found.push(json!({"table": id, "settings": store.settings()})),
            // A table that holds no traces.
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Answer::ok(json!({"tables": found})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTable {
    table: String,
    tile: Option<u16>,
    shards: Option<u8>,
    test_key: Option<String>,
}

pub async fn init(State(tables): State<Tables>, headers: HeaderMap, body: Body) -> Answered {
    let new: NewTable = json_body(&tables, &headers, body).await?;
    check_id(&new.table)?;
    let default = TableSettings::default();
    let settings = TableSettings {
        tile: new.tile.unwrap_or(default.tile),
        shards: new.shards.unwrap_or(default.shards),
        test_key: new.test_key.unwrap_or(default.test_key),
        ..default
    };
    let store = Store::init(&tables.shared.client, &new.table, settings).await?;
    let settings = json!(store.settings());
    tables.cache(&new.table, store);
    Ok(Answer::created(json!({"table": new.table, "settings": settings})))
}

pub async fn show(Named(store): Named, args: Args) -> Answered {
    args.only(&[])?;
    let head =
        store.head().await?.map(|(index, commit)| super::query::commit(index, Some(&commit)));
    Ok(Answer::ok(json!({"table": store.id(), "settings": store.settings(), "head": head})))
}
