//! The rows of META tablets, which are keys of the coordinator. A change is one
//! transaction on the rows that it touches, under the condition that its sender has its
//! lease (R1.5, R2.2).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use stele_engine::config::{
    Answer, Done, Found, Mutation, OpId, Outcome, RowEdit, RowKey, RowSet, Submission, TabletRow,
    TabletRows,
};
use stele_engine::schema::Schema;
use stele_engine::{Error, Result, TableId, TabletId};

use super::owned_row::{Holder, LogStart, OwnedRow, Owner};
use crate::coordinate::{Compare, KeyValue, Op, Transaction, Unreachable};
use crate::detached::detach;
use crate::incarnation::Incarnation;

/// Returns the next slot of the log of this server that belongs to nobody.
type NextSlot = Box<dyn Fn() -> u64 + Send + Sync>;

/// The rows of the table META, as one incarnation of a server changes them. Clones share
/// its state.
#[derive(Clone)]
pub struct RootRows {
    shared: Arc<Shared>,
}

struct Shared {
    incarnation: Arc<Incarnation>,
    table: TableId,
    schema: Arc<Schema>,
    next_slot: NextSlot,
    /// The last number of a tablet id.
    tablets: AtomicU32,
    /// Number of mutations that were not made by the engine.
    ops: AtomicU64,
}

/// Ids of mutations that do not come from the engine have this bit.
const OWN_OPS: u64 = 1 << 63;

/// A row as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    pub row: OwnedRow,
    key: Vec<u8>,
    modified: i64,
}

impl RootRows {
    /// Returns the rows for an incarnation. `next_slot` returns the next slot of its log
    /// that belongs to nobody.
    pub fn new(
        incarnation: Arc<Incarnation>,
        table: TableId,
        schema: Arc<Schema>,
        next_slot: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> RootRows {
        let shared = Shared {
            incarnation,
            table,
            schema,
            next_slot: Box::new(next_slot),
            tablets: AtomicU32::new(0),
            ops: AtomicU64::new(0),
        };
        RootRows { shared: Arc::new(shared) }
    }

    /// Creates the rows of a new table, unless there are any.
    pub async fn create(&self, rows: &[OwnedRow]) -> Result<bool, Unreachable> {
        let world = &self.shared.incarnation.world;
        let key = |row: &OwnedRow| world.keys.row(row.config.rows.end.as_deref());
        let when = rows.iter().map(|row| Compare::Absent(key(row))).collect();
        let then = rows.iter().map(|row| Op::put(key(row), row.encode())).collect();
        let transaction = Transaction { when, then, otherwise: Vec::new() };
        Ok(world.coordinator.run(transaction).await?.applied)
    }

    /// Returns all rows, in order, at one moment.
    pub async fn all(&self) -> Result<Result<Vec<StoredRow>>, Unreachable> {
        let world = &self.shared.incarnation.world;
        let found = world.coordinator.get_all(world.keys.rows()).await?;
        Ok(found.into_iter().map(stored).collect())
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
                    return Ok(Some(StoredRow {
                        row,
                        modified: done.revision,
                        key: found.key.clone(),
                    }));
                }
                Ok(done) => {
                    // The row tells whether an earlier attempt was applied.
                    let now = done.found.into_iter().next().map(stored).transpose()?;
                    return Ok(now.filter(|now| now.row.op == Some(op)));
                }
                Err(_) => incarnation.world.pause().await,
            }
        }
    }

    /// Makes a mutation of the engine, once. Nothing but its row tells that it has no
    /// effect: an earlier attempt may still be under way.
    async fn mutate(&self, mutation: &Mutation) -> Outcome {
        match self.try_mutate(mutation).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => {
                report(&error);
                self.shared.incarnation.world.pause().await;
                Outcome::Unknown
            }
            Err(Unreachable(_)) => {
                self.shared.incarnation.world.pause().await;
                Outcome::Unknown
            }
        }
    }

    async fn try_mutate(&self, mutation: &Mutation) -> Result<Result<Outcome>, Unreachable> {
        let rows = match self.all().await? {
            Ok(rows) => rows,
            Err(error) => return Ok(Err(error)),
        };
        let transaction = match self.transaction(&rows, mutation) {
            Ok(Some(transaction)) => transaction,
            Ok(None) => return Ok(Ok(Outcome::Refused(find(&rows, &mutation.key)))),
            Err(error) => return Ok(Err(error)),
        };
        if self.shared.incarnation.world.coordinator.run(transaction).await?.applied {
            return Ok(Ok(Outcome::Applied));
        }
        // The rows have changed since they were read, or the lease is gone.
        Ok(self.all().await?.map(|rows| Outcome::Refused(find(&rows, &mutation.key))))
    }

    /// Returns the transaction of a mutation; `None` if the rows are not as it expects.
    fn transaction(&self, rows: &[StoredRow], mutation: &Mutation) -> Result<Option<Transaction>> {
        let shared = &self.shared;
        let configs = rows.iter().map(|stored| stored.row.config.clone()).collect();
        let mut set = RowSet::new(shared.table, shared.schema.clone(), configs)?;
        if mutation.key.table != shared.table || !set.apply(mutation, self.next_tablet()?) {
            return Ok(None);
        }
        let keys = &shared.incarnation.world.keys;
        let before: BTreeMap<&[u8], &StoredRow> =
            rows.iter().map(|stored| (&stored.key[..], stored)).collect();
        let mut when = vec![shared.incarnation.has_lease()];
        let mut then = Vec::new();
        let mut left = before.clone();
        // A new row gets the owner and the log of the one that it was split from.
        let source = before.get(&keys.row(mutation.key.end.as_deref())[..]).copied();
        for config in set.rows() {
            let key = keys.row(config.rows.end.as_deref());
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
        Ok(Some(Transaction { when, then, otherwise: Vec::new() }))
    }

    /// Sets the owner of a row whose tablet is loaded or unloaded (R3.3, R7).
    fn set_owner(&self, row: &mut OwnedRow, edit: &RowEdit) {
        let RowEdit::SetLoaded { loaded, .. } = edit else { return };
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
}

fn report(error: &Error) {
    tracing::error!(%error, "rows of META are damaged: their tablets stay as they are");
}

fn stored(found: KeyValue) -> Result<StoredRow> {
    let row = OwnedRow::decode(&found.value)?;
    Ok(StoredRow { row, key: found.key, modified: found.modified })
}

fn find(rows: &[StoredRow], key: &RowKey) -> Option<TabletRow> {
    let mut rows = rows.iter().map(|stored| &stored.row);
    let row = rows.find(|row| row.config.rows.end == key.end)?;
    Some(TabletRow { config: row.config.clone(), op: row.op })
}

impl TabletRows for RootRows {
    fn submit(&self, submission: Submission, done: Done<Answer>) {
        let rows = self.clone();
        detach(async move {
            let mut answer = Answer::default();
            for mutation in &submission.mutations {
                answer.outcomes.push(rows.mutate(mutation).await);
            }
            // Riders belong to the store's own config.
            answer.riders = vec![false; submission.riders.len()];
            done(answer);
        });
    }

    fn read(&self, keys: Vec<RowKey>, done: Done<Vec<Found>>) {
        let rows = self.clone();
        detach(async move {
            let found = match rows.all().await {
                Ok(Ok(all)) => {
                    let found = |key: &RowKey| {
                        let row = find(&all, key).filter(|_| key.table == rows.shared.table);
                        row.map_or(Found::Missing, Found::Row)
                    };
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
