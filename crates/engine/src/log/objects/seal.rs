//! Closes the log of a dead server.

use std::io;
use std::sync::Arc;

use super::object::{LogObject, ObjectKind, path};
use crate::error::{Error, Result};
use crate::rules::Rules;
use crate::world::{Created, LogSlot, LogStore, wait_for_reply};

/// Walks along the slots of a log from its floor and creates a SEAL in the first free
/// one. From then on the log accepts nothing: its server finds the SEAL in its next slot.
///
/// Several servers may walk at the same time; all find the same end. A walk that failed
/// continues where it was.
pub struct SealWalk {
    store: Arc<dyn LogStore>,
    next: LogSlot,
    nonce: u128,
    rules: Rules,
}

impl SealWalk {
    /// Prepares a walk from the published floor of the log. `nonce` is random.
    pub fn new(
        store: Arc<dyn LogStore>,
        epoch: u64,
        floor: u64,
        nonce: u128,
        rules: Rules,
    ) -> SealWalk {
        SealWalk { store, next: LogSlot { epoch, slot: floor }, nonce, rules }
    }

    /// Returns the end of the log: the slot of its SEAL. After an error of I/O it can be
    /// called again.
    pub async fn seal(&mut self) -> Result<u64> {
        loop {
            let at = self.next;
            let failed = |error: io::Error| Error::io("sealing", &path(at), error);
            if self.rules.seal {
                let seal = LogObject::seal(at, self.nonce);
                let created = wait_for_reply(|done| self.store.create(at, seal, done)).await;
                if created.map_err(failed)? == Created::New {
                    return Ok(at.slot);
                }
            }
            let read = wait_for_reply(|done| self.store.read(at, done)).await;
            match read.map_err(failed)? {
                Some(bytes) => match LogObject::decode(bytes, at)?.kind {
                    ObjectKind::Seal => return Ok(at.slot),
                    ObjectKind::Data => self.next.slot += 1,
                },
                None if !self.rules.seal => return Ok(at.slot),
                None => {
                    // Only a recovered log is deleted, and only while its end is known.
                    let what = "an object that existed is gone: the log has been recovered";
                    return Err(Error::Fenced { epoch: at.epoch, what: format!("{at}: {what}") });
                }
            }
        }
    }
}
