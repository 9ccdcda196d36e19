//! One life of a server under one lease (R2): it registers with a new epoch, keeps its
//! lease, and stops when it cannot.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::world::Clock;
use stele_engine::{Result, Rules};

use crate::coordinate::{
    Changed, Compare, Coordinator, KeyValue, Keys, LeaseId, Op, Transaction, Unreachable, Watch,
    ask, number, parse_number,
};
use crate::lease::{Lease, LeaseTimes};
use crate::messages::ServerMessage;

/// Pause before a request that had no answer, or found something in its way, is made
/// again.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Waits for some time.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The environment of a server in a cluster.
#[derive(Clone)]
pub struct ClusterWorld {
    /// Counts the time during which the machine is suspended.
    pub clock: Arc<dyn Clock>,
    pub sleep: Arc<dyn Fn(Duration) -> Sleep + Send + Sync>,
    pub coordinator: Arc<dyn Coordinator>,
    /// How long the key of a server must be gone before its tablets are recovered. Zero if
    /// the coordinator never ends a lease before its time; etcd before 3.5.13 may, and then
    /// this must be the whole time of a lease.
    pub absent_for: Duration,
    pub keys: Keys,
    pub rules: Rules,
}

impl ClusterWorld {
    /// Waits before a request is made again.
    pub(crate) fn pause(&self) -> Sleep {
        (self.sleep)(RETRY_AFTER)
    }

    /// Returns the number in a key, or `None` if there is none.
    pub(crate) async fn number(&self, key: Vec<u8>) -> Result<Option<u64>, Unreachable> {
        let found = self.coordinator.get(key).await?;
        Ok(found.and_then(|found| parse_number(&found.value)))
    }
}

/// A registered server. It may serve as long as its lease lasts.
pub struct Incarnation {
    pub world: ClusterWorld,
    /// The server, which keeps its id over restarts.
    pub id: String,
    /// The number of this incarnation, and of the log of its tablets. The next number
    /// belongs to it, too.
    pub epoch: u64,
    pub lease: Arc<Lease>,
    lease_id: LeaseId,
    /// The revision at which its key was created: it tells this incarnation from others
    /// of the same server.
    registered: i64,
}

