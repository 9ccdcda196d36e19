//! CheckAndMutateRow: one of two lists of mutations, chosen by the row.

use stele_engine::{CommitBuilder, Txn};

use super::read::RowTest;
use super::rows::check_key;
use super::{Data, mutation, target};
use crate::error::{Error, Result};
use crate::proto::v2;

impl Data {
    /// Tells whether the predicate matched.
    pub(super) async fn check_and_mutate(
        &self,
        request: v2::CheckAndMutateRowRequest,
    ) -> Result<bool> {
        let table = target::table(
            &self.tables,
            &request.table_name,
            &[&request.authorized_view_name],
        )?;
        check_key(&request.row_key)?;
        let lists = [&request.true_mutations, &request.false_mutations];
        if lists.iter().all(|list| list.is_empty()) {
            return Err(Error::invalid("No mutations provided"));
        }
        for list in lists {
            mutation::check_count_max(list.len())?;
            mutation::check(&table, &request.row_key, list)?;
        }
        let test = RowTest::new(&table, request.predicate_filter.as_ref())?;
        loop {
            let (matched, read_at) = test.run(self.tables.store(), &request.row_key)?;
            let mutations = if matched { lists[0] } else { lists[1] };
            match self.mutate_if_unchanged(&table, &request.row_key, mutations, read_at) {
                Ok(txn) => {
                    self.durable(txn).await?;
                    return Ok(matched);
                }
                // The row was written since it was read: again.
                Err(Error::Engine(stele_engine::Error::MutationConflict { .. })) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the txn that the answer rests on.
    fn mutate_if_unchanged(
        &self,
        table: &crate::table::Table,
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
        self.apply(&commit.finish(), read_at)
    }
}
