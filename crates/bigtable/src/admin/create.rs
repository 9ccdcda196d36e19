//! What a request to make a table asks for.

use crate::error::{Error, Result};
use crate::name::{InstanceName, TABLE_ID_MAX, excerpt, is_table_id};
use crate::proto::admin::CreateTableRequest;
use crate::table::Definition;

/// The name and the definition of the new table. The instance need not have
/// been made before.
pub fn declared(request: CreateTableRequest) -> Result<(String, Definition)> {
    let CreateTableRequest { parent, table_id, table, initial_splits } = request;
    let instance = InstanceName::parse(&parent)?;
    if !is_table_id(&table_id) {
        return Err(Error::Invalid(format!(
            "Error in field 'table_id' : '{}' expected in the form \
             '[_a-zA-Z0-9][-_.a-zA-Z0-9]*' with at most {TABLE_ID_MAX} characters",
            excerpt(&table_id)
        )));
    }
    let splits = initial_splits.into_iter().map(|split| split.key).collect();
    let definition = Definition::declared(table.unwrap_or_default(), splits)?;
    Ok((format!("{instance}/tables/{table_id}"), definition))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(parent: &str, table_id: &str) -> CreateTableRequest {
        CreateTableRequest {
            parent: parent.into(),
            table_id: table_id.into(),
            ..CreateTableRequest::default()
        }
    }

    #[test]
    fn a_table_is_named_by_parent_and_id() {
        let (name, definition) = declared(request("projects/p/instances/i", "t")).unwrap();
        assert_eq!(name, "projects/p/instances/i/tables/t");
        assert_eq!(definition, Definition::default());
    }

    #[test]
    fn parents_and_ids_that_are_malformed_are_told_the_form() {
        let long = "t".repeat(51);
        for (parent, id) in [
            ("", "t"),
            ("projects/p", "t"),
            ("projects/p/instances/-", "t"),
            ("projects/p/instances/i/tables/t", "t"),
            ("projects/p/instances/i", ""),
            ("projects/p/instances/i", "-t"),
            ("projects/p/instances/i", "a/b"),
            ("projects/p/instances/i", &long),
        ] {
            let error = declared(request(parent, id)).unwrap_err();
            assert!(error.to_string().contains("expected in the form"), "{parent} {id}: {error}");
        }
    }
}
