//! The rows of tablets as keys of the coordinator. A change is one transaction on the rows
//! that it touches, under the condition that its sender has its lease (R1.5, R2.2).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use stele_engine::config::{
    Answer, Done, Found, Mutation, OpId, Outcome, RowEdit, RowKey, RowSet, Submission,
    TabletConfig, TabletRow, TabletRows,
};
use stele_engine::schema::Schema;
use stele_engine::{Error, Result, RowRange, TableId, TabletId};

use super::owned_row::{Holder, LogStart, OwnedRow, Owner};
use crate::coordinate::{Compare, KeyValue, Keys, Op, Transaction, Unreachable};
use crate::detached::detach;
use crate::incarnation::Incarnation;

/// Returns the next slot of the log of this server that belongs to nobody.
type NextSlot = Box<dyn Fn() -> u64 + Send + Sync>;

/// The rows of all tables, as one incarnation of a server changes them. Clones share its
/// state.
#[derive(Clone)]
pub struct RootRows {
    shared: Arc<Shared>,
}

struct Shared {
    incarnation: Arc<Incarnation>,
    /// Of the tables whose rows the engine may change.
    schemas: Mutex<BTreeMap<TableId, Arc<Schema>>>,
    next_slot: NextSlot,
    /// The last number of a tablet id.
    tablets: AtomicU32,
    /// Number of mutations that were not made by the engine.
    ops: AtomicU64,
}

/// Ids of mutations that do not come from the engine have this bit.
const OWN_OPS: u64 = 1 << 63;

/// The maximum number of mutations of a submission that are under way at a time.
const MUTATIONS_MAX: usize = 32;

/// Mutations of the engine that are being made.
struct Submitted {
    mutations: Vec<Mutation>,
    /// The first that nobody makes yet.
    next: AtomicUsize,
    /// The outcomes, and the number of those that are known.
    ended: Mutex<(Vec<Outcome>, usize)>,
    done: Mutex<Option<Done<Answer>>>,
    riders: Vec<bool>,
}

/// A row as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    pub table: TableId,
    pub row: OwnedRow,
    key: Vec<u8>,
    modified: i64,
}

impl RootRows {
    /// Returns the rows for an incarnation. `next_slot` returns the next slot of its log
    /// that belongs to nobody.
    pub fn new(
        incarnation: Arc<Incarnation>,
        next_slot: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> RootRows {
        let shared = Shared {
            incarnation,
            schemas: Mutex::default(),
            next_slot: Box::new(next_slot),
            tablets: AtomicU32::new(0),
            ops: AtomicU64::new(0),
        };
        RootRows { shared: Arc::new(shared) }
    }

    /// Notes the schema of a table: the engine may change its rows.
    pub fn adopt(&self, table: TableId, schema: Arc<Schema>) {
        self.shared.schemas.lock().insert(table, schema);
    }

    /// Forgets a table that was dropped.
    pub fn forget(&self, table: TableId) {
        self.shared.schemas.lock().remove(&table);
    }

    /// Returns the keys and values of the rows of a new table whose tablets meet at
    /// `splits`. Nobody owns them.
    pub fn rows_of_new_table(
        &self,
        table: TableId,
        schema: &Schema,
        splits: &[Vec<u8>],
    ) -> Result<Vec<(Vec<u8>, Bytes)>> {
        if !splits.is_sorted_by(|a, b| a < b) || splits.iter().any(Vec::is_empty) {
            let what = "the rows at which a table is split must ascend and not be empty";
            return Err(Error::InvalidSplit(what.into()));
        }
        let starts = std::iter::once(Vec::new()).chain(splits.iter().cloned());
        let ends = splits.iter().cloned().map(Some).chain([None]);
        let row = |(start, end): (Vec<u8>, Option<Vec<u8>>)| {
            let key = self.keys().tablet(table, end.as_deref());
            let rows = RowRange { start, end };
            let mut config = TabletConfig::new(self.next_tablet()?, rows, schema.groups().len());
            config.loaded = false;
            Ok((key, OwnedRow::new(config).encode()))
        };
        starts.zip(ends).map(row).collect()
    }

    /// Creates the rows of a new table, unless there are any.
    pub async fn create(
        &self,
        table: TableId,
        schema: &Schema,
        splits: &[Vec<u8>],
    ) -> Result<Result<bool>, Unreachable> {
        let rows = match self.rows_of_new_table(table, schema, splits) {
            Ok(rows) => rows,
            Err(error) => return Ok(Err(error)),
        };
        let when = rows.iter().map(|(key, _)| Compare::Absent(key.clone())).collect();
        let then = rows.into_iter().map(|(key, value)| Op::put(key, value)).collect();
        let transaction = Transaction { when, then, otherwise: Vec::new() };
        let coordinator = &self.shared.incarnation.world.coordinator;
        Ok(Ok(coordinator.run(transaction).await?.applied))
    }

    fn keys(&self) -> &Keys {
        &self.shared.incarnation.world.keys
    }

    /// Returns the rows of all tables, in order, at one moment.
    pub async fn all(&self) -> Result<Result<Vec<StoredRow>>, Unreachable> {
        self.with_prefix(self.keys().all_tablets()).await
    }

    /// Returns the rows of a table, in order, at one moment.
    pub async fn of_table(&self, table: TableId) -> Result<Result<Vec<StoredRow>>, Unreachable> {
        self.with_prefix(self.keys().tablets(table)).await
    }

    async fn with_prefix(&self, prefix: Vec<u8>) -> Result<Result<Vec<StoredRow>>, Unreachable> {
        let found = self.shared.incarnation.world.coordinator.get_all(prefix).await?;
        Ok(found.into_iter().map(|found| stored(self.keys(), found)).collect())
    }

    /// Returns those of some rows that exist, at one moment.
    pub(crate) async fn some<'k>(
        &self,
        keys: impl Iterator<Item = &'k RowKey>,
    ) -> Result<Result<Vec<StoredRow>>, Unreachable> {
        let get = |key: &RowKey| Op::Get(self.keys().tablet(key.table, key.end.as_deref()));
        let then = keys.map(get).collect();
        let transaction = Transaction { then, ..Transaction::default() };
        let found = self.shared.incarnation.world.coordinator.run(transaction).await?.found;
        Ok(found.into_iter().map(|found| stored(self.keys(), found)).collect())
    }

