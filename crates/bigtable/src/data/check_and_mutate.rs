//! CheckAndMutateRow: applies one of two lists of mutations, depending on whether
//! the row matches a predicate.

use stele_engine::{CellView, Flow, ScanSpec, Txn, View};
use stele_grpc::offload::in_place_if_large;
use stele_tables::Local;

use super::pace::Pace;
use super::request::Target;
use super::response_memory::ResponseMemory;
use super::retries::{Retries, is_conflict, is_outdated};
use super::row_read::RowSink;
use super::{Data, mutation, request, request_filter};
use crate::error::{Error, Result};
use crate::filter::{Evaluator, Filter, LargeRow, Output};
use crate::proto::v2;
use crate::table::check_row_key;

impl Data {
    /// Returns whether the predicate matched.
    pub(super) async fn check_and_mutate(
        &self,
        request: request::CheckAndMutateRow,
    ) -> Result<bool> {
        let request::CheckAndMutateRow { table_name, authorized_view_name, row_key, .. } = &request;
        let lists = [&request.true_mutations, &request.false_mutations];
        let mut memory = ResponseMemory::of_call();
        let predicate =
            request_filter::compile(request.predicate_filter.as_ref(), &mut memory).await;
        let mut retries = Retries::default();
        loop {
            let target = Target::find(&self.tables, table_name, authorized_view_name, "")?;
            let table = &target.table;
            let local = self.tables.local(table.id, row_key);
            check(&target, row_key, lists)?;
            let predicate = predicate.as_ref().map_err(Error::clone)?;
            let (matched, read_at) =
                self.test(local, &target, row_key, predicate, &mut memory).await?;
            let mutations = if matched { lists[0] } else { lists[1] };
            let written = match mutations.is_empty() {
                // The response depends on the read alone.
                true => Ok(read_at),
                false => self.write_row(local, table, row_key, mutations, read_at).await,
            };
            match written {
                Ok(txn) => {
                    self.durable(local, txn).await?;
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
        local: Local<'_>,
        Target { table, view }: &Target,
        key: &[u8],
        predicate: &Filter,
        memory: &mut ResponseMemory,
    ) -> Result<(bool, Txn)> {
        // The filter may narrow the scan to rows other than this one.
        let shown = || {
            let mut spec = ScanSpec { view: View::Latest, ..ScanSpec::row(key) };
            if let Some(view) = view {
                view.subset.narrow(table, &mut spec);
            }
            spec
        };
        let mut spec = shown();
        let residual = request_filter::narrow(predicate, table, &mut spec);
        if residual.passes_all() {
            spec.cells_max = Some(1);
        }
        let evaluator = residual.evaluator(self.random.clone());
        // A residual filter serves a single evaluation.
        let restart = || {
            let residual = request_filter::narrow(predicate, table, &mut shown());
            residual.evaluator(self.random.clone())
        };
        let mut test = PredicateTest { evaluator, restart, matched: Matched(false), large: None };
        let memory = (memory, request_filter::charged_bytes(predicate));
        let pace = Pace::of_filter(predicate);
        let read_at = self.read_latest(local, key, &spec, pace, memory, &mut test).await?;
        match test.end() {
            Ok(matched) => Ok((matched, read_at)),
            Err(large) => Err(large.error(&table.name)),
        }
    }
}

fn check(target: &Target, key: &[u8], lists: [&Vec<v2::Mutation>; 2]) -> Result<()> {
    check_row_key(key)?;
    if lists.iter().all(|list| list.is_empty()) {
        return Err(Error::invalid("No mutations provided"));
    }
    for list in lists {
        mutation::check_count_max(list.len())?;
        in_place_if_large(mutation::cost(list), || {
            target.check(key, list)?;
            mutation::check(&target.table, key, list)
        })?;
    }
    Ok(())
}

/// The evaluation of a predicate on one row.
struct PredicateTest<R> {
    evaluator: Evaluator,
    /// Creates a new evaluator for a restarted read.
    restart: R,
    matched: Matched,
    large: Option<LargeRow>,
}

impl<R> PredicateTest<R> {
    fn end(mut self) -> Result<bool, LargeRow> {
        if !self.matched.0 && self.large.is_none() {
            let held = self.evaluator.held_bytes();
            let end = || self.evaluator.end_row(&mut self.matched).err();
            self.large = in_place_if_large(held, end);
        }
        self.large.map_or(Ok(self.matched.0), Err)
    }
}

impl<R: Fn() -> Evaluator> RowSink for PredicateTest<R> {
    fn cell(&mut self, cell: &CellView<'_>) -> Flow {
        match self.evaluator.cell(cell, &mut self.matched) {
            Err(large) => {
                self.large = Some(large);
                Flow::Stop
            }
            Ok(_) if self.matched.0 => Flow::Stop,
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
struct Matched(bool);

impl Output for Matched {
    fn cell(&mut self, _: &CellView<'_>, _: Option<&str>) {
        self.0 = true;
    }
}
