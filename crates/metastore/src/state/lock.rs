//! What is stored of a key's lock: who holds it and who waits for it.

use prost::Message;

use crate::command::{Grant, LockMode};
use crate::error::{Error, Result};

/// The lock of a key, in its stored form.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeyLockInfo {
    /// One with an exclusive lock, or any number with shared ones.
    #[prost(message, repeated, tag = "1")]
    pub holders: Vec<Holder>,
    /// In the order in which they came.
    #[prost(message, repeated, tag = "2")]
    pub waiters: Vec<Waiter>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Holder {
    #[prost(int64, tag = "1")]
    pub session: i64,
    #[prost(bool, tag = "2")]
    pub exclusive: bool,
    /// The revision of the grant.
    #[prost(int64, tag = "3")]
    pub token: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Waiter {
    #[prost(int64, tag = "1")]
    pub session: i64,
    #[prost(bool, tag = "2")]
    pub exclusive: bool,
}

impl KeyLockInfo {
    pub fn parse(bytes: &[u8]) -> Result<KeyLockInfo> {
        KeyLockInfo::decode(bytes)
            .map_err(|error| Error::Internal(format!("a stored lock does not parse: {error}")))
    }

    /// Nobody holds it and nobody waits.
    pub fn is_free(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    pub fn holder(&self, session: i64) -> Option<Grant> {
        let holder = self.holders.iter().find(|holder| holder.session == session)?;
        Some(Grant { session, mode: mode(holder.exclusive), token: holder.token })
    }

    pub fn waiter(&self, session: i64) -> Option<LockMode> {
        let waiter = self.waiters.iter().find(|waiter| waiter.session == session)?;
        Some(mode(waiter.exclusive))
    }

    /// Queues a session, which holds nothing of this lock and does not wait.
    pub fn queue(&mut self, session: i64, mode: LockMode) {
        self.waiters.push(Waiter { session, exclusive: mode == LockMode::Exclusive });
    }

    /// Takes a session out of it. Tells whether it was in.
    pub fn remove(&mut self, session: i64) -> bool {
        let before = self.holders.len() + self.waiters.len();
        self.holders.retain(|holder| holder.session != session);
        self.waiters.retain(|waiter| waiter.session != session);
        self.holders.len() + self.waiters.len() < before
    }

    /// Grants the lock to those at the head of the queue that can hold it
    /// together, with this token. First come, first served: nobody overtakes.
    pub fn grant(&mut self, token: i64) {
        let mut granted = 0;
        for waiter in &self.waiters {
            let free = match self.holders.first() {
                None => true,
                Some(holder) => !holder.exclusive && !waiter.exclusive,
            };
            if !free {
                break;
            }
            let Waiter { session, exclusive } = *waiter;
            self.holders.push(Holder { session, exclusive, token });
            granted += 1;
        }
        self.waiters.drain(..granted);
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
            lock.queue(session, mode);
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
        lock.queue(1, LockMode::Shared);
        lock.queue(2, LockMode::Exclusive);
        lock.queue(3, LockMode::Shared);
        lock.grant(5);
        assert!(lock.holder(3).is_none());
        lock.remove(2);
        lock.grant(6);
        assert_eq!(lock.holder(3).unwrap().token, 6);
        assert_eq!(KeyLockInfo::parse(&lock.encode_to_vec()).unwrap(), lock);
    }
}
