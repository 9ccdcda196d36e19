//! Clients: each sends random operations to random members, and records what it
//! was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use stele_engine::world::{Random, SeededRandom};
use stele_metastore::command::{
    Acquire, Command, Compare, KeyRange, LockMode, Op, Operand, Put, RangeQuery, Relation, Reply,
    Txn,
};
use stele_metastore::{Error, Floor, Node};
use tokio::time::Instant;

use super::history::{Done, History, What};

/// The running members, with the number of each run.
#[derive(Default)]
pub struct Members {
    pub running: Mutex<BTreeMap<u64, (u64, Arc<Node>)>>,
}

impl Members {
    pub fn choose(&self, random: &SeededRandom) -> Option<(u64, u64, Arc<Node>)> {
        let running = self.running.lock();
        let count = running.len() as u64;
        let at = random.next_u64().checked_rem(count)?;
        let (member, (run, node)) = running.iter().nth(at as usize)?;
        Some((*member, *run, node.clone()))
    }

    /// Returns whether an answer of a run counts: one that has crashed sends
    /// none.
    pub fn counts(&self, member: u64, run: u64) -> bool {
        self.running.lock().get(&member).is_some_and(|(now, _)| *now == run)
    }
}

/// What the clients of a run share.
pub struct Clients {
    pub members: Arc<Members>,
    pub history: Mutex<History>,
    pub start: Instant,
    pub seed: u64,
    /// The longest pause between two operations of a client.
    pub pause_max: Duration,
    /// Set when the clients shall end.
    pub ended: AtomicBool,
}

impl Clients {
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub fn random(&self, client: usize) -> SeededRandom {
        SeededRandom::new(self.seed ^ ((client as u64 + 1) << 20))
    }

    /// Returns a random pause between operations.
    pub fn pause(&self, random: &SeededRandom) -> Duration {
        Duration::from_micros(random.next_u64() % self.pause_max.as_micros() as u64)
    }

    /// Reports a violation.
    pub fn violated(&self, what: String) {
        self.history.lock().violations.push(what);
    }

    /// Runs a client that reads and writes until the end.
    pub async fn read_and_write(self: Arc<Self>, client: usize) {
        let random = self.random(client);
        let mut count = 0;
        while !self.ended() {
            tokio::time::sleep(self.pause(&random)).await;
            let Some((member, run, node)) = self.members.choose(&random) else { continue };
            count += 1;
            let key = Bytes::from(format!("key{}", random.next_u64() % 3));
            let value = Bytes::from(format!("{client}.{count}"));
            let began = self.now();
            let done = match random.next_u64() % 10 {
                0..=3 => put(&node, &key, value).await,
                4..=7 => get(&node, &key).await,
                8 => swap(&node, &key, value).await,
                _ => lock(&node, &key, random.next_u64()).await,
            };
            let ended = self.now();
            if let Ok((revision, what)) = done
                && self.members.counts(member, run)
            {
                let done = Done { began, ended, revision, key, what };
                self.history.lock().done.push(done);
            }
        }
    }

    /// Runs a watch that continues at another member each time.
    pub async fn watch(self: Arc<Self>, client: usize) {
        let random = self.random(client);
        let mut next = 2;
        while !self.ended() {
            tokio::time::sleep(Duration::from_millis(random.next_u64() % 300)).await;
            let Some((member, run, node)) = self.members.choose(&random) else { continue };
            let newest = node.revision();
            let mut cursor = node.watch().cursor_retained(next);
            let mut events = Vec::new();
            while cursor.next() <= newest {
                if cursor.take(newest, &mut |_| true, &mut events).is_err() {
                    break;
                }
            }
            if self.members.counts(member, run) {
                next = cursor.next().max(next);
                let seen = events.iter();
                let seen = seen.map(|event| (event.revision, Bytes::copy_from_slice(event.key())));
                self.history.lock().watched.extend(seen);
            }
        }
    }
}

pub type Outcome = Result<(i64, What), Error>;

async fn put(node: &Node, key: &Bytes, value: Bytes) -> Outcome {
    let answer = node.propose(Command::Put(Put::new(key.clone(), value.clone()))).await?;
    Ok((answer.revision, What::Put(value)))
}

pub async fn get(node: &Node, key: &Bytes) -> Outcome {
    node.barrier().await?;
    let mut found = None;
    let query = RangeQuery::new(KeyRange::single(key.clone()));
    let summary = node.reader(Floor::Retained).range(&query, &mut |view| {
        found = Some(Bytes::copy_from_slice(view.value()));
    })?;
    Ok((summary.revision, What::Get(found)))
}

async fn swap(node: &Node, key: &Bytes, value: Bytes) -> Outcome {
    let (_, What::Get(Some(old))) = get(node, key).await? else { return Err(Error::KeyNotFound) };
    let compare = Compare {
        range: KeyRange::single(key.clone()),
        relation: Relation::Equal,
        operand: Operand::Value(old.clone()),
    };
    let success = vec![Op::Put(Put::new(key.clone(), value.clone()))];
    let txn = Txn { compares: vec![compare], success, failure: Vec::new() };
    let answer = node.propose(Command::Txn(txn)).await?;
    let Reply::Txn(txn) = answer.reply else { return Err(Error::KeyNotFound) };
    let what = if txn.succeeded { What::Swapped(old, value) } else { What::NotSwapped(old) };
    Ok((answer.revision, what))
}

/// Takes and releases a lock in a session of its own.
async fn lock(node: &Node, key: &Bytes, call_id: u64) -> Outcome {
    let granted = node.lease_grant(0, 60).await?;
    let Reply::LeaseGrant { id: session, .. } = granted.reply else {
        return Err(Error::LeaseNotFound);
    };
    let (mode, no_wait, call_id) = (LockMode::Exclusive, true, call_id | 1);
    let acquire = Acquire { key: key.clone(), session, mode, no_wait, call_id };
    let answer = node.propose(Command::Acquire(acquire)).await?;
    let Reply::Acquire(Some(grant)) = answer.reply else { return Err(Error::LeaseNotFound) };
    let release = Command::Release { key: key.clone(), session, call_id: 0 };
    // The session ends some time if this fails.
    let _ = node.propose(release).await;
    Ok((answer.revision, What::Locked(grant.token)))
}
