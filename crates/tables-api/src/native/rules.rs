//! The tables that the service serves, and the mutations that they accept. The layer
//! that defines tables knows more about their cells than the engine's schema.

use std::sync::Arc;

use stele_engine::schema::Schema;
use stele_engine::{Mutation, TableId};
use stele_tables::Tables;
use tonic::Status;

use crate::error::Error;

/// Checks one mutation. The error says what is wrong with it.
pub type MutationCheck = Arc<dyn Fn(&Mutation<'_>) -> Result<(), String> + Send + Sync>;

/// A table as it is now.
#[derive(Clone)]
pub struct ServedTable {
    pub id: TableId,
    /// Commits that `check` has accepted are applied only under this schema.
    pub schema: Arc<Schema>,
    pub check: MutationCheck,
}

/// Decides which tables are served.
pub trait TableRules: Send + Sync {
    /// Refuses a call with these extensions that names a table it may not use.
    fn check_access(&self, extensions: &http::Extensions, table: &str) -> Result<(), Status>;

    /// Returns a table. Neither blocks nor waits.
    fn table(&self, name: &str) -> Result<ServedTable, Status>;

    /// Reads the schema of a table again; keeps the previous one if it is invalid. May
    /// wait for a change in progress.
    fn reload(&self, name: &str) -> Result<ServedTable, Status>;
}

/// Serves all tables of a store to everybody.
pub struct AllTables(pub Tables);

impl TableRules for AllTables {
    fn check_access(&self, _: &http::Extensions, _: &str) -> Result<(), Status> {
        Ok(())
    }

    fn table(&self, name: &str) -> Result<ServedTable, Status> {
        let unknown = || Error::UnknownTable(excerpt(name).to_string());
        let id = self.0.table(name).ok_or_else(unknown)?;
        let schema = self.0.schema(id).map_err(Error::from)?;
        Ok(ServedTable { id, schema, check: Arc::new(|_| Ok(())) })
    }

    fn reload(&self, name: &str) -> Result<ServedTable, Status> {
        self.table(name)
    }
}

/// Returns a prefix of client-supplied text, short enough for an error message.
fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(200)]
}
