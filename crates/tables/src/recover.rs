//! Recovery of the tablets of a dead server by any other (R8). Several may recover the
//! same log: all find the same end, and each row is finished by one of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stele_engine::config::TabletConfig;
use stele_engine::log::objects::{LogObject, SealWalk, SlotReader};
use stele_engine::world::{LogStore, Random, wait_for_reply};
use stele_engine::{ClaimedTablet, Error, Rebuilt, Result, Rules, Store, WalkFrom};

use crate::coordinate::{Compare, Op, Transaction, number};
use crate::incarnation::Incarnation;
use crate::load::without_owner;
use crate::messages::ServerMessage;
use crate::rows::{Holder, OwnedRow, Owner, RootRows, StoredRow};

/// Pause before another look at the key of a server that seems to be dead.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Builds files from a log.
pub trait Rebuild: Send + Sync {
    /// Starts with rows as they were claimed. All of them depend on the log.
    fn begin(&self, rows: &[StoredRow]) -> Result<Box<dyn Rebuilding>>;
}

/// Files that are being built from a log.
pub trait Rebuilding: Send {
    /// Adds the commits of a slot. Slots come in order, each once. For each row only those
    /// from its own start of the log on count, and only txns above its `flushed`.
    fn replay(&mut self, object: &LogObject) -> Result<()>;

    /// Completes the files, under names that were never used. Returns the new content of
    /// each row: with these files, and with `flushed` at the last txn replayed.
    fn finish(self: Box<Self>) -> Result<Finished>;
}

/// Tablets that were built from a log.
pub struct Finished {
    /// In the order of the rows.
    pub configs: Vec<TabletConfig>,
    /// Called when rows name the new files, or never will.
    pub outcome_known: Box<dyn FnOnce() + Send>,
}

/// The engine replays the log.
pub struct Replay {
    pub store: Arc<Store>,
    pub rules: Rules,
}

impl Rebuild for Replay {
    fn begin(&self, rows: &[StoredRow]) -> Result<Box<dyn Rebuilding>> {
        let claimed = rows.iter().map(|stored| ClaimedTablet {
            table: stored.table,
            config: stored.row.config.clone(),
            from: stored.row.log.map_or(0, |log| log.from),
        });
        Ok(Box::new(self.store.rebuild(claimed.collect(), self.rules)?))
    }
}

impl Rebuilding for stele_engine::Rebuilding {
    fn replay(&mut self, object: &LogObject) -> Result<()> {
        stele_engine::Rebuilding::replay(self, object)
    }

    fn finish(self: Box<Self>) -> Result<Finished> {
        let Rebuilt { configs, files } = stele_engine::Rebuilding::finish(*self)?;
        Ok(Finished { configs, outcome_known: Box::new(|| files.outcome_known()) })
    }
}

/// What a recovery has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// The server has its lease: nothing was done.
    Alive,
    /// No row depends on the log any more.
    All,
    /// Rows were claimed or changed by others meanwhile: look again.
    Some,
}

/// A server that recovers the tablets of others.
pub struct Recoverer {
    pub incarnation: Arc<Incarnation>,
    pub rows: RootRows,
    pub logs: Arc<dyn LogStore>,
    pub random: Arc<dyn Random>,
    pub rebuild: Arc<dyn Rebuild>,
}

impl Recoverer {
    /// Recovers all tablets that depend on the log of a server. Fails when the lease of
    /// this one ends, and if the log is damaged: its tablets stay offline then.
    pub async fn recover(&self, dead: &Holder) -> Result<Recovered> {
        if !self.mark(dead).await? {
            return Ok(Recovered::Alive);
        }
        let (incarnation, keys) = (&self.incarnation, &self.incarnation.world.keys);
        let epoch = dead.epoch;
        let floor = incarnation.insist(|| incarnation.world.number(keys.floor(epoch))).await?;
        let floor = floor.unwrap_or(0);
        let end = self.end(epoch, floor).await?;
        let recovered = keys.recovered(epoch);
        let is_recovered =
            incarnation.insist(|| incarnation.world.number(recovered.clone())).await?.is_some();
        let claimed = self.claim_all(epoch).await?;
        // A row that was loaded after the log was recovered has nothing in it (R8.7).
        let from = claimed.iter().filter_map(|stored| stored.row.log).map(|log| log.from).min();
        let from = from.unwrap_or(end).max(floor);
        let slots = if is_recovered { end..end } else { from..end };
        self.finish(claimed, epoch, slots).await?;
        self.close(epoch, recovered).await
    }

