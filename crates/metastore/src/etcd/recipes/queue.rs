//! Keys under a name, ordered by their creation.

use bytes::Bytes;

use crate::auth::Access;
use crate::command::{
    Caller, Command, Compare, Delete, KeyRange, Op, OpAnswer, Operand, Order, Put, RangeQuery,
    Relation, Reply, Target, Txn, TxnAnswer,
};
use crate::etcd::{Etcd, kv};
use crate::key::{Kv, Tail};
use crate::state::Floor;
use crate::watch::{Cursor, Event, EventKind};
use crate::{Error, Result};

/// The TTL of a lease that the server grants because the caller has none.
const LEASE_SECONDS: i64 = 60;

/// A place in the queue: a key with a lease.
pub struct Place {
    pub key: Bytes,
    pub lease: i64,
    /// The revision that created the key, which determines its place.
    pub created: i64,
    /// The newest revision when the key was created or found.
    pub revision: i64,
    /// The value of the key, if it existed before.
    pub found: Option<Bytes>,
}

/// Returns the prefix of the keys under a name.
pub fn prefix(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

/// Returns the compare that holds if a key was created at a revision; 0 means
/// that it does not exist.
fn created_at(key: &Bytes, revision: i64) -> Compare {
    let range = KeyRange::single(key.clone());
    Compare { range, relation: Relation::Equal, operand: Operand::Create(revision) }
}

async fn transact(etcd: &Etcd, caller: Option<&Caller>, txn: Txn) -> Result<(TxnAnswer, i64)> {
    let answer = etcd.by(caller).propose(Command::Txn(txn)).await?;
    match answer.reply {
        Reply::Txn(txn) => Ok((txn, answer.revision)),
        _ => Err(kv::unexpected(&answer)),
    }
}

/// Creates the key of a lease under a name, unless it exists.
pub async fn join(
    etcd: &Etcd,
    caller: Option<&Caller>,
    name: &[u8],
    lease: i64,
    value: Bytes,
) -> Result<Place> {
    let lease = match lease {
        0 => granted(etcd, caller).await?,
        lease => lease,
    };
    let sign = if lease < 0 { "-" } else { "" };
    let key: Bytes =
        [&prefix(name)[..], format!("{sign}{:x}", lease.unsigned_abs()).as_bytes()].concat().into();
    let put = Put { lease: Some(lease), ..Put::new(key.clone(), value) };
    let read = RangeQuery::new(KeyRange::single(key.clone()));
    let txn = Txn {
        compares: vec![created_at(&key, 0)],
        success: vec![Op::Put(put)],
        failure: vec![Op::Range(read)],
    };
    let (answer, revision) = transact(etcd, caller, txn).await?;
    let (created, found) = match answer.ops.first() {
        Some(OpAnswer::Range(range)) if !answer.succeeded => {
            let gone = || Error::Internal("a key that exists was not found".into());
            let kv = range.kvs.first().ok_or_else(gone)?;
            let fields = Tail::parse(&kv.tail);
            (fields.create_revision, Some(Bytes::copy_from_slice(fields.value)))
        }
        _ => (revision, None),
    };
    Ok(Place { key, lease, created, revision, found })
}

async fn granted(etcd: &Etcd, caller: Option<&Caller>) -> Result<i64> {
    let answer = etcd.by(caller).lease_grant(0, LEASE_SECONDS).await?;
    match answer.reply {
        Reply::LeaseGrant { id, .. } => Ok(id),
        _ => Err(kv::unexpected(&answer)),
    }
}

/// Writes a value if the key is still the one that was created at a revision.
/// Returns whether it is, and the newest revision.
pub async fn replace(
    etcd: &Etcd,
    caller: Option<&Caller>,
    (key, created): (&Bytes, i64),
    lease: i64,
    value: Bytes,
) -> Result<(bool, i64)> {
    let put = Put { lease: Some(lease), ..Put::new(key.clone(), value) };
    let (compares, success) = (vec![created_at(key, created)], vec![Op::Put(put)]);
    let txn = Txn { compares, success, failure: Vec::new() };
    let (answer, revision) = transact(etcd, caller, txn).await?;
    Ok((answer.succeeded, revision))
}

/// Removes a key if it is still the one that was created at a revision. Returns
/// the newest revision.
pub async fn leave(etcd: &Etcd, caller: Option<&Caller>, key: &Bytes, created: i64) -> Result<i64> {
    let delete = Delete::new(KeyRange::single(key.clone()));
    let (compares, success) = (vec![created_at(key, created)], vec![Op::Delete(delete)]);
    let txn = Txn { compares, success, failure: Vec::new() };
    Ok(transact(etcd, caller, txn).await?.1)
}

/// Reads keys as of now. Returns them and the newest revision.
async fn read(etcd: &Etcd, caller: Option<&Caller>, query: &RangeQuery) -> Result<(Vec<Kv>, i64)> {
    etcd.node().barrier().await?;
    etcd.by(caller).permit(Access::Read(&query.range))?;
    let mut found = Vec::new();
    let end = etcd.node().reader(Floor::Compacted).range(query, &mut |view| {
        let (key, tail) = (Bytes::copy_from_slice(view.key), Bytes::copy_from_slice(view.tail));
        found.push(Kv { key, tail });
    })?;
    Ok((found, end.revision))
}

/// Returns one key, and the newest revision.
pub async fn get(etcd: &Etcd, caller: Option<&Caller>, key: &Bytes) -> Result<(Option<Kv>, i64)> {
    let query = RangeQuery::new(KeyRange::single(key.clone()));
    let (found, revision) = read(etcd, caller, &query).await?;
    Ok((found.into_iter().next(), revision))
}

/// Returns the oldest key under a name, and the newest revision.
pub async fn oldest(
    etcd: &Etcd,
    caller: Option<&Caller>,
    name: &[u8],
) -> Result<(Option<Kv>, i64)> {
    let query = RangeQuery {
        target: Target::Create,
        order: Order::Ascend,
        limit: 1,
        ..RangeQuery::new(KeyRange::prefix(prefix(name)))
    };
    let (found, revision) = read(etcd, caller, &query).await?;
    Ok((found.into_iter().next(), revision))
}

/// Waits until no key under a name was created before a place. Returns whether
/// it had to wait. Waits for the deletion of one key at a time: the last before
/// the place, so that a deletion wakes only one of those who wait.
pub async fn wait(
    etcd: &Etcd,
    caller: Option<&Caller>,
    name: &[u8],
    place: &Place,
) -> Result<bool> {
    let query = RangeQuery {
        target: Target::Create,
        order: Order::Descend,
        limit: 1,
        create_max: place.created - 1,
        ..RangeQuery::new(KeyRange::prefix(prefix(name)))
    };
    let mut waited = false;
    loop {
        let (found, revision) = read(etcd, caller, &query).await?;
        let Some(before) = found.into_iter().next() else { return Ok(waited) };
        waited = true;
        let mut changes = Changes::after(etcd, revision, KeyRange::single(before.key));
        while let Some(events) = changes.next().await? {
            if events.iter().any(|event| event.kind == EventKind::Delete) {
                break;
            }
        }
    }
}

/// The changes of keys after a revision.
pub struct Changes {
    cursor: Cursor,
    range: KeyRange,
}

impl Changes {
    pub fn after(etcd: &Etcd, revision: i64, range: KeyRange) -> Changes {
        Changes { cursor: etcd.node().watch().cursor(revision + 1), range }
    }

    /// Waits for the next changes of values; `None` if some have been compacted.
    pub async fn next(&mut self) -> Result<Option<Vec<Event>>> {
        loop {
            self.cursor.changed().await;
            let (range, mut events) = (&self.range, Vec::new());
            let wanted = &mut |key: &[u8]| range.contains(key);
            match self.cursor.take_with_permit(i64::MAX, wanted, &mut events).await {
                Ok(()) => {}
                Err(Error::Compacted { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
            events.retain(|event| event.kind != EventKind::Lock);
            if !events.is_empty() {
                return Ok(Some(events));
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Removes the key of a call that ends before it reaches the head of the queue,
/// because it fails or its client disconnects.
pub struct Leaving {
    etcd: Etcd,
    caller: Option<Caller>,
    key: Bytes,
    created: i64,
    pending: bool,
}

impl Leaving {
    /// A key that existed before the call stays.
    pub fn new(etcd: &Etcd, caller: Option<&Caller>, place: &Place) -> Leaving {
        Leaving {
            etcd: etcd.clone(),
            caller: caller.cloned(),
            key: place.key.clone(),
            created: place.created,
            pending: place.found.is_none(),
        }
    }

    /// Keeps the key.
    pub fn stay(mut self) {
        self.pending = false;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if self.pending {
            let (etcd, caller) = (self.etcd.clone(), self.caller.take());
            let (key, created) = (self.key.clone(), self.created);
            tokio::spawn(async move {
                // There is no caller left to report a failure to; the key ends
                // with its lease.
                let _ = leave(&etcd, caller.as_ref(), &key, created).await;
            });
        }
    }
}
