//! Leases in the log: granted, revoked, run out. Renewals are not.

use super::Running;
use crate::command::Reply;
use crate::error::{Error, Result};

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
        self.end_lease(id)
    }

    /// Leases that have run out, each with a revision of its own. Those that
    /// were revoked meanwhile are passed over.
    pub fn expire(&mut self, ids: &[i64]) -> Result<()> {
        for &id in ids {
            if self.leases.exists(id) {
                self.batch.begin_revision();
                self.end_lease(id)?;
            }
        }
        Ok(())
    }

    pub fn check_lease(&self, id: i64) -> Result<()> {
        if id != 0 && !self.leases.exists(id) { Err(Error::LeaseNotFound) } else { Ok(()) }
    }

    /// Deletes the keys of a lease and gives back its locks, in one revision.
    fn end_lease(&mut self, id: i64) -> Result<()> {
        for key in self.batch.lease_keys(id)? {
            if let Some(tail) = self.batch.newest(&key)? {
                self.batch.delete(&key, &tail);
            }
        }
        for key in self.batch.lock_keys(id)? {
            self.leave_lock(&key, id)?;
        }
        self.batch.set_lease(id, None);
        self.leases.revoke(id);
        Ok(())
    }
}
