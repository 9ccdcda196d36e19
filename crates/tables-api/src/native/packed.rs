//! Checks packed commits of clients before they reach the engine: one table, rows that
//! this process serves, no hidden families, and mutations that the table accepts.

use stele_engine::cell::commit::CommitVisitor;
use stele_engine::schema::Schema;
use stele_engine::{Commit, Mutation, Printable, RowRange, TableId};
use stele_tables::{Placement, Tables};

use super::rules::ServedTable;
use crate::error::{Error, Result};

/// The maximum number of mutations of a commit, as in the Bigtable API.
pub const MUTATIONS_MAX: usize = 100_000;
/// The maximum number of rows of a commit: a row may have no mutation.
pub const ROWS_MAX: usize = 100_000;
/// The maximum length of a row key, as in the Bigtable API.
pub const ROW_BYTES_MAX: usize = 4 << 10;

/// Checks a commit of the named table. Returns its first row.
pub fn check(commit: &Commit, tables: &Tables, name: &str, table: &ServedTable) -> Result<Vec<u8>> {
    let mut check =
        Check { tables, name, table, first: None, rows: 0, mutations: 0, refused: None };
    match commit.walk(&mut check) {
        // The engine's error only ends the walk.
        Err(error) => Err(check.refused.unwrap_or(Error::Engine(error))),
        Ok(()) => {
            let first = check.first.map(<[u8]>::to_vec);
            first.ok_or_else(|| Error::InvalidCommit("it has no row".into()))
        }
    }
}

/// Returns whether a family is hidden from clients.
pub fn is_hidden(schema: &Schema, family: &[u8]) -> bool {
    let found = schema.find(family).map(|found| &schema.groups()[found.group]);
    found.is_some_and(|group| group.families.iter().any(|family| family.hidden))
}

struct Check<'a, 't> {
    tables: &'t Tables,
    name: &'t str,
    table: &'t ServedTable,
    first: Option<&'a [u8]>,
    rows: usize,
    mutations: usize,
    refused: Option<Error>,
}

impl Check<'_, '_> {
    /// Fails unless clients can use a family.
    fn family(&mut self, family: &[u8]) -> stele_engine::Result<()> {
        let schema = &self.table.schema;
        if schema.find(family).is_none() {
            let (table, family) = (self.name.to_string(), Printable::from(family));
            return Err(stele_engine::Error::UnknownColumnFamily { table, family });
        }
        if is_hidden(schema, family) {
            return self.refuse(format!("family \"{}\" is reserved", family.escape_ascii()));
        }
        Ok(())
    }

    fn refuse(&mut self, what: String) -> stele_engine::Result<()> {
        self.refused = Some(Error::InvalidCommit(what.clone()));
        Err(stele_engine::Error::InvalidMutation(what))
    }
}

impl<'a> CommitVisitor<'a> for Check<'a, '_> {
    fn table(&mut self, table: TableId) -> stele_engine::Result<()> {
        if table == self.table.id {
            return Ok(());
        }
        let opened = self.table.id.0;
        self.refuse(format!("it changes table number {}, but {opened} is open", table.0))
    }

    fn delete_range(&mut self, _: RowRange) -> stele_engine::Result<()> {
        self.refuse("it deletes a range of rows: use DropRowRange of the Bigtable API".into())
    }

    fn row(&mut self, row: &'a [u8]) -> stele_engine::Result<()> {
        if row.is_empty() || row.len() > ROW_BYTES_MAX {
            let what = format!("a row key has 1 to {ROW_BYTES_MAX} bytes, not {}", row.len());
            return self.refuse(what);
        }
        self.rows += 1;
        if self.rows > ROWS_MAX {
            return self.refuse(format!("it has more than {ROWS_MAX} rows"));
        }
        // A row of another server becomes RowsOnSeveralServers here.
        let Placement::Here(_) = self.tables.place(self.table.id, row);
        self.first.get_or_insert(row);
        Ok(())
    }

    fn mutation(&mut self, mutation: Mutation<'a>) -> stele_engine::Result<()> {
        self.mutations += 1;
        if self.mutations > MUTATIONS_MAX {
            return self.refuse(format!("it has more than {MUTATIONS_MAX} mutations"));
        }
        if let Some(family) = mutation.family() {
            self.family(family)?;
        }
        if let Mutation::Mark { .. } = mutation {
            return self.refuse("it has a marker, which tables do not hold".into());
        }
        match (self.table.check)(&mutation) {
            Ok(()) => Ok(()),
            Err(what) => self.refuse(what),
        }
    }

    fn row_end(&mut self) -> stele_engine::Result<()> {
        Ok(())
    }
}
