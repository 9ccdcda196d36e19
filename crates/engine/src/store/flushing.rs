//! Flushes of a store: choosing what to flush, and the log's part in it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::engine::Engine;
use super::log_mode::LogMode;
use crate::error::Result;
use crate::memory::MemoryFragment;
use crate::tablet::Table;
use crate::txn::Txn;
use crate::workers::claims::{Claim, Work};
use crate::workers::flush::{self, FlushLog, FlushTarget, Readiness};

/// How often memory that is due by age, but claimed by another thread, is
/// checked again.
const AGE_POLL: Duration = Duration::from_millis(10);

impl Engine {
    /// Claims the next flush that is due.
    pub(super) fn claim_flush(&self, writers_wait: bool) -> Option<(Claim<'_>, FlushTarget)> {
        let readiness = |target: &FlushTarget| {
            let work = self.flush_work(target);
            match (self.claims.is_held(work), self.failures.backs_off(work)) {
                (true, _) => Readiness::Flushing,
                (false, true) => Readiness::BackingOff,
                (false, false) => Readiness::Free,
            }
        };
        let pinned = |txn| self.pinned_bytes(txn);
        let (target, reason) = flush::due(&self.tables, &pinned, &readiness, writers_wait)?;
        let table = &target.table.name;
        tracing::debug!(%table, group = target.group, ?reason, "flushing");
        let claim = self.claims.try_take(self.flush_work(&target))?;
        Some((claim, target))
    }

    /// Returns the claim needed to flush a group. In a store without its own
    /// log, all groups are flushed together: otherwise one chain would be ahead
    /// of the others after a crash.
    pub(super) fn flush_work(&self, target: &FlushTarget) -> Work {
        match &self.log {
            LogMode::External(_) => Work::FlushAll,
            LogMode::Own(_) | LogMode::Objects(_) => {
                Work::Flush { table: target.table.id, group: target.group }
            }
        }
    }

    /// Returns the time until memory has to be flushed because of its age.
    pub(super) fn until_age_flush(&self) -> Option<Duration> {
        let deadline = flush::next_age_deadline(&self.tables)?;
        // Memory past its deadline is being flushed, or will be once its claim
        // is free.
        let left = deadline.saturating_sub(self.tables.world.clock.elapsed());
        Some(left.max(AGE_POLL))
    }

    /// Returns how many bytes of log are pinned by a txn and its successors.
    fn pinned_bytes(&self, txn: Txn) -> u64 {
        self.log.pinned_bytes(txn)
    }

    /// Does a flush if one is due.
    pub fn flush_due(&self) -> Result<bool> {
        match self.claim_flush(false) {
            Some((claim, target)) => self.flush_claimed(&claim, &target),
            None => Ok(false),
        }
    }

    /// Flushes the group that frees the most memory and log. Waits for a
    /// running flush of it.
    pub fn flush_best(&self) -> Result<bool> {
        while let Some(target) = flush::best(&self.tables, &|txn| self.pinned_bytes(txn)) {
            let claim = self.claims.take(self.flush_work(&target));
            if self.flush_claimed(&claim, &target)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Flushes a group. Waits for a running flush of it.
    pub fn flush_group(&self, target: &FlushTarget) -> Result<bool> {
        let claim = self.claims.take(self.flush_work(target));
        self.flush_claimed(&claim, target)
    }

    pub(super) fn flush_claimed(&self, claim: &Claim<'_>, target: &FlushTarget) -> Result<bool> {
        if self.log.external().is_some() {
            return self.flush_all(claim);
        }
        let done = flush::flush(&self.tables, target, self)?;
        if done {
            self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(done)
    }
}

impl FlushLog for Engine {
    fn seal(&self, table: &Table, group: usize) {
        let clock = &self.tables.world.clock;
        let _no_writers = self.sequencer.lock();
        let begun = clock.elapsed();
        table.seal(group, &self.tables.resources.budget);
        let nanos = clock.elapsed().saturating_sub(begun).as_nanos();
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        self.counters.seal_nanos_max.fetch_max(nanos, Ordering::Relaxed);
    }

    fn wait_durable(&self, txn: Txn) -> Result<()> {
        self.log.wait_durable_idly(txn.raw())
    }

    fn durable(&self) -> Txn {
        Engine::durable(self)
    }

    /// A commit enters memory before the log, so every entry of a segment is in
    /// memory, on disk, or newer than `latest` was.
    fn head_without(&self, flushed: &[Arc<MemoryFragment>]) -> Option<u64> {
        let latest = self.latest();
        let floor = self.tables.map.txn_min(flushed).unwrap_or(Txn::MAX).min(latest.next());
        self.log.head_for(floor)
    }

    fn release_below(&self, segment: u64) -> Result<()> {
        self.log.release_below(segment)
    }

    fn releases_after_config(&self) -> bool {
        self.log.rules().floor_after_config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::store::test_store::{create_table, open, write};
    use crate::workers::flush::Reason;

    #[test]
    fn a_flush_that_backs_off_does_not_delay_flushes_of_other_tables() {
        let mut options = Options::default();
        options.memory.budget_bytes = 1 << 20;
        options.flush.budget_percent = 50;
        let store = open(options);
        let [failing, sound] = ["failing", "sound"].map(|name| create_table(&store, name));
        write(&store, failing, b"r", 400_000);
        write(&store, sound, b"r", 100_000);
        let due = |failing_is: Readiness, writers_wait: bool| {
            let readiness = |target: &FlushTarget| {
                if target.table.id == failing { failing_is } else { Readiness::Free }
            };
            let due = flush::due(&store.engine.tables, &|_| 0, &readiness, writers_wait);
            due.map(|(target, reason)| (target.table.id, reason))
        };
        assert_eq!(due(Readiness::Free, true), Some((failing, Reason::Memory)));
        // Its memory will soon be free: no other table has to be flushed.
        assert_eq!(due(Readiness::Flushing, true), None);
        // Memory whose flush backs off stays in use.
        assert_eq!(due(Readiness::BackingOff, true), Some((sound, Reason::Memory)));
        assert_eq!(due(Readiness::BackingOff, false), None, "half of the rest is free");
        write(&store, sound, b"s", 250_000);
        assert_eq!(due(Readiness::BackingOff, false), Some((sound, Reason::Memory)));
    }

    #[test]
    fn a_table_that_is_rarely_written_does_not_hold_more_log_than_half_the_budget() {
        let mut options = Options::default();
        options.memory.budget_bytes = 1 << 20;
        options.flush.budget_percent = 90;
        let store = open(options);
        let [small, large] = ["small", "large"].map(|name| create_table(&store, name));
        write(&store, small, b"r", 10);
        let oldest = store.engine.latest();
        write(&store, large, b"r", 400_000);
        let due = |of_small: u64, of_large: u64| {
            let pinned = |txn: Txn| if txn <= oldest { of_small } else { of_large };
            let free = |_: &FlushTarget| Readiness::Free;
            let due = flush::due(&store.engine.tables, &pinned, &free, false);
            due.map(|(target, reason)| (target.table.id, reason))
        };
        assert_eq!(due(500_000, 400_000), None);
        assert_eq!(due(530_000, 400_000), Some((small, Reason::Replay)));
        store.flush(small).unwrap();
        assert_eq!(due(0, 1_000_000), None, "its memory is not small");
        assert_eq!(due(0, 1_100_000), Some((large, Reason::Replay)));
    }
}
