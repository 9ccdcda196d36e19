//! Commands about the group as a whole: its feature level, and the quotas of
//! prefixes.

use bytes::Bytes;
use stele_engine::Flow;

use super::overlay::Bounds;
use super::run::EntryRun;
use crate::command::{LEVEL_OF_HASHES, Quota, within};
use crate::error::{Error, Result};
use crate::key::{KeyRange, Tail};
use crate::state::{Buckets, KeyHash, PrefixQuota};

/// The maximum number of quotas.
pub const QUOTAS_MAX: usize = 1000;

impl EntryRun<'_> {
    /// Raises the level. Reads all keys once when the level begins to have
    /// hashes. The applier has checked that this version knows the level.
    pub fn raise_level(&mut self, level: u32) -> Result<()> {
        let before = self.overlay.watermarks.level;
        if level <= before {
            return Ok(());
        }
        if before < LEVEL_OF_HASHES {
            let mut buckets = Buckets::default();
            let newest = self.overlay.revision();
            self.overlay.each(&KeyRange::all(), newest, Bounds::default(), &mut |view| {
                buckets.add(KeyHash::of(view.key, view.tail));
                Flow::Continue
            })?;
            self.overlay.watermarks.buckets = buckets;
        }
        self.overlay.watermarks.level = level;
        Ok(())
    }

    /// Sets the quota of a prefix, whose usage is measured now and counted from
    /// then on. `None` removes it.
    pub fn set_quota(&mut self, prefix: &Bytes, quota: Option<Quota>) -> Result<()> {
        let level = self.overlay.watermarks.level;
        if level < LEVEL_OF_HASHES {
            return Err(Error::LevelTooLow { needed: LEVEL_OF_HASHES, level });
        }
        let quotas = self.overlay.quotas.as_deref();
        let known = quotas.and_then(|quotas| quotas.get(prefix)).copied();
        let quota = match (quota, known) {
            (None, None) => return Err(Error::KeyNotFound),
            (None, Some(_)) => None,
            (Some(quota), Some(known)) => Some(PrefixQuota { quota, ..known }),
            (Some(quota), None) => {
                let count = quotas.map_or(0, |quotas| quotas.len());
                within("quotas of prefixes", count + 1, QUOTAS_MAX)?;
                Some(self.measure_prefix(prefix, quota)?)
            }
        };
        self.overlay.set_quota(prefix, quota);
        Ok(())
    }

    fn measure_prefix(&self, prefix: &Bytes, quota: Quota) -> Result<PrefixQuota> {
        let mut used = PrefixQuota { quota, keys: 0, bytes: 0 };
        let (range, newest) = (KeyRange::prefix(prefix.clone()), self.overlay.revision());
        self.overlay.each(&range, newest, Bounds::default(), &mut |view| {
            used.keys += 1;
            used.bytes += size(view.key, view.value());
            Flow::Continue
        })?;
        Ok(used)
    }

    /// Refuses a put that would exceed the quota of a prefix.
    pub fn check_prefix_quotas(&mut self, key: &Bytes, value_bytes: usize) -> Result<()> {
        let Some(quotas) = &self.overlay.quotas else { return Ok(()) };
        if quotas.of(key).next().is_none() {
            return Ok(());
        }
        let old = self.overlay.newest(key)?;
        let old_bytes = old.as_ref().map_or(0, |tail| size(key, Tail::parse(tail).value));
        let bytes = i64::try_from(key.len() + value_bytes).unwrap_or(i64::MAX);
        let keys = i64::from(old.is_none());
        quotas.check(key, keys, bytes - old_bytes, &mut self.quota_growth)
    }
}

fn size(key: &[u8], value: &[u8]) -> i64 {
    i64::try_from(key.len() + value.len()).unwrap_or(i64::MAX)
}
