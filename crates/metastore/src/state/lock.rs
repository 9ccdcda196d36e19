//! The stored form of a key's lock: its holders and waiters.

use prost::Message;

use crate::command::{Grant, LockMode};
use crate::error::{Error, Result};

/// The lock of a key, in its stored form.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeyLockInfo {
    /// One exclusive holder, or any number of shared ones.
    #[prost(message, repeated, tag = "1")]
    pub holders: Vec<Holder>,
    /// In order of arrival.
    #[prost(message, repeated, tag = "2")]
    pub waiters: Vec<Waiter>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Holder {
    #[prost(int64, tag = "1")]
    pub session: i64,
    #[prost(bool, tag = "2")]
    pub exclusive: bool,
    /// The revision of the grant.
    #[prost(int64, tag = "3")]
    pub token: i64,
    /// The calls that share the grant and may still be cancelled. If empty,
    /// only a release ends the grant.
    #[prost(fixed64, repeated, tag = "4")]
    pub call_ids: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Waiter {
    #[prost(int64, tag = "1")]
    pub session: i64,
    #[prost(bool, tag = "2")]
    pub exclusive: bool,
    /// The waiting call; 0 in stores of older versions.
    #[prost(fixed64, tag = "3")]
    pub call_id: u64,
}

/// The maximum number of calls that share a grant and can be cancelled
/// individually. With more calls, only a release ends the grant.
const CALLS_MAX: usize = 16;

impl KeyLockInfo {
    pub fn parse(bytes: &[u8]) -> Result<KeyLockInfo> {
        KeyLockInfo::decode(bytes)
            .map_err(|error| Error::Internal(format!("cannot decode a stored lock: {error}")))
    }

    /// Returns whether there are no holders and no waiters.
    pub fn is_free(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    /// Returns the number of holders and waiters.
    pub fn holders_and_waiters(&self) -> usize {
        self.holders.len() + self.waiters.len()
    }

    pub fn holder(&self, session: i64) -> Option<Grant> {
        let holder = self.holders.iter().find(|holder| holder.session == session)?;
        Some(Grant { session, mode: mode(holder.exclusive), token: holder.token })
    }

    pub fn waiter(&self, session: i64) -> Option<LockMode> {
        let waiter = self.waiters.iter().find(|waiter| waiter.session == session)?;
        Some(mode(waiter.exclusive))
    }

    /// Returns whether this call is waiting.
    pub fn waits(&self, session: i64, call_id: u64) -> bool {
        self.waiters.iter().any(|waiter| waiter.session == session && waiter.call_id == call_id)
    }

    /// Queues a call of a session that does not hold the lock.
    pub fn queue(&mut self, session: i64, mode: LockMode, call_id: u64) {
        self.waiters.push(Waiter { session, exclusive: mode == LockMode::Exclusive, call_id });
    }

    /// Lets a call share the grant of its session. Returns whether that changes
    /// anything.
    pub fn share(&mut self, session: i64, call_id: u64) -> bool {
        let holder = self.holders.iter_mut().find(|holder| holder.session == session);
        let Some(holder) = holder.filter(|holder| !holder.call_ids.is_empty()) else {
            return false;
        };
        if call_id == 0 || holder.call_ids.len() >= CALLS_MAX {
            holder.call_ids.clear();
        } else if !holder.call_ids.contains(&call_id) {
            holder.call_ids.push(call_id);
        } else {
            return false;
        }
        true
    }

    /// Removes one call: from the queue, or from the grant it shares, which
    /// ends with its last call. Returns whether the call was there.
    pub fn cancel(&mut self, session: i64, call_id: u64) -> bool {
        let waiting = self.waiters.len();
        self.waiters.retain(|waiter| waiter.session != session || waiter.call_id != call_id);
        if self.waiters.len() < waiting {
            return true;
        }
        let at = self
            .holders
            .iter()
            .position(|holder| holder.session == session && holder.call_ids.contains(&call_id));
        let Some(at) = at else { return false };
        self.holders[at].call_ids.retain(|known| *known != call_id);
        if self.holders[at].call_ids.is_empty() {
            self.holders.remove(at);
        }
        true
    }

    /// Removes a session. Returns whether it was there.
    pub fn remove(&mut self, session: i64) -> bool {
        let before = self.holders.len() + self.waiters.len();
        self.holders.retain(|holder| holder.session != session);
        self.waiters.retain(|waiter| waiter.session != session);
        self.holders.len() + self.waiters.len() < before
    }

    /// Grants the lock, with this token, to the waiters at the head of the
    /// queue that can hold it together. First come, first served: nobody
    /// overtakes, except that all calls of a session share its grant.
    pub fn grant(&mut self, token: i64) {
        while let Some(&Waiter { session, exclusive, .. }) = self.waiters.first() {
            let free = match self.holders.first() {
                None => true,
                Some(holder) => !holder.exclusive && !exclusive,
            };
            if !free {
                break;
            }
            let mut call_ids = Vec::new();
            self.waiters.retain(|waiter| {
                let same = waiter.session == session;
                if same {
                    call_ids.push(waiter.call_id);
                }
                !same
            });
            // A call without an id cannot be cancelled.
            if call_ids.contains(&0) || call_ids.len() > CALLS_MAX {
                call_ids.clear();
            }
            self.holders.push(Holder { session, exclusive, token, call_ids });
        }
    }
}

fn mode(exclusive: bool) -> LockMode {
    if exclusive { LockMode::Exclusive } else { LockMode::Shared }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_granted_in_order_and_shared_ones_together() {
        let mut lock = KeyLockInfo::default();
        for (session, mode) in [
            (1, LockMode::Shared),
            (2, LockMode::Shared),
            (3, LockMode::Exclusive),
            (4, LockMode::Shared),
        ] {
            lock.queue(session, mode, 0);
        }
        lock.grant(10);
        assert_eq!(lock.holders.iter().map(|holder| holder.session).collect::<Vec<_>>(), [1, 2]);
        assert!(lock.remove(1));
        lock.grant(11);
        assert_eq!(lock.holder(3), None, "an exclusive lock waits for every shared one");
        assert!(lock.remove(2));
        lock.grant(12);
        let expected = Grant { session: 3, mode: LockMode::Exclusive, token: 12 };
        assert_eq!(lock.holder(3), Some(expected));
        assert_eq!(lock.waiter(4), Some(LockMode::Shared));
        assert!(lock.remove(3) && !lock.remove(3));
        lock.grant(13);
        assert_eq!(lock.holder(4).unwrap().token, 13);
    }

    #[test]
    fn who_leaves_the_queue_no_longer_holds_up_those_behind() {
        let mut lock = KeyLockInfo::default();
        lock.queue(1, LockMode::Shared, 0);
        lock.queue(2, LockMode::Exclusive, 0);
        lock.queue(3, LockMode::Shared, 0);
        lock.grant(5);
        assert!(lock.holder(3).is_none());
        lock.remove(2);
        lock.grant(6);
        assert_eq!(lock.holder(3).unwrap().token, 6);
        assert_eq!(KeyLockInfo::parse(&lock.encode_to_vec()).unwrap(), lock);
    }

    #[test]
    fn calls_of_a_session_share_a_grant_until_the_last_is_cancelled() {
        let mut lock = KeyLockInfo::default();
        lock.queue(1, LockMode::Exclusive, 10);
        lock.grant(5);
        lock.queue(2, LockMode::Exclusive, 20);
        lock.queue(3, LockMode::Exclusive, 30);
        lock.queue(2, LockMode::Exclusive, 21);
        assert!(lock.cancel(2, 20) && lock.waits(2, 21), "the other call waits on");
        assert!(!lock.cancel(1, 11) && lock.cancel(1, 10) && lock.holders.is_empty());
        lock.grant(6);
        assert_eq!(lock.holder(3).unwrap().token, 6);
        assert!(lock.share(3, 31) && !lock.share(3, 31));
        assert!(lock.cancel(3, 30) && lock.holder(3).is_some(), "another call has been notified");
        assert!(lock.cancel(3, 31) && lock.holder(3).is_none());
    }
}
