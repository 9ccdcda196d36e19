//! Resolves the table of a request. Views are not supported yet.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::table::{Table, Tables};

/// Returns the table of a request; rejects requests that name a view instead.
pub fn table(tables: &Tables, table: &str, views: &[&str]) -> Result<Arc<Table>> {
    if views.iter().all(|view| view.is_empty()) {
        return tables.get(table);
    }
    let named = views.iter().filter(|view| !view.is_empty()).count();
    if named > 1 || !table.is_empty() {
        return Err(Error::invalid("Exactly one of table name and view name must be set"));
    }
    Err(Error::Unimplemented("Authorized and materialized views are not supported".into()))
}
