//! Clients: each sends random operations to random members, and records what it
//! was told.

use std::collections::BTreeMap;
use std::sync::Arc;
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

/// The TTL of the clients' leases.
const TTL: Duration = Duration::from_secs(1);

/// The running members, with the number of each run.
#[derive(Default)]
pub struct Members {
    pub running: Mutex<BTreeMap<u64, (u64, Arc<Node>)>>,
}

impl Members {
    fn choose(&self, random: &SeededRandom) -> Option<(u64, u64, Arc<Node>)> {
        let running = self.running.lock();
        let count = running.len() as u64;
        let at = random.next_u64().checked_rem(count)?;
        let (member, (run, node)) = running.iter().nth(at as usize)?;
        Some((*member, *run, node.clone()))
    }

    /// Returns whether an answer of a run counts: one that has crashed sends
    /// none.
    fn counts(&self, member: u64, run: u64) -> bool {
        self.running.lock().get(&member).is_some_and(|(now, _)| *now == run)
    }
}

/// What the clients of a run share.
pub struct Clients {
    pub members: Arc<Members>,
    pub history: Mutex<History>,
    pub start: Instant,
    pub seed: u64,
}

impl Clients {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn random(&self, client: usize) -> SeededRandom {
        SeededRandom::new(self.seed ^ ((client as u64 + 1) << 20))
    }

    /// Runs a client that reads and writes until the end.
    pub async fn read_and_write(self: Arc<Self>, client: usize, until: Duration) {
        let random = self.random(client);
        let mut count = 0;
        while self.now() < until {
            let pause = Duration::from_micros(random.next_u64() % 60_000);
            tokio::time::sleep(pause).await;
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

    /// Runs a client that keeps a lease alive, and checks that its key lives as
    /// long.
    pub async fn keep_leases(self: Arc<Self>, client: usize, until: Duration) {
        let random = self.random(client);
        let mut count = 0;
        while self.now() < until {
            count += 1;
            // Of this client alone: a key ends with the lease that it was last
            // attached to.
            let key = Bytes::from(format!("leased{client}.{count}"));
            let kept = Duration::from_millis(random.next_u64() % 6000);
            self.keep_lease(&random, key, kept).await;
        }
    }

    async fn keep_lease(&self, random: &SeededRandom, key: Bytes, kept: Duration) {
        let Some((member, run, node)) = self.members.choose(random) else {
            return tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let mut renewed = self.now();
        let Ok(answer) = node.lease_grant(0, TTL.as_secs() as i64).await else { return };
        let Reply::LeaseGrant { id, .. } = answer.reply else { return };
        let put = Put { lease: Some(id), ..Put::new(key.clone(), "leased") };
        if node.propose(Command::Put(put)).await.is_err() || !self.members.counts(member, run) {
            return;
        }
        let end = self.now() + kept;
        // Until it ended, or nothing was heard of it for its TTL.
        while self.now() < end && self.now() < renewed + TTL {
            tokio::time::sleep(Duration::from_millis(50 + random.next_u64() % 200)).await;
            let Some((member, run, node)) = self.members.choose(random) else { continue };
            let asked = self.now();
            let renewal = tokio::time::timeout(TTL, node.keep_alive(id)).await;
            if !self.members.counts(member, run) {
                continue;
            }
            match renewal {
                Ok(Ok(Some(_))) => renewed = asked,
                Ok(Ok(None)) if self.now() < renewed + TTL => {
                    self.early(&key, renewed, "a renewal")
                }
                _ => {}
            }
            if let Some(false) = self.exists(random, &key).await
                && self.now() < renewed + TTL
            {
                self.early(&key, renewed, "a read");
            }
        }
    }

    fn early(&self, key: &Bytes, renewed: Duration, by: &str) {
        let now = self.now();
        let early =
            format!("the lease of {key:?}, renewed at {renewed:?}, had ended for {by} at {now:?}");
        self.history.lock().early.push(early);
    }

    /// Returns whether a linearizable read finds a key.
    async fn exists(&self, random: &SeededRandom, key: &Bytes) -> Option<bool> {
        let (member, run, node) = self.members.choose(random)?;
        let (_, what) = get(&node, key).await.ok()?;
        self.members.counts(member, run).then_some(what != What::Get(None))
    }

    /// Runs a watch that continues at another member each time.
    pub async fn watch(self: Arc<Self>, client: usize, until: Duration) {
        let random = self.random(client);
        let mut next = 2;
        while self.now() < until {
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

type Outcome = Result<(i64, What), Error>;

async fn put(node: &Node, key: &Bytes, value: Bytes) -> Outcome {
    let answer = node.propose(Command::Put(Put::new(key.clone(), value.clone()))).await?;
    Ok((answer.revision, What::Put(value)))
}

async fn get(node: &Node, key: &Bytes) -> Outcome {
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
