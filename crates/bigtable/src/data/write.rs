//! Writing rows: MutateRow and MutateRows.

use stele_engine::{Commit, CommitBuilder, Txn};
use stele_grpc::offload::{in_place, in_place_if_large};
use stele_tables::{Local, Misses};

use super::idempotency::{self, IdempotencyToken};
use super::request::Target;
use super::retries::{Retries, is_conflict, is_of_other_rows, is_outdated};
use super::{Data, mutation};
use crate::error::{Error, Result};
use crate::proto::v2;
use crate::table::Table;

/// The maximum number of entries of a MutateRows request.
pub const ENTRIES_MAX: usize = 100_000;
/// The approximate size of the commits that entries of one MutateRows request
/// share.
const COMMIT_BYTES: usize = 4 << 20;
/// The number of entries with tokens, which are separate commits, between two
/// yields to other tasks.
const YIELD_ENTRIES: usize = 16;

impl Data {
    pub(super) async fn mutate(&self, request: v2::MutateRowRequest) -> Result<()> {
        let v2::MutateRowRequest { table_name, authorized_view_name, .. } = &request;
        let (key, mutations) = (&request.row_key, &request.mutations);
        mutation::check_count(mutations.len())?;
        let mut retries = Retries::default();
        let (local, txn) = loop {
            let target = Target::find(&self.tables, table_name, authorized_view_name, "")?;
            let table = &target.table;
            let local = self.tables.local(table.id, key);
            in_place_if_large(mutation::cost(mutations), || {
                target.check(key, mutations)?;
                mutation::check(table, key, mutations)
            })?;
            let written = match &request.idempotency {
                None => self.write_row(local, table, key, mutations, Txn::MAX).await,
                Some(idempotency) => {
                    self.write_once(local, table, key, mutations, idempotency).await
                }
            };
            match written {
                Err(error) if is_outdated(&error) => self.table_changed(&mut retries, key).await?,
                outcome => break (local, outcome?),
            }
        };
        self.durable(local, txn).await
    }

    /// Waits until a change of a table is visible to requests.
    pub(super) async fn table_changed(&self, retries: &mut Retries, key: &[u8]) -> Result<()> {
        in_place(|| self.tables.wait_for_changes());
        retries.conflicted(key).await
    }

    /// Applies the validated mutations of one row, unless the row was written
    /// after `commit_max_txn`. Returns the txn to wait for.
    pub(super) async fn write_row(
        &self,
        local: Local<'_>,
        table: &Table,
        key: &[u8],
        mutations: &[v2::Mutation],
        commit_max_txn: Txn,
    ) -> Result<Txn> {
        let (now, cost) = (self.now_micros(), mutation::cost(mutations));
        let commit = in_place_if_large(cost, || {
            let mut commit = CommitBuilder::new();
            commit.table(table.id).row(key);
            mutation::append(&mut commit, table, mutations, now);
            commit.finish()
        });
        self.apply(local, table, &commit, commit_max_txn, cost).await
    }

    /// Like `write_row`, unless mutations of this row were already applied under
    /// the same token.
    async fn write_once(
        &self,
        local: Local<'_>,
        table: &Table,
        key: &[u8],
        mutations: &[v2::Mutation],
        idempotency: &v2::Idempotency,
    ) -> Result<Txn> {
        let now = self.now_micros();
        let token = IdempotencyToken::new(table.id, key, idempotency, now)?;
        if !table.definition.keeps_tokens {
            in_place(|| self.tables.keep_tokens(&table.name))?;
            // The mutations have to be checked against the changed table.
            let table = table.name.clone();
            return Err(Error::Engine(stele_engine::Error::SchemaChanged { table }));
        }
        let (mut retries, mut misses) = (Retries::default(), Misses::default());
        loop {
            let (found, read_at) = match self.tokens.find(local, &token) {
                Err(Error::Engine(error @ stele_engine::Error::NotLocal(_))) => {
                    misses.fetched(error).await?;
                    continue;
                }
                read => read?,
            };
            if found {
                return Ok(read_at);
            }
            let commit = idempotency::commit(&token, |commit| {
                mutation::append(commit, table, mutations, now);
            });
            let cost = mutation::cost(mutations);
            match self.apply(local, table, &commit, read_at, cost).await {
                Err(error) if is_conflict(&error) => retries.conflicted(key).await?,
                outcome => return outcome,
            }
        }
    }

