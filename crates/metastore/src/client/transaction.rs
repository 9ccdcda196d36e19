//! Serializable transactions. The client records reads and buffers writes, and
//! sends both to the server at the end, which commits if nothing that was read
//! has changed. A transaction with a conflict is retried and reports its age,
//! so that the server can prefer the oldest.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use stele_grpc::Pending;

use super::{At, Client, Error, HeldLock, KeyValue, Range, Result};
use crate::proto::native as proto;

/// The limits of a transaction's retries.
#[derive(Clone, Copy, Debug)]
pub struct RetryOptions {
    pub time_max: Duration,
    pub attempts_max: u32,
}

impl Default for RetryOptions {
    fn default() -> RetryOptions {
        RetryOptions { time_max: Duration::from_secs(60), attempts_max: u32::MAX }
    }
}

/// An attempt of a transaction. Clones share it.
#[derive(Clone)]
pub struct Transaction {
    client: Client,
    revision: i64,
    recorded: Arc<Mutex<Recorded>>,
}

/// What an attempt has read and is going to write.
#[derive(Default)]
struct Recorded {
    reads: Vec<Range>,
    writes: BTreeMap<Bytes, Write>,
    locks: Vec<proto::HeldLock>,
}

#[derive(Clone)]
struct Write {
    value: Option<Bytes>,
    client_id: i64,
}

impl Client {
    /// Runs `body` until it commits without a conflict. It may run several
    /// times, each time at a newer revision, so it must have no other side
    /// effects. Returns its result and the revision of the commit.
    pub async fn transact<T, F, R>(&self, body: F) -> Result<(T, i64)>
    where
        F: FnMut(Transaction) -> R,
        R: Future<Output = Result<T>>,
    {
        self.transact_with(RetryOptions::default(), body).await
    }

    pub async fn transact_with<T, F, R>(
        &self,
        options: RetryOptions,
        mut body: F,
    ) -> Result<(T, i64)>
    where
        F: FnMut(Transaction) -> R,
        R: Future<Output = Result<T>>,
    {
        let started = Instant::now();
        let attempt_id = random_id();
        let mut attempts = 0;
        loop {
            let transaction = Transaction {
                client: self.clone(),
                revision: self.snapshot(At::Newest).await?,
                recorded: Arc::default(),
            };
            // A conflict of a read inside the body is a conflict of the
            // transaction.
            let outcome = match body(transaction.clone()).await {
                Ok(value) => {
                    let committed = transaction.commit(attempt_id, started.elapsed()).await;
                    committed.map(|revision| (value, revision))
                }
                Err(error) => Err(error),
            };
            attempts += 1;
            match outcome {
                Err(Error::Conflict(_))
                    if attempts < options.attempts_max && started.elapsed() < options.time_max => {}
                outcome => return outcome,
            }
        }
    }
}

impl Transaction {
    /// Returns the revision of all reads.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns a key's value, including the writes of this transaction.
    pub fn get(&self, key: impl Into<Bytes>) -> Pending<'_, Result<Option<Bytes>>> {
        let key = key.into();
        Box::pin(self.get_key(key))
    }

    async fn get_key(&self, key: Bytes) -> Result<Option<Bytes>> {
        if let Some(written) = self.recorded.lock().writes.get(&key) {
            return Ok(written.value.clone());
        }
        self.recorded.lock().reads.push(Range::Key(key.clone()));
        Ok(self.client.get(key, self.revision).await?.map(|kv| kv.value))
    }

    /// Returns all keys and values of a range, including the writes of this
    /// transaction.
    pub async fn get_range(&self, range: Range) -> Result<BTreeMap<Bytes, Bytes>> {
        self.recorded.lock().reads.push(range.clone());
        let mut found = BTreeMap::new();
        let mut each = |kv: KeyValue| {
            found.insert(kv.key, kv.value);
        };
        self.client.read(&range, self.revision, &mut each).await?;
        for (key, write) in &self.recorded.lock().writes {
            if range.contains(key) {
                match &write.value {
                    Some(value) => found.insert(key.clone(), value.clone()),
                    None => found.remove(key),
                };
            }
        }
        Ok(found)
    }

    pub fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.write(key.into(), Some(value.into()), 0);
    }

    /// Puts a key that is attached to a session.
    pub fn put_with(&self, key: impl Into<Bytes>, value: impl Into<Bytes>, client_id: i64) {
        self.write(key.into(), Some(value.into()), client_id);
    }

    pub fn delete(&self, key: impl Into<Bytes>) {
        self.write(key.into(), None, 0);
    }

    /// Makes the commit conditional on this lock being held.
    pub fn require(&self, held: &HeldLock) {
        self.recorded.lock().locks.push(held.proof());
    }

    fn write(&self, key: Bytes, value: Option<Bytes>, client_id: i64) {
        self.recorded.lock().writes.insert(key, Write { value, client_id });
    }

    /// Commits. A read-only transaction needs no commit, because all its reads
    /// were at one revision.
    async fn commit(&self, attempt_id: u64, age: Duration) -> Result<i64> {
        let Recorded { reads, writes, locks } = std::mem::take(&mut *self.recorded.lock());
        if writes.is_empty() && locks.is_empty() {
            return Ok(self.revision);
        }
        let write = |(key, Write { value, client_id })| proto::Write { key, value, client_id };
        let request = proto::ExecuteRequest {
            read_revision: self.revision,
            reads: reads.into_iter().map(proto::KeyRange::from).collect(),
            writes: writes.into_iter().map(write).collect(),
            locks,
            attempt_id,
            age_micros: i64::try_from(age.as_micros()).unwrap_or(i64::MAX),
        };
        Ok(self.client.api().execute(request).await?.into_inner().revision)
    }
}

/// Returns an id that is unique to a transaction.
fn random_id() -> u64 {
    fastrand::u64(1..)
}
