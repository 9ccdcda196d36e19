//! Mutations that arrive packed, through another API. What the data service would refuse
//! to store is refused here too, so that its reads never meet it.

use stele_engine::Mutation;

use super::mutation::{
    check_granularity, check_qualifier, check_value, family as declared, unknown_family,
};
use crate::error::{Error, Result};
use crate::table::{Family, Table};

/// Rejects a mutation that the data service does not accept in any form.
pub fn check_packed(table: &Table, mutation: &Mutation<'_>) -> Result<()> {
    match mutation {
        Mutation::Set { family, qualifier, timestamp, value } => {
            if family_of(table, family)?.aggregate().is_some() {
                let what = "is an aggregate: merge instead of setting";
                return Err(refused(family, what));
            }
            check_value(value)?;
            check_cell(table, qualifier, *timestamp)
        }
        Mutation::Merge { fold, family, qualifier, timestamp, .. } => {
            if family_of(table, family)?.aggregate() != Some(*fold) {
                return Err(refused(family, "is not an aggregate of this kind"));
            }
            check_cell(table, qualifier, *timestamp)
        }
        Mutation::DeleteCells { family, qualifier, .. } => {
            family_of(table, family)?;
            check_qualifier(qualifier)
        }
        Mutation::DeleteFamily { family } => family_of(table, family).map(drop),
        Mutation::DeleteRow => Ok(()),
        Mutation::Mark { family, .. } => Err(refused(family, "holds no markers")),
    }
}

fn family_of<'t>(table: &'t Table, name: &[u8]) -> Result<&'t Family> {
    match std::str::from_utf8(name) {
        Ok(name) => declared(table, name),
        Err(_) => Err(unknown_family(&table.name, &name.escape_ascii().to_string())),
    }
}

fn refused(family: &[u8], what: &str) -> Error {
    Error::Invalid(format!("Column family {} {what}", family.escape_ascii()))
}

fn check_cell(table: &Table, qualifier: &[u8], timestamp: i64) -> Result<()> {
    check_qualifier(qualifier)?;
    if timestamp < 0 {
        return Err(Error::Invalid(format!("Timestamp must not be negative, but got {timestamp}")));
    }
    check_granularity(table, timestamp)
}