    /// Replaces the content of a row, if it is still as it was read. The new content gets
    /// the next `rev` and an id of its own. Resends until the outcome is known; fails when
    /// the lease ends.
    ///
    /// Returns the row if it was replaced, `None` if somebody else has changed it.
    pub async fn change(&self, found: &StoredRow, to: OwnedRow) -> Result<Option<StoredRow>> {
        let (incarnation, rules) = (&self.shared.incarnation, self.shared.incarnation.world.rules);
        let number = self.shared.ops.fetch_add(1, Ordering::Relaxed) | OWN_OPS;
        let op = OpId { incarnation: incarnation.epoch, number };
        let mut config = (*to.config).clone();
        config.rev = found.row.config.rev.saturating_add(1);
        let is_recoverer = [&found.row.owner, &to.owner].into_iter().any(Owner::is_recoverer);
        let is_conditional =
            if is_recoverer { rules.recoverer_conditional } else { rules.server_conditional };
        let row = OwnedRow { config: Arc::new(config), op: Some(op), ..to };
        let mut when = Vec::new();
        if is_conditional {
            when =
                vec![incarnation.has_lease(), Compare::Modified(found.key.clone(), found.modified)];
        }
        let transaction = Transaction {
            when,
            then: vec![Op::put(found.key.clone(), row.encode())],
            otherwise: vec![Op::Get(found.key.clone())],
        };
        loop {
            incarnation.lease.check()?;
            match incarnation.world.coordinator.run(transaction.clone()).await {
                Ok(done) if done.applied => {
                    let (table, key) = (found.table, found.key.clone());
                    return Ok(Some(StoredRow { table, row, modified: done.revision, key }));
                }
                Ok(done) => {
                    // The row tells whether an earlier attempt was applied.
                    let now = done.found.into_iter().next();
                    let now = now.map(|now| stored(self.keys(), now)).transpose()?;
                    return Ok(now.filter(|now| now.row.op == Some(op)));
                }
                Err(_) => incarnation.world.pause().await,
            }
        }
    }

