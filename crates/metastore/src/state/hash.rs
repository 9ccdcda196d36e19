//! A checksum of the key space, by which members can be compared.

use stele_engine::{Columns, FamilyColumns, ScanSpec, TimeRange, View};

use super::{Floor, MemberState, VALUE};
use crate::error::Result;

/// A checksum of the keys as of `hash_revision`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash {
    pub hash: u32,
    pub hash_revision: i64,
    pub compacted: i64,
}

impl MemberState {
    /// Returns the checksum at a revision (0: the newest). It does not depend
    /// on how much older history is retained, so it is the same before and
    /// after that revision is compacted.
    pub fn hash(&self, revision: i64) -> Result<Hash> {
        loop {
            let (at, _) = self.resolve(revision, Floor::Compacted)?;
            let compacted = self.compacted();
            let hash = self.hash_at(at)?;
            // History above the line may have been dropped during the read.
            if self.waterline() <= at {
                // Clients interpret 0 as no answer.
                return Ok(Hash { hash: hash.max(1), hash_revision: at, compacted });
            }
        }
    }

    fn hash_at(&self, at: i64) -> Result<u32> {
        let spec = ScanSpec {
            columns: Columns::Families(vec![FamilyColumns::all(VALUE)]),
            times: Some(TimeRange { min: i64::MIN, max: at }),
            versions: Some(1),
            markers: true,
            view: View::Latest,
            ..ScanSpec::default()
        };
        // Of each key: the newest version, unless it is a deletion below the
        // revision.
        let mut hash = 0;
        self.store().read(self.tables.user, spec, |cell| {
            if cell.marker && cell.timestamp < at {
                return;
            }
            hash = crc32c::crc32c_append(hash, cell.row);
            hash = crc32c::crc32c_append(hash, &cell.timestamp.to_le_bytes());
            hash = crc32c::crc32c_append(hash, &[u8::from(cell.marker)]);
            hash = crc32c::crc32c_append(hash, cell.value);
        })?;
        Ok(hash)
    }
}
