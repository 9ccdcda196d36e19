//! The operations on leases that go through the log: grant, revoke, expire, and
//! records of deadlines. Renewals do not.

use bytes::Bytes;

use super::run::EntryRun;
use crate::command::{LEVEL_OF_DEADLINES, OWNER_BYTES, Reply, VERSION_OF_LIMITS};
use crate::error::{Error, Result};
use crate::state::StoredLease;

/// The maximum number and bytes of keys that one entry deletes for expired
/// leases.
pub const EXPIRED_KEYS_MAX: usize = 5_000;
pub const EXPIRED_BYTES_MAX: usize = 8 << 20;

impl EntryRun<'_> {
    pub fn grant_lease(&mut self, id: i64, ttl_seconds: i64) -> Result<Reply> {
        if id == 0 || self.leases.exists(id) {
            return Err(Error::LeaseExists);
        }
        self.leases.grant(id, ttl_seconds);
        self.overlay.set_lease(id, Some(StoredLease { ttl_seconds, deadline_micros: None }));
        Ok(Reply::LeaseGrant { id, ttl_seconds })
    }

    /// Records the group clock, and deadlines of leases by it. Skips leases that
    /// have been revoked in the meantime.
    pub fn record_deadlines(&mut self, clock_micros: i64, deadlines: &[(i64, i64)]) -> Result<()> {
        let level = self.overlay.watermarks.level;
        if level < LEVEL_OF_DEADLINES {
            return Err(Error::LevelTooLow { needed: LEVEL_OF_DEADLINES, level });
        }
        self.record_clock(clock_micros);
        for &(id, deadline_micros) in deadlines {
            if let Some(lease) = self.leases.apply_deadline(id, deadline_micros) {
                self.overlay.set_lease(id, Some(lease));
            }
        }
        Ok(())
    }

    pub fn revoke_lease(&mut self, id: i64) -> Result<()> {
        if !self.leases.exists(id) {
            return Err(Error::LeaseNotFound);
        }
        let keys = self.overlay.lease_keys(id)?;
        self.end_lease(id, keys)
    }

    /// Revokes expired leases, each in a revision of its own. Skips those that
    /// have been revoked in the meantime.
    ///
    /// One entry deletes a bounded number of keys. A lease with more keys loses
    /// some of them and stays; the proposer proposes it again.
    pub fn expire(&mut self, ids: &[i64]) -> Result<()> {
        if self.version < VERSION_OF_LIMITS {
            return self.expire_all(ids);
        }
        let (mut keys_left, mut bytes_left) = (EXPIRED_KEYS_MAX, EXPIRED_BYTES_MAX);
        for &id in ids {
            if !self.leases.exists(id) {
                continue;
            }
            self.overlay.begin_revision();
            let mut keys = self.overlay.lease_keys_some(id, keys_left + 1, bytes_left + 1)?;
            // The number of keys read depends on how they are stored; the
            // number of keys deleted must not, because every replica applies
            // this.
            let (mut fit, mut bytes) = (0, 0);
            for key in keys.iter().take(keys_left) {
                let with_key = bytes + OWNER_BYTES + key.len();
                if with_key > bytes_left {
                    break;
                }
                (fit, bytes) = (fit + 1, with_key);
            }
            if fit == keys.len() {
                (keys_left, bytes_left) = (keys_left - fit, bytes_left - bytes);
                self.end_lease(id, keys)?;
                continue;
            }
            if keys_left == EXPIRED_KEYS_MAX {
                keys.truncate(fit.max(1));
                self.delete_keys(keys)?;
            }
            break;
        }
        Ok(())
    }

    fn expire_all(&mut self, ids: &[i64]) -> Result<()> {
        for &id in ids {
            if self.leases.exists(id) {
                self.overlay.begin_revision();
                let keys = self.overlay.lease_keys(id)?;
                self.end_lease(id, keys)?;
            }
        }
        Ok(())
    }

    pub fn check_lease(&self, id: i64) -> Result<()> {
        if id != 0 && !self.leases.exists(id) { Err(Error::LeaseNotFound) } else { Ok(()) }
    }

    fn delete_keys(&mut self, keys: Vec<Bytes>) -> Result<()> {
        for key in keys {
            if let Some(tail) = self.overlay.newest(&key)? {
                self.overlay.delete(&key, &tail);
            }
        }
        Ok(())
    }

    /// Deletes all keys of a lease and releases its locks, in one revision.
    fn end_lease(&mut self, id: i64, keys: Vec<Bytes>) -> Result<()> {
        self.delete_keys(keys)?;
        for key in self.overlay.lock_keys(id)? {
            self.leave_lock(&key, id, None)?;
        }
        self.overlay.set_lease(id, None);
        self.leases.revoke(id);
        Ok(())
    }
}
