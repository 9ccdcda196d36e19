//! Reads of single keys.

use bytes::Bytes;
use stele_engine::{Columns, FamilyColumns, ScanSpec, TimeRange, View};

use super::lock::KeyLockInfo;
use super::retained::{Floor, ReadOutcome};
use super::{LOCK, MemberState, VALUE};
use crate::error::Result;

impl MemberState {
    /// Returns the stored tail of a key at a revision.
    pub fn get(&self, key: &[u8], revision: i64) -> Result<Option<Bytes>> {
        self.get_by(key, &value_spec(revision))
    }

    /// Returns the stored tail of a key, by a prepared spec.
    pub(crate) fn get_by(&self, key: &[u8], spec: &ScanSpec) -> Result<Option<Bytes>> {
        let mut found = None;
        self.store().read_row(self.tables.user, key, spec, |cell| {
            found = Some(Bytes::copy_from_slice(cell.value));
        })?;
        Ok(found)
    }

    /// Returns the current lock of a key.
    pub fn lock_info(&self, key: &[u8]) -> Result<Option<KeyLockInfo>> {
        self.read_retained(0, Floor::Retained, |revision, _| {
            self.lock_info_at(key, revision).map(ReadOutcome::Tentative)
        })
    }

    /// Returns the lock of a key at a retained revision.
    pub(crate) fn lock_info_at(&self, key: &[u8], revision: i64) -> Result<Option<KeyLockInfo>> {
        let spec = ScanSpec {
            columns: Columns::Families(vec![FamilyColumns::all(LOCK)]),
            versions: Some(1),
            times: Some(TimeRange { min: i64::MIN, max: revision }),
            view: View::Latest,
            ..ScanSpec::default()
        };
        let mut found = None;
        self.store().read_row(self.tables.user, key, &spec, |cell| {
            found = Some(KeyLockInfo::parse(cell.value));
        })?;
        found.transpose()
    }
}

/// Returns a spec that reads values at a revision: of each key the newest
/// version up to it, unless that is a deletion.
pub(crate) fn value_spec(revision: i64) -> ScanSpec {
    ScanSpec {
        columns: Columns::Families(vec![FamilyColumns::all(VALUE)]),
        times: Some(TimeRange { min: i64::MIN, max: revision }),
        versions: Some(1),
        view: View::Latest,
        ..ScanSpec::default()
    }
}
