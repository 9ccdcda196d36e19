//! CheckAndMutateRow: one of two lists of mutations, chosen by the row.

use stele_engine::{CellView, CommitBuilder, ScanSpec, Txn, View};

use super::rows::check_key;
use super::{Data, mutation, read, request, target};
use crate::error::{Error, Result};
use crate::filter::{Filter, Output};
use crate::proto::v2;
use crate::table::Table;

impl Data {
    /// Tells whether the predicate matched.
    pub(super) async fn check_and_mutate(
        &self,
        request: request::CheckAndMutateRow,
    ) -> Result<bool> {
        let table =
            target::table(&self.tables, &request.table_name, &[&request.authorized_view_name])?;
        check_key(&request.row_key)?;
        let lists = [&request.true_mutations, &request.false_mutations];
        if lists.iter().all(|list| list.is_empty()) {
            return Err(Error::invalid("No mutations provided"));
        }
        for list in lists {
            mutation::check_count_max(list.len())?;
            mutation::check(&table, &request.row_key, list)?;
        }
        let predicate = read::compile(request.predicate_filter.as_deref())?;
        loop {
            let (matched, read_at) = self.test(&table, &request.row_key, &predicate)?;
            let mutations = if matched { lists[0] } else { lists[1] };
            match self.mutate_if_unchanged(&table, &request.row_key, mutations, read_at) {
                Ok(txn) => {
                    self.group.durable(txn).await?;
                    return Ok(matched);
                }
                // The row was written since it was read: again.
                Err(Error::Engine(stele_engine::Error::MutationConflict { .. })) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether any cell of the row passes the predicate, and when that was.
    fn test(&self, table: &Table, key: &[u8], predicate: &Filter) -> Result<(bool, Txn)> {
        // The filter may ask for other rows than this one.
        let mut spec = ScanSpec { view: View::Latest, ..ScanSpec::row(key) };
        let rest = read::narrow(predicate, table, &mut spec);
        if rest.passes_all() {
            spec.cells_max = Some(1);
        }
        let mut evaluator = rest.evaluator(self.random.clone());
        let mut any = Any(false);
        let mut large = None;
        let read_at = self.tables.store().read_row(table.id, key, &spec, |cell| {
            if !any.0 && large.is_none() {
                large = evaluator.cell(cell, &mut any).err();
            }
        })?;
        if let Some(large) = large.or_else(|| evaluator.end_row(&mut any).err()) {
            return Err(large.error(&table.name));
        }
        Ok((any.0, read_at))
    }

    /// Returns the txn that the answer rests on.
    fn mutate_if_unchanged(
        &self,
        table: &Table,
        key: &[u8],
        mutations: &[v2::Mutation],
        read_at: Txn,
    ) -> Result<Txn> {
        if mutations.is_empty() {
            return Ok(read_at);
        }
        let mut commit = CommitBuilder::new();
        commit.table(table.id).row(key);
        mutation::append(&mut commit, table, mutations, self.now_micros());
        self.apply(table, &commit.finish(), read_at)
    }
}

/// Notes that there was a cell.
struct Any(bool);

impl Output for Any {
    fn cell(&mut self, _: &CellView<'_>, _: Option<&str>) {
        self.0 = true;
    }
}
