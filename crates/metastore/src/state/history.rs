//! The retained versions of one key.

use std::sync::Arc;

use bytes::Bytes;
use stele_engine::{Columns, FamilyColumns, ScanSpec, TimeRange, View};

use super::changes::ChangeKind;
use super::{MemberState, VALUE};
use crate::error::Result;
use crate::key::Tail;

/// A version of a key, or its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyVersion {
    pub revision: i64,
    /// `None` if the change is no longer retained.
    pub time_micros: Option<i64>,
    /// The user who made the change, if callers were identified.
    pub user: Option<Arc<str>>,
    /// `None` is a deletion.
    pub value: Option<Bytes>,
    pub version: i64,
    pub lease: i64,
}

/// The maximum size of the values that one call returns.
const VALUES_BYTES_MAX: usize = 3 << 20;

impl MemberState {
    /// Returns the newest versions of a key below a revision, the newest first,
    /// and whether there are more.
    pub fn key_versions(
        &self,
        key: &[u8],
        before: i64,
        limit: usize,
    ) -> Result<(Vec<KeyVersion>, bool)> {
        let spec = ScanSpec {
            columns: Columns::Families(vec![FamilyColumns::all(VALUE)]),
            times: Some(TimeRange { min: i64::MIN, max: (before - 1).min(self.revision()) }),
            versions: Some(u32::try_from(limit + 1).unwrap_or(u32::MAX)),
            markers: true,
            view: View::Latest,
            ..ScanSpec::default()
        };
        let (mut versions, mut bytes, mut more) = (Vec::new(), 0, false);
        self.store().read_row(self.tables.user, key, &spec, |cell| {
            bytes += cell.value.len();
            more |= versions.len() >= limit || !versions.is_empty() && bytes > VALUES_BYTES_MAX;
            if !more {
                let fields = Tail::parse(cell.value);
                versions.push(KeyVersion {
                    revision: cell.timestamp,
                    time_micros: None,
                    user: None,
                    value: (!cell.marker).then(|| Bytes::copy_from_slice(fields.value)),
                    version: fields.version,
                    lease: fields.lease,
                });
            }
        })?;
        for version in &mut versions {
            version.time_micros = self.time_of(version.revision)?;
            let user = &mut version.user;
            self.changes(version.revision, version.revision, &mut |change| {
                if change.key == key && change.kind != ChangeKind::Lock {
                    *user = change.user;
                }
            })?;
        }
        Ok((versions, more))
    }
}
