//! CheckAndMutateRow: applies one of two lists of mutations, depending on whether
//! the row matches a predicate.

use stele_engine::{CellView, CommitBuilder, Flow, ScanSpec, Txn, View};
use stele_grpc::offload::in_place_if_large;

use super::pace::Pace;
use super::response_memory::ResponseMemory;
use super::retries::{Retries, is_conflict, is_outdated};
use super::row_read::RowSink;
use super::rows::check_key;
use super::{Data, mutation, plan, request, target};
use crate::error::{Error, Result};
use crate::filter::{Evaluator, Filter, LargeRow, Output};
use crate::proto::v2;
use crate::table::Table;

impl Data {
    /// Returns whether the predicate matched.
    pub(super) async fn check_and_mutate(
        &self,
        request: request::CheckAndMutateRow,
    ) -> Result<bool> {
        let request::CheckAndMutateRow { table_name, authorized_view_name, row_key, .. } = &request;
        let lists = [&request.true_mutations, &request.false_mutations];
        let mut memory = ResponseMemory::of_call();
        let predicate = plan::compile(request.predicate_filter.as_ref(), &mut memory).await;
        let mut retries = Retries::default();
        loop {
            let table = target::table(&self.tables, table_name, &[authorized_view_name])?;
            check(&table, row_key, lists)?;
            let predicate = predicate.as_ref().map_err(Error::clone)?;
            let (matched, read_at) = self.test(&table, row_key, predicate, &mut memory).await?;
            let mutations = if matched { lists[0] } else { lists[1] };
            match self.mutate_if_unchanged(&table, row_key, mutations, read_at).await {
                Ok(txn) => {
                    self.durable(txn).await?;
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

    /// Returns whether any cell of the row passes the predicate, and the txn of
    /// the read.
    async fn test(
        &self,
        table: &Table,
        key: &[u8],
        predicate: &Filter,
        memory: &mut ResponseMemory,
    ) -> Result<(bool, Txn)> {
        // The filter may narrow the scan to rows other than this one.
        let mut spec = ScanSpec { view: View::Latest, ..ScanSpec::row(key) };
        let rest = plan::narrow(predicate, table, &mut spec);
        if rest.passes_all() {
            spec.cells_max = Some(1);
        }
        let evaluator = rest.evaluator(self.random.clone());
        // A plan serves a single evaluation.
        let restart = || {
            let rest = plan::narrow(predicate, table, &mut ScanSpec::row(key));
            rest.evaluator(self.random.clone())
        };
        let mut test = Test { evaluator, restart, any: Any(false), large: None };
        let memory = (memory, plan::charged_bytes(predicate));
        let pace = Pace::of_filter(predicate);
        let read_at = self.read_latest(table, key, &spec, pace, memory, &mut test).await?;
        match test.end() {
            Ok(matched) => Ok((matched, read_at)),
            Err(large) => Err(large.error(&table.name)),
        }
    }

    /// Returns the txn that the response depends on.
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

/// The evaluation of a predicate on one row.
struct Test<R> {
    evaluator: Evaluator,
    /// Creates a new evaluator for a restarted read.
    restart: R,
    any: Any,
    large: Option<LargeRow>,
}

impl<R> Test<R> {
    fn end(mut self) -> Result<bool, LargeRow> {
        if !self.any.0 && self.large.is_none() {
            let held = self.evaluator.held_bytes();
            let end = || self.evaluator.end_row(&mut self.any).err();
            self.large = in_place_if_large(held, end);
        }
        self.large.map_or(Ok(self.any.0), Err)
    }
}

impl<R: Fn() -> Evaluator> RowSink for Test<R> {
    fn cell(&mut self, cell: &CellView<'_>) -> Flow {
        match self.evaluator.cell(cell, &mut self.any) {
            Err(large) => {
                self.large = Some(large);
                Flow::Stop
            }
            Ok(_) if self.any.0 => Flow::Stop,
            Ok(flow) => flow,
        }
    }

    fn kept_bytes(&self) -> usize {
        self.evaluator.held_bytes()
    }

    fn restart(&mut self) {
        self.evaluator = (self.restart)();
    }
}

/// Records whether any cell passed.
struct Any(bool);

impl Output for Any {
    fn cell(&mut self, _: &CellView<'_>, _: Option<&str>) {
        self.0 = true;
    }
}
