//! Writing rows: MutateRow and MutateRows.

use prost::Message;
use stele_engine::{Commit, CommitBuilder, Txn, Wait};

use super::{Data, mutation, target};
use crate::error::{Error, Result};
use crate::proto::v2;
use crate::table::Table;
use crate::waiting::waiting;

/// Entries of one MutateRows request share commits of about this size.
const COMMIT_BYTES: usize = 4 << 20;

impl Data {
    pub(super) async fn mutate(&self, request: v2::MutateRowRequest) -> Result<()> {
        let table =
            target::table(&self.tables, &request.table_name, &[&request.authorized_view_name])?;
        mutation::check_count(request.mutations.len())?;
        mutation::check(&table, &request.row_key, &request.mutations)?;
        let txn = self.write_row(
            &table,
            &request.row_key,
            &request.mutations,
            request.idempotency.as_ref(),
        )?;
        self.group.durable(txn).await
    }

    /// Applies the checked mutations of one row. Returns the txn to wait for.
    fn write_row(
        &self,
        table: &Table,
        key: &[u8],
        mutations: &[v2::Mutation],
        idempotency: Option<&v2::Idempotency>,
    ) -> Result<Txn> {
        let now = self.now_micros();
        if let Some(idempotency) = idempotency {
            return self.tokens.once(table.id, idempotency, now, |commit| {
                commit.row(key);
                mutation::append(commit, table, mutations, now);
            });
        }
        let mut commit = CommitBuilder::new();
        commit.table(table.id).row(key);
        mutation::append(&mut commit, table, mutations, now);
        self.apply(table, &commit.finish(), Txn::MAX)
    }

    /// Applies the entries of a bulk request. An entry that cannot be applied
    /// does not hinder the others. Returns a status for each.
    pub(super) async fn mutate_all(
        &self,
        request: v2::MutateRowsRequest,
    ) -> Result<Vec<Result<()>>> {
        let table =
            target::table(&self.tables, &request.table_name, &[&request.authorized_view_name])?;
        let total = request.entries.iter().map(|entry| entry.mutations.len()).sum();
        mutation::check_count(total)?;
        let mut outcomes: Vec<Result<()>> = request
            .entries
            .iter()
            .map(|entry| {
                mutation::check_count(entry.mutations.len())?;
                mutation::check(&table, &entry.row_key, &entry.mutations)
            })
            .collect();
        let newest = self.write_entries(&table, &request.entries, &mut outcomes);
        if let Some(txn) = newest
            && let Err(error) = self.group.told_durable(txn).await
        {
            for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
                *outcome = Err(error.clone());
            }
        }
        Ok(outcomes)
    }

    /// Applies the entries that were found good, in the order of their rows;
    /// those of one row in the order given. Returns the newest txn.
    fn write_entries(
        &self,
        table: &Table,
        entries: &[v2::mutate_rows_request::Entry],
        outcomes: &mut [Result<()>],
    ) -> Option<Txn> {
        let good = |at: &usize| outcomes[*at].is_ok();
        let mut order: Vec<usize> = (0..entries.len()).filter(good).collect();
        if !order.is_sorted_by_key(|&at| &entries[at].row_key) {
            order.sort_by_key(|&at| &entries[at].row_key);
        }
        let now = self.now_micros();
        let mut newest = None;
        let mut batch = Batch::with_room(table, entries);
        for (nth, &at) in order.iter().enumerate() {
            let entry = &entries[at];
            if entry.idempotency.is_some() {
                // It must come after what the batch holds of its row.
                newest = self.write_batch(&mut batch, outcomes).or(newest);
                let idempotency = entry.idempotency.as_ref();
                match self.write_row(table, &entry.row_key, &entry.mutations, idempotency) {
                    Ok(txn) => newest = newest.max(Some(txn)),
                    Err(error) => outcomes[at] = Err(error),
                }
                continue;
            }
            batch.add(at, entry, now);
            let next = order.get(nth + 1).map(|&next| &entries[next].row_key);
            if batch.commit.len() >= COMMIT_BYTES && next != Some(&entry.row_key) {
                newest = self.write_batch(&mut batch, outcomes).or(newest);
            }
        }
        self.write_batch(&mut batch, outcomes).or(newest)
    }

    fn write_batch(&self, batch: &mut Batch<'_>, outcomes: &mut [Result<()>]) -> Option<Txn> {
        let (commit, entries) = batch.take()?;
        match self.apply(batch.table, &commit, Txn::MAX) {
            Ok(txn) => Some(txn),
            Err(error) => {
                for at in entries {
                    outcomes[at] = Err(error.clone());
                }
                None
            }
        }
    }

    /// Gives a commit to a table its place in the order, without waiting for
    /// the disk.
    pub(super) fn apply(&self, table: &Table, commit: &Commit, commit_max_txn: Txn) -> Result<Txn> {
        let store = self.tables.store();
        let apply = || store.apply(commit, commit_max_txn, Wait::Accepted);
        let applied =
            if store.would_wait(table.id, commit.bytes().len()) { waiting(apply) } else { apply() };
        applied.map_err(|error| match error {
            stele_engine::Error::UnknownColumnFamily { table, family } => {
                mutation::unknown_family(&table, &String::from_utf8_lossy(&family.0))
            }
            other => Error::Engine(other),
        })
    }
}

/// Entries that are applied together.
struct Batch<'t> {
    table: &'t Table,
    commit: CommitBuilder,
    row: Vec<u8>,
    entries: Vec<usize>,
}

impl<'t> Batch<'t> {
    fn new(table: &'t Table) -> Batch<'t> {
        Batch { table, commit: CommitBuilder::new(), row: Vec::new(), entries: Vec::new() }
    }

    /// With room for all entries, or for as many as a commit takes.
    fn with_room(table: &'t Table, entries: &[v2::mutate_rows_request::Entry]) -> Batch<'t> {
        let bytes: usize = entries.iter().map(Message::encoded_len).sum();
        let commit = CommitBuilder::with_capacity(bytes.min(COMMIT_BYTES));
        Batch { commit, ..Batch::new(table) }
    }

    fn add(&mut self, at: usize, entry: &v2::mutate_rows_request::Entry, now_micros: i64) {
        if self.entries.is_empty() {
            self.commit.table(self.table.id);
        }
        if self.entries.is_empty() || self.row != entry.row_key {
            self.commit.row(&entry.row_key);
            self.row.clear();
            self.row.extend_from_slice(&entry.row_key);
        }
        mutation::append(&mut self.commit, self.table, &entry.mutations, now_micros);
        self.entries.push(at);
    }

    /// What was added, leaving the batch empty; `None` when nothing was.
    fn take(&mut self) -> Option<(Commit, Vec<usize>)> {
        if self.entries.is_empty() {
            return None;
        }
        let commit = std::mem::take(&mut self.commit).finish();
        Some((commit, std::mem::take(&mut self.entries)))
    }
}
