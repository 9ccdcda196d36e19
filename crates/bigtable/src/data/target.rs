//! Which table a request is about. Views are not served yet.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::table::{Table, Tables};

/// The table of a request; the views it names instead are refused.
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
