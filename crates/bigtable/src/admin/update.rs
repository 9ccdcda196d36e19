//! UpdateTable: changes the one field that can change after creation.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::name::excerpt;
use crate::proto::admin::{Table, UpdateTableRequest};
use crate::table::{Definition, Successor};

const DELETION_PROTECTION: &str = "deletion_protection";
const COLUMN_FAMILIES: &str = "column_families";
/// Fields of a table that the API can update but this server does not support.
const UNSUPPORTED: &[&str] =
    &["automated_backup_policy", "change_stream_config", "row_key_schema", "tiered_storage_config"];

/// A validated request: the table, and whether it becomes protected.
#[derive(Debug)]
pub struct Update {
    pub name: String,
    deletion_protection: bool,
}

impl Update {
    pub fn from_request(request: UpdateTableRequest) -> Result<Update> {
        // There are no warnings, so there is nothing to ignore.
        let UpdateTableRequest { table, update_mask, ignore_warnings: _ } = request;
        let Some(Table { name, deletion_protection, .. }) = table else {
            return Err(Error::invalid("Error in field 'table' : must be set"));
        };
        let paths = update_mask.unwrap_or_default().paths;
        if paths.is_empty() {
            return Err(Error::invalid("A non-empty 'update_mask' must be specified"));
        }
        for path in &paths {
            check(path)?;
        }
        Ok(Update { name, deletion_protection })
    }

    /// Returns the definition after the update.
    pub fn successor(&self, old: &Definition) -> Successor {
        let definition =
            Definition { deletion_protection: self.deletion_protection, ..old.clone() };
        Successor { definition, emptied: BTreeSet::new() }
    }
}

fn check(path: &str) -> Result<()> {
    let field = path.split('.').next().unwrap_or_default();
    if path == DELETION_PROTECTION {
        return Ok(());
    }
    let path = excerpt(path);
    let mask = "Error in field 'update_mask'";
    if field == COLUMN_FAMILIES {
        let what = "is not supported: use ModifyColumnFamilies";
        return Err(Error::Unimplemented(format!("{mask} : '{path}' {what}")));
    }
    if UNSUPPORTED.contains(&field) {
        return Err(Error::Unimplemented(format!("{mask} : '{path}' is not supported")));
    }
    Err(Error::Invalid(format!("{mask} : '{path}' cannot be updated: use {DELETION_PROTECTION}")))
}

#[cfg(test)]
mod tests {
    use prost_types::FieldMask;
    use tonic::Code;

    use super::*;

    fn request(paths: &[&str]) -> UpdateTableRequest {
        let table = Table { name: "t".into(), deletion_protection: true, ..Table::default() };
        let paths = paths.iter().map(|path| path.to_string()).collect();
        UpdateTableRequest {
            table: Some(table),
            update_mask: Some(FieldMask { paths }),
            ignore_warnings: false,
        }
    }

    #[test]
    fn only_the_protection_is_updated() {
        let update = Update::from_request(request(&["deletion_protection"])).unwrap();
        let old = Definition { splits: vec![b"s".to_vec()], ..Definition::default() };
        let next = update.successor(&old);
        assert_eq!(next.definition, Definition { deletion_protection: true, ..old });
        assert!(next.emptied.is_empty());
    }

    #[test]
    fn other_fields_are_refused_by_name() {
        for (paths, code) in [
            (&[][..], Code::InvalidArgument),
            (&["*"], Code::InvalidArgument),
            (&["name"], Code::InvalidArgument),
            (&["granularity"], Code::InvalidArgument),
            (&["deletion_protection.x"], Code::InvalidArgument),
            (&["column_families"], Code::Unimplemented),
            (&["change_stream_config.retention_period"], Code::Unimplemented),
            (&["deletion_protection", "row_key_schema"], Code::Unimplemented),
        ] {
            let error = Update::from_request(request(paths)).unwrap_err();
            assert_eq!(error.code(), code, "{paths:?}: {error}");
            assert!(error.to_string().contains("update_mask"), "{error}");
        }
        let no_table = UpdateTableRequest { table: None, ..request(&["deletion_protection"]) };
        assert_eq!(Update::from_request(no_table).unwrap_err().code(), Code::InvalidArgument);
    }
}