impl Incarnation {
    /// Registers a server: takes a new epoch and creates its key under a new lease. Waits
    /// for the lapse of the lease of its last incarnation.
    pub async fn begin(
        world: ClusterWorld,
        id: &str,
        address: &str,
        times: LeaseTimes,
    ) -> Arc<Incarnation> {
        loop {
            match Incarnation::try_begin(&world, id, address, times).await {
                Ok(Some(begun)) => return Arc::new(begun),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, id, "registering again"),
            }
            world.pause().await;
        }
    }

    /// Registers a server. Returns `None` if a lease is in the way or has lapsed.
    async fn try_begin(
        world: &ClusterWorld,
        id: &str,
        address: &str,
        times: LeaseTimes,
    ) -> Result<Option<Incarnation>, Unreachable> {
        let sent = world.clock.elapsed();
        let lease_id = ask(|done| world.coordinator.grant(times.ttl, done)).await?;
        let key = world.keys.server(id);
        // All attempts under one lease create the same key, so at most one is applied.
        while world.clock.elapsed().saturating_sub(sent) < times.ttl.saturating_sub(times.margin) {
            let found = world.coordinator.get(key.clone()).await;
            match found {
                Ok(Some(found)) if found.lease == Some(lease_id) => {
                    return Ok(Incarnation::registered(world, id, times, sent, lease_id, &found));
                }
                Ok(Some(_)) => break,
                Ok(None) => {
                    let created = register(world, &key, address, lease_id).await;
                    if created != Ok(true) {
                        world.pause().await;
                    }
                }
                Err(_) => world.pause().await,
            }
        }
        // An attempt that is still under way fails without its lease.
        ask(|done| world.coordinator.revoke(lease_id, done)).await?;
        Ok(None)
    }

    fn registered(
        world: &ClusterWorld,
        id: &str,
        times: LeaseTimes,
        sent: Duration,
        lease_id: LeaseId,
        found: &KeyValue,
    ) -> Option<Incarnation> {
        let epoch = ServerMessage::of(&found.value)?.epoch;
        let lease = Arc::new(Lease::new(epoch, world.clock.clone(), times, sent));
        let (id, registered) = (id.to_string(), found.created);
        Some(Incarnation { world: world.clone(), id, epoch, lease, lease_id, registered })
    }

    /// Keeps the lease until it ends; then returns. Also ends it if the server's key is
    /// gone: somebody may own its tablets already.
    pub async fn keep(self: Arc<Self>) {
        let _watch = self.watch_key();
        while self.lease.check().is_ok() {
            let sent = self.world.clock.elapsed();
            let coordinator = &self.world.coordinator;
            match ask(|done| coordinator.keep_alive(self.lease_id, done)).await {
                Ok(true) => self.lease.renewed(sent),
                Ok(false) => self.lease.halt("the coordinator has ended its lease"),
                // A coordinator that cannot be reached changes nothing before the deadline.
                Err(error) => tracing::debug!(%error, epoch = self.epoch, "no keep-alive"),
            }
            (self.world.sleep)(self.lease.times().keep_alive).await;
        }
    }

    fn watch_key(&self) -> Box<dyn Watch> {
        let (lease, registered) = (self.lease.clone(), self.registered);
        let each = move |changed: Changed| {
            if changed.value.is_none_or(|found| found.created != registered) {
                lease.halt("its key is gone");
            }
        };
        let key = self.world.keys.server(&self.id);
        self.world.coordinator.watch(key, self.registered, Box::new(each))
    }

    /// Gives the lease up: another incarnation of the server may begin at once, and others
    /// may take over what this one still has.
    pub async fn end(&self) {
        self.lease.halt("the server stops");
        let coordinator = &self.world.coordinator;
        if let Err(error) = ask(|done| coordinator.revoke(self.lease_id, done)).await {
            tracing::debug!(%error, epoch = self.epoch, "the lease lapses by itself");
        }
    }

    /// Returns the condition that this incarnation has its lease (R2.2).
    pub fn has_lease(&self) -> Compare {
        Compare::Created(self.world.keys.server(&self.id), self.registered)
    }

    /// Takes a generation of txns that nobody has used (R3.2). Fails when the lease ends.
    pub async fn take_generation(&self) -> Result<u64> {
        loop {
            let taken = self.insist(|| take(&self.world, 1, Vec::new(), |_| Vec::new())).await?;
            if let Some(taken) = taken {
                return Ok(taken);
            }
        }
    }

    /// Makes a request of the coordinator until it has an answer. Fails when the lease ends.
    pub(crate) async fn insist<T, F>(&self, mut request: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Unreachable>>,
    {
        loop {
            self.lease.check()?;
            match request().await {
                Ok(answer) => return Ok(answer),
                Err(error) => tracing::debug!(%error, epoch = self.epoch, "asking again"),
            }
            self.world.pause().await;
        }
    }
}

/// Creates the key of a server with a new epoch. Returns whether it did.
async fn register(
    world: &ClusterWorld,
    key: &[u8],
    address: &str,
    lease: LeaseId,
) -> Result<bool, Unreachable> {
    let put = |epoch| {
        let value = ServerMessage { epoch, address: address.into(), oldest_pending: 0 };
        vec![Op::Put { key: key.to_vec(), value: value.bytes(), lease: Some(lease) }]
    };
    Ok(take(world, 2, vec![Compare::Absent(key.to_vec())], put).await?.is_some())
}

/// Takes numbers from the counter of epochs if other conditions hold, too, and makes puts
/// that depend on them. Returns the first of the numbers. One that was taken by a request
/// without an answer is lost.
async fn take(
    world: &ClusterWorld,
    count: u64,
    mut when: Vec<Compare>,
    puts: impl FnOnce(u64) -> Vec<Op>,
) -> Result<Option<u64>, Unreachable> {
    let key = world.keys.epoch();
    let found = world.coordinator.get(key.clone()).await?;
    let last = found.as_ref().and_then(|found| parse_number(&found.value)).unwrap_or(0);
    when.push(match found {
        Some(found) => Compare::Modified(key.clone(), found.modified),
        None => Compare::Absent(key.clone()),
    });
    let mut then = vec![Op::put(key, number(last + count))];
    then.extend(puts(last + 1));
    let transaction = Transaction { when, then, otherwise: Vec::new() };
    let applied = world.coordinator.run(transaction).await?.applied;
    Ok(applied.then_some(last + 1))
}
