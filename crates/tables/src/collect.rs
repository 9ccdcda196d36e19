//! Collection of what no tablet needs any more: files that no row names, and the logs of
//! servers that were recovered (R9). Any server may run a round at any time, several at once.
//!
//! A round reads first which servers live and which names of files they may still give to a
//! row, then lists the files, then reads all rows. A file that was listed and that no row
//! names then is garbage, unless its name was pending.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stele_engine::Result;
use stele_engine::config::FileName;
use stele_engine::world::{FragmentStore, LogSlot, LogStore, wait_for_reply};

use crate::coordinate::{Compare, Op, Transaction, parse_number};
use crate::incarnation::Incarnation;
use crate::messages::ServerMessage;
use crate::rows::{Owner, RootRows};

/// What a round has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectedGarbage {
    /// Files that nothing names, and how many of them were deleted: those that were found
    /// long enough ago.
    pub unused_files: usize,
    pub deleted_files: usize,
    /// Objects of logs that were recovered.
    pub deleted_objects: usize,
    /// Requests that failed. The next round tries again.
    pub failed: usize,
}

/// What earlier rounds found.
#[derive(Default)]
pub(crate) struct Marks {
    /// Unused files, and when they were first found.
    files: BTreeMap<FileName, Duration>,
    /// Logs of which nothing but the SEAL is left.
    logs: BTreeSet<u64>,
}

/// Which names of files may be garbage: read before the files are listed.
struct Horizon {
    /// The last number of the counter of epochs.
    last_epoch: u64,
    /// For each live server, the lowest number that a row may not name yet.
    pending: BTreeMap<u64, u64>,
}

impl Horizon {
    /// Whether nobody will name a file that no row names. `owners` own rows.
    fn has_passed(&self, name: FileName, owners: &BTreeSet<u64>, obeys_pending: bool) -> bool {
        let FileName { incarnation, number } = name;
        match self.pending.get(&incarnation) {
            Some(oldest) => number < *oldest || !obeys_pending,
            // Of a server that has died. One that owns a row may be a recoverer whose last
            // mutation is under way.
            None => incarnation <= self.last_epoch && !owners.contains(&incarnation),
        }
    }
}

pub(crate) struct Collector<'s> {
    pub(crate) incarnation: &'s Incarnation,
    pub(crate) rows: &'s RootRows,
    pub(crate) files: &'s dyn FragmentStore,
    pub(crate) logs: &'s dyn LogStore,
    /// A file is deleted this long after a round has first found it unused, so that those
    /// who read it are done.
    pub(crate) age_min: Duration,
}

