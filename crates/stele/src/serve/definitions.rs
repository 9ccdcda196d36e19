//! Locality groups of the tables of the Bigtable API: their definitions change together
//! with their schemas.

use std::sync::Arc;

use stele_bigtable::table::{Definition, Tables};
use stele_engine::schema::Schema;
use stele_tables_api::Definitions;
use tonic::Status;

/// The definitions of the tables that the Bigtable API serves.
pub struct BigtableDefinitions(pub Arc<Tables>);

impl Definitions for BigtableDefinitions {
    fn schema(&self, table: &str) -> Result<Schema, Status> {
        Ok(self.0.get(table)?.definition.grouping()?)
    }

    fn check(&self, table: &str) -> Result<(), Status> {
        // Other tables belong to other services, and have no definitions.
        if table.starts_with("projects/") {
            self.0.reload(table)?;
        }
        Ok(())
    }

    fn create(&self, table: &str, schema: Schema, splits: Vec<Vec<u8>>) -> Result<(), Status> {
        let new = Definition { splits, ..Definition::default() };
        let definition = new.regrouped(table, &schema, false)?.definition;
        self.0.create(table, definition)?;
        Ok(())
    }

    fn alter(&self, table: &str, schema: Schema, drops: bool) -> Result<(), Status> {
        self.0.alter(table, |definition| definition.regrouped(table, &schema, drops))?;
        Ok(())
    }
}
