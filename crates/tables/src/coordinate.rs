//! The coordinator: keys with revisions, transactions and leases, as etcd has them.
//! Through it the servers of a cluster agree on who is alive and who owns what.
//!
//! Requests are started, and a callback reports the outcome; [`ask`] waits for it on any
//! executor. `sim_etcd` is a coordinator in memory for simulations.

mod keys;
mod sim_etcd;

use std::time::Duration;

use bytes::Bytes;
use futures_channel::oneshot;

pub use keys::Keys;
pub(crate) use keys::{number, parse_number};
pub use sim_etcd::{EtcdFaults, SimEtcd, SimEtcdConnection};

/// A request has no answer. It may have been applied, or be applied later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the coordinator does not answer: {0}")]
pub struct Unreachable(pub String);

/// Called once with the outcome of a request, on any thread. It must not block.
pub type Done<T> = Box<dyn FnOnce(Result<T, Unreachable>) + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// A key as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: Vec<u8>,
    pub value: Bytes,
    /// The revisions at which the key was created and last changed.
    pub created: i64,
    pub modified: i64,
    pub lease: Option<LeaseId>,
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    Absent(Vec<u8>),
    /// The key exists since this revision.
    Created(Vec<u8>, i64),
    /// The key exists and was last changed at this revision.
    Modified(Vec<u8>, i64),
}

/// A step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Put {
        key: Vec<u8>,
        value: Bytes,
        lease: Option<LeaseId>,
    },
    Delete(Vec<u8>),
    Get(Vec<u8>),
    /// Gets all keys with a prefix, in order.
    GetAll(Vec<u8>),
}

impl Op {
    /// Puts a key without a lease.
    pub fn put(key: Vec<u8>, value: impl Into<Bytes>) -> Op {
        Op::Put { key, value: value.into(), lease: None }
    }
}

/// Steps that are taken together, in order: `then` if all conditions hold, `otherwise` if
/// not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    pub when: Vec<Compare>,
    pub then: Vec<Op>,
    pub otherwise: Vec<Op>,
}

/// What a transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transacted {
    /// Whether the conditions held.
    pub applied: bool,
    pub revision: i64,
    /// The keys that were got, in order.
    pub found: Vec<KeyValue>,
}

/// A change of a watched key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub key: Vec<u8>,
    /// `None` if it was deleted or its lease has lapsed.
    pub value: Option<KeyValue>,
}

/// A watch, which ends when it is dropped.
pub trait Watch: Send + Sync {}

/// Called for every change of a watched key, in order.
pub type OnChange = Box<dyn Fn(Changed) + Send + Sync>;

/// A linearizable store of keys.
pub trait Coordinator: Send + Sync {
    fn transact(&self, transaction: Transaction, done: Done<Transacted>);

    /// Grants a lease that lapses unless it is kept alive within `ttl`. Keys that were put
    /// with it are deleted then.
    fn grant(&self, ttl: Duration, done: Done<LeaseId>);

    /// Renews a lease. Reports false if there is none.
    fn keep_alive(&self, lease: LeaseId, done: Done<bool>);

    fn revoke(&self, lease: LeaseId, done: Done<()>);

    /// Reports the changes of a key after a revision.
    fn watch(&self, key: Vec<u8>, after: i64, each: OnChange) -> Box<dyn Watch>;
}

impl dyn Coordinator + '_ {
    /// Returns a key, or `None` if there is none.
    pub async fn get(&self, key: Vec<u8>) -> Result<Option<KeyValue>, Unreachable> {
        let get = Transaction { then: vec![Op::Get(key)], ..Transaction::default() };
        Ok(self.run(get).await?.found.pop())
    }

    /// Returns all keys with a prefix, in order, at one revision.
    pub async fn get_all(&self, prefix: Vec<u8>) -> Result<Vec<KeyValue>, Unreachable> {
        let get = Transaction { then: vec![Op::GetAll(prefix)], ..Transaction::default() };
        Ok(self.run(get).await?.found)
    }

    /// Runs a transaction.
    pub async fn run(&self, transaction: Transaction) -> Result<Transacted, Unreachable> {
        ask(|done| self.transact(transaction, done)).await
    }
}

/// Starts a request and waits for its outcome.
pub async fn ask<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> Result<T, Unreachable> {
    let (ended, outcome) = oneshot::channel();
    start(Box::new(move |result| {
        // The caller may have been cancelled.
        let _ = ended.send(result);
    }));
    outcome.await.unwrap_or_else(|_| Err(Unreachable("the request was dropped".into())))
}
