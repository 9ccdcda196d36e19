//! Leases in the log: granted, revoked, run out. Renewals are not.

use bytes::Bytes;

use super::Running;
use crate::command::{OWNER_BYTES, Reply, VERSION_OF_BOUNDS};
use crate::error::{Error, Result};

/// What one entry deletes of leases that have run out: keys, and their bytes.
pub const EXPIRED_KEYS_MAX: usize = 5_000;
pub const EXPIRED_BYTES_MAX: usize = 8 << 20;

impl Running<'_> {
    pub fn grant_lease(&mut self, id: i64, ttl_seconds: i64) -> Result<Reply> {
        if id == 0 || self.leases.exists(id) {
            return Err(Error::LeaseExists);
        }
        self.leases.grant(id, ttl_seconds);
        self.batch.set_lease(id, Some(ttl_seconds));
        Ok(Reply::LeaseGrant { id, ttl_seconds })
    }

    pub fn revoke_lease(&mut self, id: i64) -> Result<()> {
        if !self.leases.exists(id) {
            return Err(Error::LeaseNotFound);
        }
        let keys = self.batch.lease_keys(id)?;
        self.end_lease(id, keys)
    }

    /// Leases that have run out, each with a revision of its own. Those that
    /// were revoked meanwhile are skipped.
    ///
    /// One entry deletes a bounded number of keys. A lease with more of them
    /// loses some and stays; whoever proposed it proposes it again.
    pub fn expire(&mut self, ids: &[i64]) -> Result<()> {
        if self.version < VERSION_OF_BOUNDS {
            return self.expire_all(ids);
        }
        let (mut keys_left, mut bytes_left) = (EXPIRED_KEYS_MAX, EXPIRED_BYTES_MAX);
        for &id in ids {
            if !self.leases.exists(id) {
                continue;
            }
            self.batch.begin_revision();
            let mut keys = self.batch.lease_keys_some(id, keys_left + 1, bytes_left + 1)?;
            // How many were read depends on how they are stored; how many are
            // taken must not, because every replica applies this.
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
                self.batch.begin_revision();
                let keys = self.batch.lease_keys(id)?;
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
            if let Some(tail) = self.batch.newest(&key)? {
                self.batch.delete(&key, &tail);
            }
        }
        Ok(())
    }

    /// Deletes all keys of a lease and gives back its locks, in one revision.
    fn end_lease(&mut self, id: i64, keys: Vec<Bytes>) -> Result<()> {
        self.delete_keys(keys)?;
        for key in self.batch.lock_keys(id)? {
            self.leave_lock(&key, id, None)?;
        }
        self.batch.set_lease(id, None);
        self.leases.revoke(id);
        Ok(())
    }
}