    /// Makes those mutations of a submission that nobody else makes.
    async fn mutate_all(self, submitted: Arc<Submitted>) {
        loop {
            let at = submitted.next.fetch_add(1, Ordering::Relaxed);
            let Some(mutation) = submitted.mutations.get(at) else { return };
            let outcome = self.mutate(mutation).await;
            let mut ended = submitted.ended.lock();
            ended.0[at] = outcome;
            ended.1 += 1;
            if ended.1 < submitted.mutations.len() {
                continue;
            }
            let outcomes = std::mem::take(&mut ended.0);
            drop(ended);
            if let Some(done) = submitted.done.lock().take() {
                done(Answer { outcomes, riders: submitted.riders.clone() });
            }
        }
    }

    /// Makes a mutation of the engine, once. Nothing but its row tells that it has no
    /// effect: an earlier attempt may still be under way.
    async fn mutate(&self, mutation: &Mutation) -> Outcome {
        let incarnation = &self.shared.incarnation;
        // Without a lease the engine is about to be halted: it does not wait for more.
        if incarnation.lease.check().is_err() {
            incarnation.world.pause().await;
            return Outcome::Unknown;
        }
        match self.try_mutate(mutation).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                report(&error);
                incarnation.world.pause().await;
                Outcome::Unknown
            }
            Err(Unreachable(_)) => {
                incarnation.world.pause().await;
                Outcome::Unknown
            }
        }
    }

    async fn try_mutate(&self, mutation: &Mutation) -> Result<Result<Outcome>, Unreachable> {
        let lower = mutation.lower.iter().map(|(key, _)| key);
        let keys: Vec<&RowKey> = lower.chain([&mutation.key]).collect();
        let rows = match self.some(keys.iter().copied()).await? {
            Ok(rows) => rows,
            Err(error) => return Ok(Err(error)),
        };
        let transaction = match self.transaction(&rows, mutation) {
            Ok(Some(transaction)) => transaction,
            Ok(None) => return Ok(Ok(Outcome::Refused(self.find(&rows, &mutation.key)))),
            Err(error) => return Ok(Err(error)),
        };
        if self.shared.incarnation.world.coordinator.run(transaction).await?.applied {
            return Ok(Ok(Outcome::Applied));
        }
        // The rows have changed since they were read, or the lease is gone.
        let now = self.some(keys.into_iter()).await?;
        Ok(now.map(|rows| Outcome::Refused(self.find(&rows, &mutation.key))))
    }

    /// Returns the transaction of a mutation; `None` if the rows are not as it expects.
    fn transaction(&self, rows: &[StoredRow], mutation: &Mutation) -> Result<Option<Transaction>> {
        let (shared, table) = (&self.shared, mutation.key.table);
        let Some(schema) = shared.schemas.lock().get(&table).cloned() else {
            return Err(Error::UnknownTable(format!("number {}", table.0)));
        };
        if rows.is_empty() {
            return Ok(None);
        }
        let known: Vec<Arc<TabletConfig>> =
            rows.iter().map(|stored| stored.row.config.clone()).collect();
        let set = RowSet::part(table, schema, known);
        let Ok(mut set) = set else { return Ok(None) };
        let is_gap = |id: TabletId| id == TabletId::default();
        if !set.apply(mutation, self.next_tablet()?) {
            return Ok(None);
        }
        let mut when = Vec::new();
        if shared.incarnation.world.rules.server_conditional {
            when.push(shared.incarnation.has_lease());
        }
        let mut left: BTreeMap<&[u8], &StoredRow> =
            rows.iter().map(|stored| (&stored.key[..], stored)).collect();
        let mut then = Vec::new();
        // A new row gets the owner and the log of the one that it was split from.
        let source = self.keys().tablet(table, mutation.key.end.as_deref());
        let source = left.get(&source[..]).copied();
        for config in set.rows().filter(|config| !is_gap(config.id)) {
            let key = self.keys().tablet(table, config.rows.end.as_deref());
            let old = left.remove(&key[..]);
            if old.is_some_and(|old| old.row.config == *config) {
                continue;
            }
            when.push(match old {
                Some(old) => Compare::Modified(key.clone(), old.modified),
                None => Compare::Absent(key.clone()),
            });
            let Some(from) = old.or(source) else { return Ok(None) };
            let mut row = OwnedRow { config: config.clone(), op: None, ..from.row.clone() };
            if config.rows.end == mutation.key.end {
                row.op = Some(mutation.op);
                mutation.edits.iter().for_each(|edit| self.set_owner(&mut row, edit));
            }
            then.push(Op::put(key, row.encode()));
        }
        for gone in left.values() {
            when.push(Compare::Modified(gone.key.clone(), gone.modified));
            then.push(Op::Delete(gone.key.clone()));
        }
        if !shared.incarnation.world.rules.server_conditional {
            when.clear();
        }
        Ok(Some(Transaction { when, then, otherwise: Vec::new() }))
    }

    /// Sets the owner of a row whose tablet is loaded or unloaded (R3.3, R7).
    fn set_owner(&self, row: &mut OwnedRow, edit: &RowEdit) {
        let RowEdit::SetLoaded { loaded, flushed, .. } = edit else { return };
        if let Some(flushed) = flushed {
            let config = Arc::make_mut(&mut row.config);
            for chain in &mut config.chains {
                chain.flushed = chain.flushed.max(*flushed);
            }
        }
        (row.owner, row.log) = match loaded {
            true => (Owner::Server(self.holder()), Some(self.log_start())),
            false => (Owner::Nobody, None),
        };
    }

    /// Returns this incarnation, as rows name it.
    pub fn holder(&self) -> Holder {
        let incarnation = &self.shared.incarnation;
        Holder { id: incarnation.id.clone(), epoch: incarnation.epoch }
    }

    /// Returns where the log of a tablet starts that is loaded now.
    pub fn log_start(&self) -> LogStart {
        LogStart { epoch: self.shared.incarnation.epoch, from: (self.shared.next_slot)() }
    }

    fn next_tablet(&self) -> Result<TabletId> {
        let number = self.shared.tablets.fetch_add(1, Ordering::Relaxed) + 1;
        let spent = |_| Error::InvalidSplit("the numbers of epochs are exhausted".into());
        let incarnation = u32::try_from(self.shared.incarnation.epoch).map_err(spent)?;
        Ok(TabletId { incarnation, number })
    }

    fn find(&self, rows: &[StoredRow], key: &RowKey) -> Option<TabletRow> {
        let is_it = |row: &&StoredRow| row.table == key.table && row.row.config.rows.end == key.end;
        let found = &rows.iter().find(is_it)?.row;
        Some(TabletRow { config: found.config.clone(), op: found.op })
    }
}

