//! The tables that all servers of a cluster have: changes go to the directory, and what the
//! directory has is adopted by the store and by the API of this server.

use std::sync::{Arc, OnceLock};

use stele_bigtable::table::{SharedTables, Tables};
use stele_bigtable::{Error, Result};
use stele_cluster::{ChangeError, Directory, ListedTable, TableSink};
use stele_engine::TableId;
use stele_engine::schema::Schema;
use stele_tables::{TableEntry, TabletServer};
use tokio::runtime::Handle;
use tonic::Status;

/// Adopts the tables of the directory.
pub struct Sink {
    server: TabletServer,
    registry: OnceLock<Arc<Tables>>,
}

impl Sink {
    pub fn new(server: TabletServer) -> Sink {
        Sink { server, registry: OnceLock::new() }
    }

    /// Publishes tables to requests from now on.
    pub fn publish_to(&self, registry: Arc<Tables>) {
        // Set once, when the server starts.
        let _ = self.registry.set(registry);
    }
}

impl TableSink for Sink {
    fn adopt(&self, table: &ListedTable) -> stele_engine::Result<()> {
        let ListedTable { id, name, schema } = table.clone();
        self.server.adopt(TableEntry { id, name, schema })
    }

    fn forget(&self, table: TableId) -> stele_engine::Result<()> {
        self.server.forget(table)
    }

    fn adopted(&self) {
        if let Some(registry) = self.registry.get()
            && let Err(error) = registry.refresh()
        {
            tracing::error!(%error, "a table of the cluster cannot be served");
        }
    }
}

/// Makes changes in the directory, from threads that may block.
pub struct Shared {
    pub server: TabletServer,
    pub directory: Arc<Directory>,
    pub runtime: Handle,
    pub store_id: u64,
}

impl SharedTables for Shared {
    fn store_id(&self) -> u64 {
        self.store_id
    }

    fn create(&self, name: &str, schema: Schema, splits: &[Vec<u8>]) -> Result<()> {
        let rows = |id| self.server.rows_of_new_table(id, &schema, splits);
        let created = self.runtime.block_on(self.directory.create(name, &schema, rows));
        created.map(drop).map_err(to_error)
    }

    fn alter(&self, table: TableId, schema: Schema) -> Result<()> {
        self.runtime.block_on(self.directory.alter(table, schema)).map_err(to_error)
    }

    fn drop_table(&self, table: TableId) -> Result<()> {
        self.runtime.block_on(self.directory.drop_table(table)).map_err(to_error)
    }
}

fn to_error(error: ChangeError) -> Error {
    match error {
        ChangeError::Exists(name) => Error::Exists(format!("Table already exists: {name}")),
        ChangeError::NotFound(name) => Error::NotFound(format!("Table not found: {name}")),
        ChangeError::Conflict(_) => Error::Aborted(error.to_string()),
        ChangeError::Unsupported(what) => Error::Unimplemented(what),
        ChangeError::Engine(error) => Error::Engine(error),
        ChangeError::Unreachable(..) | ChangeError::NotSeen { .. } => {
            Error::from(Status::unavailable(error.to_string()))
        }
    }
}
