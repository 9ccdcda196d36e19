//! Advisory locks: shared or exclusive, first come, first served. They are held
//! by sessions (which are leases) and released when the session ends.

use bytes::Bytes;

use super::kv::check_rows;
use super::run::EntryRun;
use crate::command::{Acquire, Grant, HeldLock, VERSION_OF_LIMITS, within};
use crate::error::{Error, Result};

/// The maximum number of holders and waiters of a lock, because every change
/// stores all of them.
const LOCK_CALLS_MAX: usize = 10_000;

impl EntryRun<'_> {
    /// Acquires a lock, or queues for it. All calls of a session share its
    /// grant.
    pub fn acquire(&mut self, acquire: &Acquire) -> Result<Option<Grant>> {
        let Acquire { key, session, mode, no_wait, call_id } = acquire;
        let (session, mode, call_id) = (*session, *mode, *call_id);
        check_rows(key, true)?;
        if !self.leases.exists(session) {
            return Err(Error::LeaseNotFound);
        }
        let mut lock = self.overlay.lock(key)?;
        let differs = || Error::LockModeDiffers { key: key.clone() };
        if let Some(grant) = lock.holder(session) {
            if grant.mode != mode {
                return Err(differs());
            }
            if call_id != 0 && lock.share(session, call_id) {
                self.overlay.set_lock(key, lock);
            }
            return Ok(Some(grant));
        }
        if let Some(waiting) = lock.waiter(session) {
            if waiting != mode {
                return Err(differs());
            }
            if call_id == 0 || *no_wait {
                return Ok(None);
            }
        }
        if self.version >= VERSION_OF_LIMITS {
            within(
                "calls that hold or wait for one lock",
                lock.holders_and_waiters(),
                LOCK_CALLS_MAX,
            )?;
        }
        lock.queue(session, mode, call_id);
        lock.grant(self.overlay.revision_of_change());
        let grant = lock.holder(session);
        if grant.is_none() && *no_wait {
            return Ok(None);
        }
        self.overlay.set_lock(key, lock);
        self.overlay.set_lock_key(session, key, true);
        Ok(grant)
    }

    /// Releases a lock or leaves its queue; with a call id, only for that call.
    pub fn release(&mut self, key: &Bytes, session: i64, call_id: u64) -> Result<()> {
        if self.leave_lock(key, session, (call_id != 0).then_some(call_id))? {
            Ok(())
        } else {
            Err(Error::LockNotHeld { key: key.clone() })
        }
    }

    /// Removes a session, or one of its calls, from a lock, and grants it to
    /// the next waiters. Returns whether the session or call was there.
    pub fn leave_lock(&mut self, key: &Bytes, session: i64, call_id: Option<u64>) -> Result<bool> {
        let mut lock = self.overlay.lock(key)?;
        let left = match call_id {
            Some(call_id) => lock.cancel(session, call_id),
            None => lock.remove(session),
        };
        if !left {
            return Ok(false);
        }
        lock.grant(self.overlay.revision_of_change());
        let stays = lock.holder(session).is_some() || lock.waiter(session).is_some();
        self.overlay.set_lock(key, lock);
        if !stays {
            self.overlay.set_lock_key(session, key, false);
        }
        Ok(true)
    }

    /// Checks that the session holds the lock by this exact grant.
    pub fn check_held(&self, held: &HeldLock) -> Result<()> {
        let grant = self.overlay.lock(&held.key)?.holder(held.session);
        match grant {
            Some(grant) if grant.token == held.token => Ok(()),
            _ => Err(Error::LockNotHeld { key: held.key.clone() }),
        }
    }
}
