//! Serializable transactions. The ranges that were read are validated here, in
//! log order, so that every member decides alike and nothing happens between
//! the validation and the writes.

use std::collections::HashSet;

use stele_engine::{Columns, FamilyColumns, ScanSpec, TimeRange, View};

use super::kv::check_rows;
use super::run::EntryRun;
use crate::command::Execute;
use crate::error::{Error, Result};
use crate::key::KeyRange;
use crate::state::{Change, VALUE};

/// Up to this many revisions, scanning the changes is cheaper than reading the
/// ranges again.
const REVISIONS_WALKED_MAX: i64 = 256;

impl EntryRun<'_> {
    pub fn execute(&mut self, execute: &Execute) -> Result<()> {
        let (read, now) = (execute.read_revision, self.overlay.revision());
        let waterline = self.overlay.watermarks.waterline;
        if read > now {
            return Err(Error::FutureRead { revision: read, newest: now });
        }
        if read < waterline {
            return Err(Error::TooOld { revision: read, waterline });
        }
        let mut keys = HashSet::with_capacity(execute.writes.len());
        for write in &execute.writes {
            check_rows(&write.key, write.lease != 0)?;
            if !keys.insert(&write.key) {
                return Err(Error::DuplicateKey);
            }
            self.check_lease(write.lease)?;
            if let Some(value) = &write.value {
                self.check_prefix_quotas(&write.key, value.len())?;
            }
        }
        for lock in &execute.locks {
            self.check_held(lock)?;
        }
        if let Some(change) = self.changed_since(read, &execute.reads)? {
            let (key, changed) = (change.key, change.revision);
            return Err(Error::Conflict { read_revision: read, key, changed });
        }
        for write in &execute.writes {
            let prev = self.overlay.newest(&write.key)?;
            match (&write.value, &prev) {
                (Some(value), _) => self.overlay.put(&write.key, value, write.lease, prev.as_ref()),
                (None, Some(prev)) => self.overlay.delete(&write.key, prev),
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// Returns a change in any of the ranges after a revision: a put or a
    /// delete, even if its effect is no longer visible in the newest state.
    fn changed_since(&self, revision: i64, ranges: &[KeyRange]) -> Result<Option<Change>> {
        let in_overlay = ranges.iter().find_map(|range| self.overlay.changed_in(range, revision));
        if let Some(change) = in_overlay {
            return Ok(Some(change.clone()));
        }
        let stored = self.overlay.base();
        if revision >= stored || ranges.is_empty() {
            return Ok(None);
        }
        let single = ranges.iter().all(|range| range.single_key().is_some());
        if !single && stored - revision <= REVISIONS_WALKED_MAX {
            let mut found = None;
            self.overlay.state.changes(revision + 1, stored, &mut |change| {
                let touches = |range: &KeyRange| range.contains(&change.key);
                if found.is_none() && change.is_of_value() && ranges.iter().any(touches) {
                    found = Some(change);
                }
            })?;
            return Ok(found);
        }
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            if let Some(change) = self.newer_version(range, revision)? {
                return Ok(Some(change));
            }
        }
        Ok(None)
    }

    /// Returns a stored version or deletion in a range that is newer than a
    /// revision.
    fn newer_version(&self, range: &KeyRange, revision: i64) -> Result<Option<Change>> {
        let state = self.overlay.state;
        let spec = ScanSpec {
            rows: vec![range.rows()],
            columns: Columns::Families(vec![FamilyColumns::all(VALUE)]),
            times: Some(TimeRange { min: revision + 1, max: self.overlay.base() }),
            versions: Some(1),
            markers: true,
            cells_max: Some(1),
            view: View::Latest,
            ..ScanSpec::default()
        };
        let mut found = None;
        state.store().read(state.tables.user, spec, |cell| {
            found = Some(Change {
                revision: cell.timestamp,
                sub: 0,
                kind: crate::state::ChangeKind::Put,
                key: bytes::Bytes::copy_from_slice(cell.row),
                overwritten: None,
                user: None,
            });
        })?;
        Ok(found)
    }
}
