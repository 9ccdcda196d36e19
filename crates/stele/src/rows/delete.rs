//! `stele delete`: deletes a row, families and columns of it, or rows by prefix.

use clap::Args;
use stele_bigtable_client::Mutation;

use super::Column;
use crate::Outcome;
use crate::confirm::confirm;
use crate::connect::{BigtableServer, with_hint};
use crate::escape::Typed;
use crate::output::{print_line, text};

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
    server: BigtableServer,
}

impl Delete {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let table = &self.table;
        let done = if let Some(Typed(prefix)) = &self.prefix {
            let rows = format!("all rows of table {table} that start with {}", text(prefix));
            anyhow::ensure!(!prefix.is_empty(), "--prefix is empty: use --all to delete all rows");
            confirm(self.yes, &format!("delete {rows}"))?;
            let drop_rows = async |client: stele_bigtable_client::Client| {
                client.drop_row_range(table, prefix.clone()).await.map_err(with_hint)
            };
            self.server.run(drop_rows)?;
            format!("deleted {rows}")
        } else if self.all {
            confirm(self.yes, &format!("delete all rows of table {table}"))?;
            self.server.run(async |client| client.drop_all_rows(table).await.map_err(with_hint))?;
            format!("deleted all rows of table {table}")
        } else if let Some(Typed(key)) = &self.key {
            let mutations = mutations(&self.columns);
            self.server.run(async |client| {
                let table = client.table(table).map_err(with_hint)?;
                table.mutate_row(key.clone(), mutations).await.map_err(with_hint)
            })?;
            let what = if self.columns.is_empty() { "" } else { "cells of " };
            format!("deleted {what}row {}", text(key))
        } else {
            anyhow::bail!("nothing to delete: give a row key, --prefix or --all");
        };
        print_line(&done)?;
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
