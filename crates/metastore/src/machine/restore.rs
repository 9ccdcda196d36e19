//! Restores the keys of a snapshot into an otherwise empty store. They keep
//! their revisions and versions; retained history begins at the restored
//! revision.

use std::collections::BTreeSet;

use super::kv::check_rows;
use super::run::EntryRun;
use crate::command::Restore;
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
            let revisions = 1..revision;
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