fn report(error: &Error) {
    tracing::error!(%error, "rows of tablets cannot be read: they stay as they are");
}

fn stored(keys: &Keys, found: KeyValue) -> Result<StoredRow> {
    StoredRow::of(keys, found)
}

impl StoredRow {
    /// Decodes a key and its value.
    pub fn of(keys: &Keys, found: KeyValue) -> Result<StoredRow> {
        let row = OwnedRow::decode(&found.value)?;
        let invalid = || Error::InvalidPackedFormat { at: 0, what: "the key of a row".into() };
        let (table, end) = keys.parse_tablet(&found.key).ok_or_else(invalid)?;
        if row.config.rows.end != end {
            return Err(invalid());
        }
        Ok(StoredRow { table, row, key: found.key, modified: found.modified })
    }
}

impl TabletRows for RootRows {
    fn submit(&self, submission: Submission, done: Done<Answer>) {
        // Riders belong to the store's own config.
        let riders = vec![false; submission.riders.len()];
        let count = submission.mutations.len();
        if count == 0 {
            return done(Answer { outcomes: Vec::new(), riders });
        }
        let submitted = Arc::new(Submitted {
            mutations: submission.mutations,
            next: AtomicUsize::new(0),
            ended: Mutex::new((vec![Outcome::Unknown; count], 0)),
            done: Mutex::new(Some(done)),
            riders,
        });
        for _ in 0..count.min(MUTATIONS_MAX) {
            detach(self.clone().mutate_all(submitted.clone()));
        }
    }

    fn read(&self, keys: Vec<RowKey>, done: Done<Vec<Found>>) {
        let rows = self.clone();
        detach(async move {
            let found = match rows.some(keys.iter()).await {
                Ok(Ok(some)) => {
                    let found = |key| rows.find(&some, key).map_or(Found::Missing, Found::Row);
                    keys.iter().map(found).collect()
                }
                unknown => {
                    if let Ok(Err(error)) = &unknown {
                        report(error);
                    }
                    rows.shared.incarnation.world.pause().await;
                    vec![Found::Unknown; keys.len()]
                }
            };
            done(found);
        });
    }
}