impl Collector<'_> {
    /// Runs a round.
    pub(crate) async fn collect(&self, marks: &mut Marks) -> Result<CollectedGarbage> {
        let mut collected = CollectedGarbage::default();
        self.collect_files(marks, &mut collected).await?;
        self.collect_logs(marks, &mut collected).await?;
        Ok(collected)
    }

    async fn collect_files(
        &self,
        marks: &mut Marks,
        collected: &mut CollectedGarbage,
    ) -> Result<()> {
        let rules = self.incarnation.world.rules;
        let horizon = self.horizon().await?;
        let mut rows = None;
        if !rules.list_before_scan {
            rows = Some(self.incarnation.insist(|| self.rows.all()).await??);
        }
        let Ok(listed) = wait_for_reply(|done| self.files.list(done)).await else {
            collected.failed += 1;
            return Ok(());
        };
        let rows = match rows {
            Some(rows) => rows,
            None => self.incarnation.insist(|| self.rows.all()).await??,
        };
        let configs = rows.iter().map(|stored| &stored.row.config);
        let named: BTreeSet<FileName> =
            configs.flat_map(|config| config.files()).map(|file| file.name).collect();
        let owners = rows.iter().filter_map(|stored| match &stored.row.owner {
            Owner::Nobody => None,
            Owner::Server(holder) | Owner::Recoverer(holder) => Some(holder.epoch),
        });
        let owners: BTreeSet<u64> = owners.collect();
        let now = self.incarnation.world.clock.elapsed();
        let is_unused = |name: &FileName| {
            !named.contains(name) && horizon.has_passed(*name, &owners, rules.gc_respects_pending)
        };
        let unused: BTreeSet<FileName> =
            listed.into_iter().map(|file| file.name).filter(is_unused).collect();
        marks.files.retain(|name, _| unused.contains(name));
        collected.unused_files = unused.len();
        for name in unused {
            let found = *marks.files.entry(name).or_insert(now);
            if now.saturating_sub(found) < self.age_min {
                continue;
            }
            self.incarnation.lease.check()?;
            match wait_for_reply(|done| self.files.delete(name, done)).await {
                Ok(()) => {
                    marks.files.remove(&name);
                    collected.deleted_files += 1;
                }
                Err(_) => collected.failed += 1,
            }
        }
        Ok(())
    }

    async fn horizon(&self) -> Result<Horizon> {
        let world = &self.incarnation.world;
        let then = vec![Op::Get(world.keys.epoch()), Op::GetAll(world.keys.servers())];
        let read = Transaction { then, ..Transaction::default() };
        let read = self.incarnation.insist(|| world.coordinator.run(read.clone())).await?;
        let mut horizon = Horizon { last_epoch: 0, pending: BTreeMap::new() };
        for found in read.found {
            if found.key == world.keys.epoch() {
                horizon.last_epoch = parse_number(&found.value).unwrap_or(0);
            } else if let Some(server) = ServerMessage::of(&found.value) {
                horizon.pending.insert(server.epoch, server.oldest_pending);
            }
        }
        Ok(horizon)
    }

    /// Deletes the objects of logs that no row depends on, also those that a dead server
    /// has created since, and keeps the SEALs: they fence such a server.
    async fn collect_logs(
        &self,
        marks: &mut Marks,
        collected: &mut CollectedGarbage,
    ) -> Result<()> {
        let world = &self.incarnation.world;
        let ends = self.incarnation.insist(|| world.coordinator.get_all(world.keys.ends())).await?;
        for found in ends {
            let epoch = found.key.strip_prefix(&world.keys.ends()[..]).and_then(parse_number);
            let (Some(epoch), Some(end)) = (epoch, parse_number(&found.value)) else { continue };
            let recovered = world.keys.recovered(epoch);
            let is_recovered =
                self.incarnation.insist(|| world.number(recovered.clone())).await?.is_some();
            if !is_recovered && world.rules.log_gc_after_recovery {
                continue;
            }
            if marks.logs.contains(&epoch) {
                continue;
            }
            let Ok(slots) = wait_for_reply(|done| self.logs.list(epoch, done)).await else {
                collected.failed += 1;
                continue;
            };
            let mut is_clean = slots.contains(&end);
            for slot in slots.into_iter().filter(|slot| *slot != end) {
                self.incarnation.lease.check()?;
                let at = LogSlot { epoch, slot };
                match wait_for_reply(|done| self.logs.delete(at, done)).await {
                    Ok(()) => collected.deleted_objects += 1,
                    Err(_) => collected.failed += 1,
                }
                is_clean = false;
            }
            // Requests of the dead server that are still under way may create objects, so a
            // log is done when a later round has found nothing.
            if is_clean && world.rules.log_gc_after_recovery {
                marks.logs.insert(epoch);
            }
        }
        Ok(())
    }
}

impl Incarnation {
    /// Publishes the lowest number of a file that no row may name yet: the collection
    /// leaves later ones alone. Returns false if it is not known whether it is published.
    pub(crate) async fn publish_pending(&self, oldest: u64) -> Result<bool> {
        self.lease.check()?;
        let world = &self.world;
        let key = world.keys.server(&self.id);
        let Ok(Some(found)) = world.coordinator.get(key.clone()).await else { return Ok(false) };
        let Some(mut server) = ServerMessage::of(&found.value) else { return Ok(false) };
        if server.epoch != self.epoch || server.oldest_pending >= oldest {
            return Ok(server.epoch == self.epoch);
        }
        server.oldest_pending = oldest;
        let when = vec![self.has_lease(), Compare::Modified(key.clone(), found.modified)];
        let then = vec![Op::Put { key, value: server.bytes(), lease: found.lease }];
        let put = Transaction { when, then, otherwise: Vec::new() };
        Ok(world.coordinator.run(put).await.is_ok_and(|done| done.applied))
    }
}
