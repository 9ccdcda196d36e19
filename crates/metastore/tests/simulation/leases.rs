//! Clients with leases: some keep them alive, some let them end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stele_engine::world::{Random, SeededRandom};
use stele_metastore::command::{Command, Put, Reply};

use super::clients::{Clients, get};
use super::history::{Abandoned, What};

/// The TTL of leases that are kept alive.
const TTL: Duration = Duration::from_secs(1);
/// The TTL of leases that are not.
const ABANDONED_TTL: Duration = Duration::from_secs(3);

impl Clients {
    /// Runs a client that keeps a lease alive, and checks that its key lives as
    /// long.
    pub async fn keep_leases(self: Arc<Self>, client: usize) {
        let random = self.random(client);
        let mut count = 0;
        while !self.ended() {
            // A member that has stopped refuses at once.
            tokio::time::sleep(Duration::from_millis(random.next_u64() % 20)).await;
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
        while self.now() < end && !self.ended() {
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
                Ok(Ok(None)) => return,
                _ => {}
            }
            if let Some(false) = self.exists(random, &key).await
                && self.now() < renewed + TTL
            {
                self.early(&key, renewed, "a read");
            }
        }
        self.revoke(random, id, &key).await;
    }

    /// Revokes a lease. From then on, every member reports that it is gone.
    async fn revoke(&self, random: &SeededRandom, id: i64, key: &Bytes) {
        let Some((member, run, node)) = self.members.choose(random) else { return };
        let revoked = node.propose(Command::LeaseRevoke { id }).await;
        if revoked.is_err() || !self.members.counts(member, run) {
            return;
        }
        let revoked = self.now();
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(random.next_u64() % 50)).await;
            let Some((member, run, node)) = self.members.choose(random) else { continue };
            let renewal = tokio::time::timeout(TTL, node.keep_alive(id)).await;
            if matches!(renewal, Ok(Ok(Some(_)))) && self.members.counts(member, run) {
                let stale = format!(
                    "stale: member {member} renewed the lease of {key:?}, revoked at {revoked:?}"
                );
                self.violated(stale);
            }
        }
    }

    fn early(&self, key: &Bytes, renewed: Duration, by: &str) {
        let now = self.now();
        let early = format!(
            "ended early: the lease of {key:?}, renewed at {renewed:?}, had ended for {by} at {now:?}"
        );
        self.violated(early);
    }

    /// Returns whether a linearizable read finds a key.
    async fn exists(&self, random: &SeededRandom, key: &Bytes) -> Option<bool> {
        let (member, run, node) = self.members.choose(random)?;
        let (_, what) = get(&node, key).await.ok()?;
        self.members.counts(member, run).then_some(what != What::Get(None))
    }

    /// Runs a client that never renews its leases, and watches them end.
    pub async fn abandon_leases(self: Arc<Self>, client: usize) {
        let random = self.random(client);
        let mut count = 0;
        while !self.ended() {
            // A member that has stopped refuses at once.
            tokio::time::sleep(Duration::from_millis(random.next_u64() % 20)).await;
            count += 1;
            let key = Bytes::from(format!("abandoned{client}.{count}"));
            self.abandon_lease(&random, key).await;
        }
    }

    async fn abandon_lease(&self, random: &SeededRandom, key: Bytes) {
        let Some((member, run, node)) = self.members.choose(random) else {
            return tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let began = self.now();
        let Ok(answer) = node.lease_grant(0, ABANDONED_TTL.as_secs() as i64).await else { return };
        let Reply::LeaseGrant { id, .. } = answer.reply else { return };
        let granted = self.now();
        let put = Put { lease: Some(id), ..Put::new(key.clone(), "abandoned") };
        if node.propose(Command::Put(put)).await.is_err() || !self.members.counts(member, run) {
            return;
        }
        let mut seen = granted;
        while !self.ended() {
            tokio::time::sleep(Duration::from_millis(20 + random.next_u64() % 60)).await;
            let asked = self.now();
            match self.exists(random, &key).await {
                Some(true) => seen = asked,
                Some(false) if self.now() < began + ABANDONED_TTL => {
                    return self.early(&key, began, "a read");
                }
                Some(false) => break,
                None => {}
            }
        }
        let abandoned = Abandoned { key, granted, seen, ttl: ABANDONED_TTL };
        self.history.lock().abandoned.push(abandoned);
    }
}
