//! `stele delete`: deletes a row, families and columns of it, or rows by prefix.

use clap::Args;
use stele_bigtable_client::Mutation;

use super::Column;
use crate::Outcome;
use crate::connection::{Connection, advise};
use crate::escape::Typed;
use crate::output::text;
use crate::table::{confirmed, said};

/// Delete a row, or families and columns of it; or all rows with a prefix.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele delete users de:4711
  stele delete users de:4711 log info:mail
  stele delete users --prefix test: --yes
  stele delete users --all --yes")]
pub struct Delete {
    table: String,
    /// Key of the row.
    #[arg(required_unless_present_any = ["prefix", "all"])]
    key: Option<Typed>,
    /// Families and columns to delete; without any, the whole row.
    #[arg(value_name = "FAMILY[:QUALIFIER]")]
    columns: Vec<Column>,
    /// Delete all rows whose keys start with this prefix.
    #[arg(long, conflicts_with_all = ["key", "all"])]
    prefix: Option<Typed>,
    /// Delete all rows of the table.
    #[arg(long, conflicts_with = "key")]
    all: bool,
    /// Confirm that all matching rows are deleted.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    connection: Connection,
}

impl Delete {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let table = &self.table;
        let done = if let Some(Typed(prefix)) = &self.prefix {
            let rows = format!("all rows of table {table} that begin with {}", text(prefix));
            anyhow::ensure!(!prefix.is_empty(), "the prefix is empty: say --all for all rows");
            confirmed(self.yes, &format!("deletes {rows}"))?;
            let dropped = async |client: stele_bigtable_client::Client| {
                client.drop_row_range(table, prefix.clone()).await.map_err(advise)
            };
            self.connection.run(dropped)?;
            format!("{rows} deleted")
        } else if self.all {
            confirmed(self.yes, &format!("deletes all rows of table {table}"))?;
            self.connection
                .run(async |client| client.drop_all_rows(table).await.map_err(advise))?;
            format!("all rows of table {table} deleted")
        } else if let Some(Typed(key)) = &self.key {
            let mutations = mutations(&self.columns);
            self.connection.run(async |client| {
                let table = client.table(table).map_err(advise)?;
                table.mutate_row(key.clone(), mutations).await.map_err(advise)
            })?;
            let what = if self.columns.is_empty() { "" } else { "cells of " };
            format!("{what}row {} deleted", text(key))
        } else {
            anyhow::bail!("give a row's key, --prefix or --all");
        };
        said(&done)?;
        Ok(Outcome::Sound)
    }
}

fn mutations(columns: &[Column]) -> Vec<Mutation> {
    if columns.is_empty() {
        return vec![Mutation::delete_row()];
    }
    let one = |column: &Column| match &column.qualifier {
        Some(qualifier) => Mutation::delete_column(&column.family, qualifier.clone()),
        None => Mutation::delete_family(&column.family),
    };
    columns.iter().map(one).collect()
}
