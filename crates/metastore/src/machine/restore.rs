//! Restores the keys of a snapshot into an otherwise empty store. They keep
//! their revisions and versions; retained history begins at the restored
//! revision.

use std::collections::BTreeSet;

use super::Running;
use super::kv::check_rows;
use crate::command::Restore;
use crate::error::{Error, Result};
use crate::state::{Numbers, Tail};

impl Running<'_> {
    /// Restores a part of a snapshot. Checks everything before it changes
    /// anything.
    pub fn restore(&mut self, restore: &Restore) -> Result<()> {
        let refuse = |why: &str| Err(Error::Config(format!("cannot restore: {why}")));
        let (numbers, revision) = (&self.batch.numbers, restore.revision);
        let fresh = numbers.revision == Numbers::default().revision;
        let begun = numbers.revision == revision && numbers.waterline == revision;
        if !fresh && !begun {
            return refuse("the store has been written to");
        }
        if revision <= Numbers::default().revision {
            return refuse("the revision of the snapshot is too small");
        }
        let ids: BTreeSet<i64> = restore.leases.iter().map(|(id, _)| *id).collect();
        let taken = ids.iter().any(|id| *id == 0 || self.leases.exists(*id));
        if taken || ids.len() < restore.leases.len() {
            return refuse("a lease is there twice");
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
            if !follows || self.batch.newest(&kv.key)?.is_some() {
                return refuse("the keys are not in order");
            }
        }
        self.put_back(restore)
    }

    fn put_back(&mut self, restore: &Restore) -> Result<()> {
        for (id, ttl_seconds) in &restore.leases {
            self.grant_lease(*id, *ttl_seconds)?;
        }
        for kv in &restore.kvs {
            self.batch.put_back(&kv.key, &kv.tail);
        }
        let numbers = &mut self.batch.numbers;
        numbers.revision = restore.revision;
        numbers.waterline = restore.revision;
        numbers.compacted = restore.revision;
        Ok(())
    }
}
