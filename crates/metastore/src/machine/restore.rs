//! Restores the keys of a snapshot into an otherwise empty store. They keep
//! their revisions and versions; retained history begins at the restored
//! revision.

use std::collections::BTreeSet;

use super::kv::check_rows;
use super::run::EntryRun;
use crate::command::{Restore, RestoreHistory, RestoredChange, RestoredVersion};
use crate::error::{Error, Result};
use crate::key::Tail;
use crate::state::Watermarks;

impl EntryRun<'_> {
    /// Restores a part of a snapshot. Checks everything before it changes
    /// anything.
    pub fn restore(&mut self, restore: &Restore) -> Result<()> {
        let refuse = |why: &str| Err(Error::Config(format!("cannot restore: {why}")));
        let (watermarks, revision) = (&self.overlay.watermarks, restore.revision);
        let fresh = watermarks.revision == Watermarks::default().revision;
        let started = watermarks.revision == revision && watermarks.waterline == revision;
        if !fresh && !started {
            return refuse("the store has been written to");
        }
        if revision <= Watermarks::default().revision {
            return refuse("the revision of the snapshot must be above 1");
        }
        let ids: BTreeSet<i64> = restore.leases.iter().map(|(id, _)| *id).collect();
        let duplicate = ids.iter().any(|id| *id == 0 || self.leases.exists(*id));
        if duplicate || ids.len() < restore.leases.len() {
            return refuse("duplicate lease");
        }
        for (at, kv) in restore.kvs.iter().enumerate() {
            let fields = Tail::parse(&kv.tail);
            check_rows(&kv.key, fields.lease != 0)?;
            let revisions = 1..=revision;
            if fields.encode() != kv.tail {
                return refuse("malformed key record");
            }
            if !revisions.contains(&fields.mod_revision) {
                return refuse("a key is newer than the snapshot");
            }
            let lease = fields.lease;
            if lease != 0 && !ids.contains(&lease) && !self.leases.exists(lease) {
                return refuse("the lease of a key is missing");
            }
            let follows = at == 0 || restore.kvs[at - 1].key < kv.key;
            if !follows || self.overlay.newest(&kv.key)?.is_some() {
                return refuse("the keys are not in ascending order");
            }
        }
        self.restore_key(restore)
    }

    /// Makes the changes of a backup again. Each must follow the last one, and
    /// give the same version as the backup has. A backup that does not fit is
    /// noticed in the middle, so the member is useless then; the tool discards
    /// it.
    pub fn restore_history(&mut self, history: &RestoreHistory) -> Result<()> {
        for (id, ttl_seconds) in &history.leases {
            if *id != 0 && !self.leases.exists(*id) {
                self.grant_lease(*id, *ttl_seconds)?;
            }
        }
        history.changes.iter().try_for_each(|change| self.restore_change(change))
    }

    fn restore_change(&mut self, change: &RestoredChange) -> Result<()> {
        let RestoredChange { revision, sub, time_micros, key, what } = change;
        let refuse = |why: &str| {
            Error::Config(format!("cannot restore the change of revision {revision}: {why}"))
        };
        check_rows(key, true)?;
        if !self.overlay.resume_at(*revision, *sub) {
            return Err(refuse("it does not follow the change before it"));
        }
        self.overlay.watermarks.time_micros = *time_micros;
        let prev = self.overlay.newest(key)?;
        match (what, prev) {
            (RestoredVersion::Put(tail), prev) => {
                let fields = Tail::parse(tail);
                self.overlay.put(key, fields.value, fields.lease, prev.as_ref());
                if self.overlay.newest(key)?.as_ref() != Some(tail) {
                    return Err(refuse("the version before it is missing"));
                }
            }
            (RestoredVersion::Delete, Some(prev)) => self.overlay.delete(key, &prev),
            (RestoredVersion::Delete, None) => return Err(refuse("the deleted key is missing")),
            (RestoredVersion::Lock, _) => self.overlay.restore_lock_change(key),
        }
        Ok(())
    }

    fn restore_key(&mut self, restore: &Restore) -> Result<()> {
        for (id, ttl_seconds) in &restore.leases {
            self.grant_lease(*id, *ttl_seconds)?;
        }
        for kv in &restore.kvs {
            self.overlay.restore_key(&kv.key, &kv.tail);
        }
        let watermarks = &mut self.overlay.watermarks;
        watermarks.revision = restore.revision;
        watermarks.waterline = restore.revision;
        watermarks.compacted = restore.revision;
        Ok(())
    }
}
