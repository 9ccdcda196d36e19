//! Clients that hold a lock in turn, each in a session that it keeps alive.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_engine::world::{Random, SeededRandom};
use stele_metastore::command::{
    Acquire, Command, Execute, Grant, HeldLock, LockMode, Reply, Write,
};
use stele_metastore::node::Attempt;
use tokio::time::timeout;

use super::clients::Clients;
use super::history::{Done, Hold, What};

const KEY: Bytes = Bytes::from_static(b"lock");
const GUARDED: Bytes = Bytes::from_static(b"guarded");
const TTL: Duration = Duration::from_secs(2);

/// The session of a client. It lasts for the TTL after a renewal began.
struct Session {
    id: i64,
    renewed: Duration,
}

impl Clients {
    /// Runs a client that waits for the lock, holds it and releases it.
    pub async fn hold_locks(self: Arc<Self>, client: usize) {
        let random = self.random(client);
        while !self.ended() {
            tokio::time::sleep(self.pause(&random)).await;
            if let Some(mut session) = self.open_session(&random).await {
                self.hold_lock(&random, &mut session).await;
            }
        }
    }

    async fn open_session(&self, random: &SeededRandom) -> Option<Session> {
        let (member, run, node) = self.members.choose(random)?;
        let renewed = self.now();
        let answer = node.lease_grant(0, TTL.as_secs() as i64).await.ok()?;
        let Reply::LeaseGrant { id, .. } = answer.reply else { return None };
        self.members.counts(member, run).then_some(Session { id, renewed })
    }

    async fn hold_lock(&self, random: &SeededRandom, session: &mut Session) -> Option<()> {
        let (member, run, node) = self.members.choose(random)?;
        let (mode, call_id) = (LockMode::Exclusive, random.next_u64() | 1);
        let acquire = Acquire { key: KEY, session: session.id, mode, no_wait: false, call_id };
        let answer = node.propose(Command::Acquire(acquire)).await.ok()?;
        let Reply::Acquire(granted) = answer.reply else { return None };
        if !self.members.counts(member, run) {
            return None;
        }
        let token = match granted {
            Some(grant) => grant.token,
            None => self.await_grant(random, session).await?.token,
        };
        let from = self.now();
        let end = from + Duration::from_millis(random.next_u64() % 500);
        while self.now() < end {
            self.write_guarded(random, session, token).await;
            self.renew(random, session).await;
        }
        let until = self.now().min(session.renewed + TTL);
        if from < until {
            let hold = Hold { queued: answer.revision, token, from, until };
            self.history.lock().holds.push(hold);
        }
        let (_, _, node) = self.members.choose(random)?;
        let release = Command::Release { key: KEY, session: session.id, call_id: 0 };
        node.propose(release).await.ok().map(drop)
    }

    /// Waits until the session holds the lock, or may have ended.
    async fn await_grant(&self, random: &SeededRandom, session: &mut Session) -> Option<Grant> {
        while self.now() < session.renewed + TTL && !self.ended() {
            self.renew(random, session).await;
            let Some((member, run, node)) = self.members.choose(random) else { continue };
            if !matches!(timeout(TTL, node.barrier()).await, Ok(Ok(()))) {
                continue;
            }
            let lock = node.lock(&KEY).ok().flatten().unwrap_or_default();
            if let Some(grant) = lock.holder(session.id)
                && self.members.counts(member, run)
            {
                return Some(grant);
            }
        }
        None
    }

    async fn renew(&self, random: &SeededRandom, session: &mut Session) {
        tokio::time::sleep(Duration::from_millis(20 + random.next_u64() % 200)).await;
        let Some((member, run, node)) = self.members.choose(random) else { return };
        let asked = self.now();
        let renewal = timeout(TTL / 4, node.keep_alive(session.id)).await;
        if matches!(renewal, Ok(Ok(Some(_)))) && self.members.counts(member, run) {
            session.renewed = asked;
        }
    }

    /// Writes the token, if the lock is still held by it.
    async fn write_guarded(&self, random: &SeededRandom, session: &Session, token: i64) {
        let Some((member, run, node)) = self.members.choose(random) else { return };
        let value = Some(Bytes::from(token.to_string()));
        let execute = Execute {
            read_revision: node.revision(),
            reads: Vec::new(),
            writes: vec![Write { key: GUARDED, value, lease: 0 }],
            locks: vec![HeldLock { key: KEY, session: session.id, token }],
        };
        let attempt = Attempt { id: random.next_u64(), age: Duration::ZERO };
        let began = self.now();
        let answer = timeout(TTL, node.execute(execute, attempt)).await;
        let ended = self.now();
        if let Ok(Ok(answer)) = answer
            && self.members.counts(member, run)
        {
            let (revision, what) = (answer.revision, What::Guarded(token));
            let done = Done { began, ended, revision, key: GUARDED, what };
            self.history.lock().done.push(done);
        }
    }
}