    /// Applies the entries of a bulk request. A failing entry does not affect the
    /// others. Returns a status for each.
    pub(super) async fn mutate_all(
        &self,
        request: v2::MutateRowsRequest,
    ) -> Result<Vec<Result<()>>> {
        let v2::MutateRowsRequest { table_name, entries, authorized_view_name, .. } = &request;
        let find = || Target::find(&self.tables, table_name, authorized_view_name, "");
        let mut target = find()?;
        let total = entries.iter().map(|entry| entry.mutations.len()).sum();
        mutation::check_count(total)?;
        let check = |target: &Target, at: usize| {
            let v2::mutate_rows_request::Entry { row_key, mutations, .. } = &entries[at];
            mutation::check_count(mutations.len())?;
            target.check(row_key, mutations)?;
            mutation::check(&target.table, row_key, mutations)
        };
        let cost = total * mutation::MUTATION_COST;
        let mut outcomes: Vec<Result<()>> =
            in_place_if_large(cost, || (0..entries.len()).map(|at| check(&target, at)).collect());
        let mut todo: Vec<usize> = (0..entries.len()).collect();
        let mut retries = Retries::default();
        let mut newest = None;
        let first = entries.first().map_or(&[][..], |entry| &entry.row_key);
        let mut local = self.tables.local(target.table.id, first);
        loop {
            let table = &target.table;
            let written = self.write_entries(local, table, entries, todo, &mut outcomes).await;
            newest = written.max(newest);
            let is_due = |at: &usize| {
                let key = &entries[*at].row_key;
                let again = |error: &Error| is_outdated(error) || is_of_other_rows(error, key);
                outcomes[*at].as_ref().is_err_and(again)
            };
            todo = (0..entries.len()).filter(is_due).collect();
            if todo.is_empty()
                || self.table_changed(&mut retries, table_name.as_bytes()).await.is_err()
            {
                break;
            }
            target = find()?;
            local = self.tables.local(target.table.id, first);
            for &at in &todo {
                outcomes[at] = check(&target, at);
            }
        }
        if let Some(txn) = newest
            && let Err(error) = self.durable_by_log(local, txn).await
        {
            for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
                *outcome = Err(error.clone());
            }
        }
        Ok(outcomes)
    }

    /// Applies the valid entries of `order`, in row order; those of one row in
    /// the given order. Returns the newest txn.
    async fn write_entries(
        &self,
        local: Local<'_>,
        table: &Table,
        entries: &[v2::mutate_rows_request::Entry],
        mut order: Vec<usize>,
        outcomes: &mut [Result<()>],
    ) -> Option<Txn> {
        order.retain(|&at| outcomes[at].is_ok());
        if !order.is_sorted_by_key(|&at| &entries[at].row_key) {
            order.sort_by_key(|&at| &entries[at].row_key);
        }
        let now = self.now_micros();
        let mut newest = None;
        let mut batch = EntryBatch::with_capacity_for(table, entries);
        let mut waits = local.is_restricted().then_some(true);
        for (nth, &at) in order.iter().enumerate() {
            let entry = &entries[at];
            if let Some(error) = &batch.overloaded {
                outcomes[at] = Err(error.clone());
                continue;
            }
            // A row that is not served must not fail the others of its batch.
            if let Some(waits) = &mut waits {
                let key = &entry.row_key;
                let loaded = if *waits { local.loaded(key).await } else { Ok(()) };
                // A request waits in vain only once.
                *waits &= loaded.is_ok();
                if let Err(error) = loaded.and_then(|()| local.check_write(key)) {
                    outcomes[at] = Err(error.into());
                    continue;
                }
            }
            if let Some(idempotency) = &entry.idempotency {
                if nth % YIELD_ENTRIES == 0 {
                    tokio::task::yield_now().await;
                }
                // This entry must come after the batched entries of its row.
                newest = self.write_batch(local, &mut batch, outcomes).await.or(newest);
                let (key, mutations) = (&entry.row_key, &entry.mutations);
                match self.write_once(local, table, key, mutations, idempotency).await {
                    Ok(txn) => newest = newest.max(Some(txn)),
                    Err(error) => {
                        batch.stop_if_overloaded(&error);
                        outcomes[at] = Err(error);
                    }
                }
                continue;
            }
            batch.add(at, entry, now);
            let next = order.get(nth + 1).map(|&next| &entries[next].row_key);
            if batch.commit.len() >= COMMIT_BYTES && next != Some(&entry.row_key) {
                newest = self.write_batch(local, &mut batch, outcomes).await.or(newest);
                // Keep a large request from monopolizing its thread.
                tokio::task::yield_now().await;
            }
        }
        self.write_batch(local, &mut batch, outcomes).await.or(newest)
    }

    async fn write_batch(
        &self,
        local: Local<'_>,
        batch: &mut EntryBatch<'_>,
        outcomes: &mut [Result<()>],
    ) -> Option<Txn> {
        let cost = batch.cost;
        let (commit, entries) = batch.take()?;
        match self.apply(local, batch.table, &commit, Txn::MAX, cost).await {
            Ok(txn) => Some(txn),
            Err(error) => {
                batch.stop_if_overloaded(&error);
                for at in entries {
                    outcomes[at] = Err(error.clone());
                }
                None
            }
        }
    }
}

