//! Advisory locks: shared and exclusive, first come, first served, held by
//! sessions (which are leases) and given back when those end.

use bytes::Bytes;

use super::Running;
use crate::command::{Grant, HeldLock, LockMode};
use crate::error::{Error, Result};

impl Running<'_> {
    /// Takes a lock, or queues for it. Asking again changes nothing.
    pub fn acquire(&mut self, key: &Bytes, session: i64, mode: LockMode) -> Result<Option<Grant>> {
        if key.is_empty() {
            return Err(Error::EmptyKey);
        }
        if !self.leases.exists(session) {
            return Err(Error::LeaseNotFound);
        }
        let mut lock = self.batch.lock(key)?;
        let differs = || Error::LockModeDiffers { key: key.clone() };
        if let Some(grant) = lock.holder(session) {
            return if grant.mode == mode { Ok(Some(grant)) } else { Err(differs()) };
        }
        if let Some(waiting) = lock.waiter(session) {
            return if waiting == mode { Ok(None) } else { Err(differs()) };
        }
        lock.queue(session, mode);
        lock.grant(self.batch.revision_of_change());
        let grant = lock.holder(session);
        self.batch.set_lock(key, lock);
        self.batch.set_lock_key(session, key, true);
        Ok(grant)
    }

    /// Gives a lock back or leaves its queue.
    pub fn release(&mut self, key: &Bytes, session: i64) -> Result<()> {
        if self.leave_lock(key, session)? {
            Ok(())
        } else {
            Err(Error::LockNotHeld { key: key.clone() })
        }
    }

    /// Takes a session out of a lock; those who can hold it now get it. Tells
    /// whether the session was in.
    pub fn leave_lock(&mut self, key: &Bytes, session: i64) -> Result<bool> {
        let mut lock = self.batch.lock(key)?;
        if !lock.remove(session) {
            return Ok(false);
        }
        lock.grant(self.batch.revision_of_change());
        self.batch.set_lock(key, lock);
        self.batch.set_lock_key(session, key, false);
        Ok(true)
    }

    /// The session must hold the lock by this very grant.
    pub fn check_held(&self, held: &HeldLock) -> Result<()> {
        let grant = self.batch.lock(&held.key)?.holder(held.session);
        match grant {
            Some(grant) if grant.token == held.token => Ok(()),
            _ => Err(Error::LockNotHeld { key: held.key.clone() }),
        }
    }
}
