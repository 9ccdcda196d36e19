//! The rules of the native API of rows: it serves the tables of the Bigtable API, to the
//! same callers, and accepts the cells that the Bigtable API would accept.

use std::sync::Arc;

use stele_bigtable::data::check_packed;
use stele_bigtable::reserved;
use stele_bigtable::table::{Table, Tables};
use stele_tables_api::{Error, ServedTable, TableRules};
use tonic::{Code, Status};

pub struct NativeRules(Arc<Tables>);

impl NativeRules {
    pub fn new(tables: Arc<Tables>) -> NativeRules {
        NativeRules(tables)
    }
}

impl TableRules for NativeRules {
    fn check_access(&self, extensions: &http::Extensions, table: &str) -> Result<(), Status> {
        reserved::check(extensions, table)
    }

    fn table(&self, name: &str) -> Result<ServedTable, Status> {
        served(name, self.0.get(name))
    }

    fn reload(&self, name: &str) -> Result<ServedTable, Status> {
        served(name, self.0.reload(name))
    }
}

fn served(name: &str, found: stele_bigtable::Result<Arc<Table>>) -> Result<ServedTable, Status> {
    let table = found.map_err(|error| match Status::from(error) {
        status if status.code() == Code::NotFound => Error::UnknownTable(name.into()).into(),
        status => status,
    })?;
    let (id, schema) = (table.id, table.schema.clone());
    let check = move |mutation: &stele_engine::Mutation<'_>| {
        check_packed(&table, mutation).map_err(|error| error.to_string())
    };
    Ok(ServedTable { id, schema, check: Arc::new(check) })
}