/// Entries that are applied together.
struct EntryBatch<'t> {
    table: &'t Table,
    commit: CommitBuilder,
    row: Vec<u8>,
    entries: Vec<usize>,
    /// The cost of applying them.
    cost: usize,
    /// Set once the store is overloaded: a request waits for admission only once.
    overloaded: Option<Error>,
}

impl<'t> EntryBatch<'t> {
    fn new(table: &'t Table) -> EntryBatch<'t> {
        let (row, entries) = (Vec::new(), Vec::new());
        EntryBatch { table, commit: CommitBuilder::new(), row, entries, cost: 0, overloaded: None }
    }

    /// Creates a batch with capacity for all entries, or for as many as a commit
    /// holds.
    fn with_capacity_for(
        table: &'t Table,
        entries: &[v2::mutate_rows_request::Entry],
    ) -> EntryBatch<'t> {
        let bytes = |entry: &v2::mutate_rows_request::Entry| {
            let mutations = entry.mutations.iter().map(mutation::encoded_bytes);
            entry.row_key.len() + mutations.sum::<usize>()
        };
        let bytes: usize = entries.iter().map(bytes).sum();
        let commit = CommitBuilder::with_capacity(bytes.min(COMMIT_BYTES));
        EntryBatch { commit, ..EntryBatch::new(table) }
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
        self.cost += mutation::cost(&entry.mutations);
    }

    /// Records an overload: later entries are not attempted.
    fn stop_if_overloaded(&mut self, error: &Error) {
        if let Error::Engine(stele_engine::Error::Overloaded { .. }) = error {
            self.overloaded = Some(error.clone());
        }
    }

    /// Takes the added entries, leaving the batch empty; `None` if there are
    /// none.
    fn take(&mut self) -> Option<(Commit, Vec<usize>)> {
        if self.entries.is_empty() {
            return None;
        }
        self.cost = 0;
        let commit = std::mem::take(&mut self.commit).finish();
        Some((commit, std::mem::take(&mut self.entries)))
    }
}
