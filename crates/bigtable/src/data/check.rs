//! CheckAndMutateRow: one of two lists of mutations, chosen by the row.

use std::ops::ControlFlow;

use stele_engine::{CellView, CommitBuilder, ScanSpec, Txn, View};
use stele_grpc::offload::{in_place, in_place_if_large};

use super::retries::{Retries, is_conflict, is_outdated};
use super::rows::check_key;
use super::{Data, mutation, read, request, target};
use crate::error::{Error, Result};
use crate::filter::{Filter, Output};
use crate::proto::v2;
use crate::table::Table;

/// Bytes of a row that are tested on a runtime thread.
const TEST_BYTES: usize = 1 << 20;
/// What a cell without its value is worth when work is measured in bytes.
const CELL_BYTES: usize = 64;

impl Data {
    /// Tells whether the predicate matched.
    pub(super) async fn check_and_mutate(
        &self,
        request: request::CheckAndMutateRow,
    ) -> Result<bool> {
        let request::CheckAndMutateRow { table_name, authorized_view_name, row_key, .. } = &request;
        let lists = [&request.true_mutations, &request.false_mutations];
        let predicate = read::compile(request.predicate_filter.as_deref());
        let mut retries = Retries::default();
        loop {
            let table = target::table(&self.tables, table_name, &[authorized_view_name])?;
            check(&table, row_key, lists)?;
            let predicate = predicate.as_ref().map_err(Error::clone)?;
            let (matched, read_at) = self.test(&table, row_key, predicate)?;
            let mutations = if matched { lists[0] } else { lists[1] };
            match self.mutate_if_unchanged(&table, row_key, mutations, read_at).await {
                Ok(txn) => {
                    self.group.durable(txn).await?;
                    return Ok(matched);
                }
                Err(error) if is_conflict(&error) => retries.conflicted(row_key).await?,
                Err(error) if is_outdated(&error) => {
                    self.table_changed(&mut retries, row_key).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether any cell of the row passes the predicate, and when that was.
    fn test(&self, table: &Table, key: &[u8], predicate: &Filter) -> Result<(bool, Txn)> {
        match self.test_up_to(table, key, predicate, TEST_BYTES)? {
            Some(tested) => Ok(tested),
            // A large row, which is read aside from other calls.
            None => {
                let tested = in_place(|| self.test_up_to(table, key, predicate, usize::MAX))?;
                tested.ok_or_else(|| Error::invalid("The row cannot be tested"))
            }
        }
    }

    /// The same; `None` if more than `bytes_max` of the row would have to be read.
    fn test_up_to(
        &self,
        table: &Table,
        key: &[u8],
        predicate: &Filter,
        bytes_max: usize,
    ) -> Result<Option<(bool, Txn)>> {
        // The filter may ask for other rows than this one.
        let mut spec = ScanSpec { view: View::Latest, ..ScanSpec::row(key) };
        let rest = read::narrow(predicate, table, &mut spec);
        if rest.passes_all() {
            spec.cells_max = Some(1);
        }
        let mut evaluator = rest.evaluator(self.random.clone());
        let mut any = Any(false);
        let mut large = None;
        let mut bytes = 0usize;
        let read_at = self.tables.store().read_row(table.id, key, &spec, |cell| {
            bytes = bytes.saturating_add(CELL_BYTES + cell.value.len());
            large = evaluator.cell(cell, &mut any).err();
            if any.0 || large.is_some() || bytes > bytes_max {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if !any.0 && large.is_none() {
            if bytes > bytes_max {
                return Ok(None);
            }
            large = evaluator.end_row(&mut any).err();
        }
        match large {
            Some(large) => Err(large.error(&table.name)),
            None => Ok(Some((any.0, read_at))),
        }
    }

    /// Returns the txn that the answer rests on.
    async fn mutate_if_unchanged(
        &self,
        table: &Table,
        key: &[u8],
        mutations: &[v2::Mutation],
        read_at: Txn,
    ) -> Result<Txn> {
        if mutations.is_empty() {
            return Ok(read_at);
        }
        let (now, cost) = (self.now_micros(), mutation::cost(mutations));
        let commit = in_place_if_large(cost, || {
            let mut commit = CommitBuilder::new();
            commit.table(table.id).row(key);
            mutation::append(&mut commit, table, mutations, now);
            commit.finish()
        });
        self.apply(table, &commit, read_at, cost).await
    }
}

fn check(table: &Table, key: &[u8], lists: [&Vec<v2::Mutation>; 2]) -> Result<()> {
    check_key(key)?;
    if lists.iter().all(|list| list.is_empty()) {
        return Err(Error::invalid("No mutations provided"));
    }
    for list in lists {
        mutation::check_count_max(list.len())?;
        in_place_if_large(mutation::cost(list), || mutation::check(table, key, list))?;
    }
    Ok(())
}

/// Notes that there was a cell.
struct Any(bool);

impl Output for Any {
    fn cell(&mut self, _: &CellView<'_>, _: Option<&str>) {
        self.0 = true;
    }
}