    /// Marks an epoch as dead, so that it cannot raise its floor. Returns false if its
    /// server has its lease. Of an epoch that is marked, the server need not be known.
    async fn mark(&self, dead: &Holder) -> Result<bool> {
        let (incarnation, world) = (&self.incarnation, &self.incarnation.world);
        let (server, marker) = (world.keys.server(&dead.id), world.keys.dead(dead.epoch));
        let mut gone_since = None;
        loop {
            if incarnation.insist(|| world.number(marker.clone())).await?.is_some() {
                return Ok(true);
            }
            let found = incarnation.insist(|| world.coordinator.get(server.clone())).await?;
            let epoch =
                found.as_ref().and_then(|it| ServerMessage::of(&it.value)).map(|it| it.epoch);
            if world.rules.wait_for_lease && epoch == Some(dead.epoch) {
                return Ok(false);
            }
            let now = world.clock.elapsed();
            let gone_for = now.saturating_sub(*gone_since.get_or_insert(now));
            if gone_for < world.absent_for {
                (world.sleep)((world.absent_for - gone_for).min(LOOK_AGAIN_AFTER)).await;
                continue;
            }
            let mut when = vec![Compare::Absent(marker.clone())];
            if world.rules.wait_for_lease {
                when.push(match found {
                    None => Compare::Absent(server.clone()),
                    Some(found) => Compare::Modified(server.clone(), found.modified),
                });
            }
            let then = vec![Op::put(marker.clone(), number(dead.epoch))];
            let otherwise = vec![Op::Get(marker.clone())];
            let transaction = Transaction { when, then, otherwise };
            let marked = incarnation.insist(|| world.coordinator.run(transaction.clone())).await?;
            if marked.applied || !marked.found.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Closes the log and returns its end, which is the same for all recoverers (R8.2,
    /// R8.3).
    async fn end(&self, epoch: u64, floor: u64) -> Result<u64> {
        let (incarnation, world) = (&self.incarnation, &self.incarnation.world);
        let key = world.keys.end(epoch);
        if let Some(end) = incarnation.insist(|| world.number(key.clone())).await? {
            return Ok(end);
        }
        let from = match world.rules.walk_from {
            WalkFrom::Floor => floor,
            WalkFrom::Zero => 0,
            WalkFrom::Listing => self.after_listing(epoch).await?,
        };
        let nonce = u128::from(self.random.next_u64()) << 64 | u128::from(self.random.next_u64());
        let mut walk = SealWalk::new(self.logs.clone(), epoch, from, nonce, world.rules);
        let end = loop {
            incarnation.lease.check()?;
            match walk.seal().await {
                Ok(end) => break end,
                Err(Error::Io { .. }) => world.pause().await,
                Err(Error::Fenced { what, .. }) => {
                    // Objects are deleted only after the end is known.
                    let end = incarnation.insist(|| world.number(key.clone())).await?;
                    let log = PathBuf::from(format!("log/{epoch}"));
                    return end.ok_or_else(|| Error::data_loss(&log, 0, what));
                }
                Err(error) => return Err(error),
            }
        };
        let when = vec![Compare::Absent(key.clone())];
        let then = vec![Op::put(key.clone(), number(end))];
        let transaction = Transaction { when, then, otherwise: Vec::new() };
        incarnation.insist(|| world.coordinator.run(transaction.clone())).await?;
        let fixed = incarnation.insist(|| world.number(key.clone())).await?;
        Ok(fixed.unwrap_or(end))
    }

    /// Returns the slot after the last that a listing shows. Only for a broken rule: a
    /// listing proves nothing.
    async fn after_listing(&self, epoch: u64) -> Result<u64> {
        loop {
            self.incarnation.lease.check()?;
            let listed = wait_for_reply(|done| self.logs.list(epoch, done)).await;
            match listed {
                Ok(slots) => return Ok(slots.last().map_or(0, |last| last + 1)),
                Err(_) => self.incarnation.world.pause().await,
            }
        }
    }

    /// Takes over all rows that depend on the log (R8.4). Returns them as they are then.
    async fn claim_all(&self, epoch: u64) -> Result<Vec<StoredRow>> {
        let mut claimed = Vec::new();
        for found in self.depending(epoch).await? {
            let mut config = (*found.row.config).clone();
            config.load = config.load.saturating_add(1);
            let owner = Owner::Recoverer(self.rows.holder());
            let claim = OwnedRow { config: Arc::new(config), owner, ..found.row.clone() };
            claimed.extend(self.rows.change(&found, claim).await?);
        }
        Ok(claimed)
    }

    /// Returns the rows that depend on a log.
    async fn depending(&self, epoch: u64) -> Result<Vec<StoredRow>> {
        let rows = self.incarnation.insist(|| self.rows.all()).await??;
        let depends = |stored: &StoredRow| stored.row.log.is_some_and(|log| log.epoch == epoch);
        Ok(rows.into_iter().filter(depends).collect())
    }

    /// Replays slots into files and gives the rows up (R8.5, R8.6).
    async fn finish(
        &self,
        claimed: Vec<StoredRow>,
        epoch: u64,
        slots: std::ops::Range<u64>,
    ) -> Result<()> {
        if claimed.is_empty() {
            return Ok(());
        }
        let mut building = self.rebuild.begin(&claimed)?;
        let mut reader = SlotReader::new(self.logs.clone(), epoch, slots);
        loop {
            self.incarnation.lease.check()?;
            match reader.next().await {
                Ok(Some(object)) => building.replay(&object)?,
                Ok(None) => break,
                Err(Error::Io { .. }) => self.incarnation.world.pause().await,
                Err(error) => return Err(error),
            }
        }
        let Finished { configs, outcome_known } = building.finish()?;
        for (claim, config) in claimed.iter().zip(configs) {
            // If the claim was taken over, the files are left to the collector: they may
            // be named.
            self.rows.change(claim, without_owner(config)).await?;
        }
        outcome_known();
        Ok(())
    }

    /// Notes that no row depends on the log, if that is so (R8.7).
    async fn close(&self, epoch: u64, recovered: Vec<u8>) -> Result<Recovered> {
        if !self.depending(epoch).await?.is_empty() {
            return Ok(Recovered::Some);
        }
        let coordinator = &self.incarnation.world.coordinator;
        let then = vec![Op::put(recovered, number(epoch))];
        let transaction = Transaction { then, ..Transaction::default() };
        self.incarnation.insist(|| coordinator.run(transaction.clone())).await?;
        Ok(Recovered::All)
    }
}
