//! The engine tables of the metastore, which `docs/metastore.md` specifies. A
//! key of the user is a row of `user` and of no other table.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use stele_engine::schema::{Family, Group, Purge, Schema};
use stele_engine::{BatchLimits, CommitBuilder, RowRange, ScanSpec, Store, TableId, View};

use super::MemberState;
use super::lease::StoredLease;
use super::quotas::{PrefixQuota, Quotas};
use super::watermarks::{Sample, Watermarks};
use crate::auth::{AuthState, ROW as AUTH_ROW, Row};
pub use crate::command::OWNER_BYTES;
use crate::command::{ActiveAlarm, Alarm};
use crate::error::{Error, Result};

/// The family of `user` that holds values.
pub const VALUE: &[u8] = b"v";
/// The family of `user` that holds locks.
pub const LOCK: &[u8] = b"l";
/// The only family of all other tables.
pub const DATA: &[u8] = b"d";

const WATERMARKS_ROW: &[u8] = b"numbers";
const ALARMS_ROW: &[u8] = b"alarms";
const WATERLINE_ROW: &[u8] = b"waterline";
/// The prefix of the rows of quotas in `meta`, after the other rows.
const QUOTA_ROW: &[u8] = b"quota/";

/// The ids of the tables, which ascend in this order.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    pub user: TableId,
    pub changes: TableId,
    pub counts: TableId,
    pub leases: TableId,
    pub lease_keys: TableId,
    pub lock_keys: TableId,
    pub time: TableId,
    pub waterline: TableId,
    pub meta: TableId,
}

/// The owner of the state. Chosen when the tables are created, and never
/// changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub cluster_id: u64,
    pub member_id: u64,
}

impl Identity {
    fn encode(&self) -> Vec<u8> {
        [self.cluster_id.to_le_bytes(), self.member_id.to_le_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Identity> {
        let (cluster, member) = bytes.split_at_checked(8)?;
        Some(Identity {
            cluster_id: u64::from_le_bytes(cluster.try_into().ok()?),
            member_id: u64::from_le_bytes(member.try_into().ok()?),
        })
    }
}

impl Tables {
    /// Opens the tables of a store. Creates missing ones, with the identity
    /// that `new` returns; `meta`, which stores the identity, is created
    /// last.
    pub fn open(store: &Store, new: impl FnOnce() -> Identity) -> Result<Tables> {
        let user = match store.table("user") {
            Some(table) => table,
            None => store.create_table("user", user_schema(-1)?)?,
        };
        let plain = |name: &str| -> Result<TableId> {
            match store.table(name) {
                Some(table) => Ok(table),
                None => Ok(store.create_table(name, Schema::with_families([Family::new(DATA)])?)?),
            }
        };
        let tables = Tables {
            user,
            changes: plain("changes")?,
            counts: plain("counts")?,
            leases: plain("leases")?,
            lease_keys: plain("lease_keys")?,
            lock_keys: plain("lock_keys")?,
            time: plain("time")?,
            waterline: plain("waterline")?,
            meta: match store.table("meta") {
                Some(table) => table,
                None => {
                    let schema = Schema::with_families([Family::new(DATA)])?;
                    store.create_table("meta", schema.annotated(new().encode()))?
                }
            },
        };
        let ids = [tables.user, tables.changes, tables.counts, tables.leases, tables.lease_keys];
        let ids =
            ids.iter().chain([&tables.lock_keys, &tables.time, &tables.waterline, &tables.meta]);
        if !ids.is_sorted_by(|a, b| a < b) {
            return Err(Error::Config(
                "the directory does not hold a metastore: choose another directory".into(),
            ));
        }
        Ok(tables)
    }

    /// Returns the owner of the tables.
    pub fn identity(&self, store: &Store) -> Result<Identity> {
        let schema = store.schema(self.meta)?;
        let identity = Identity::decode(schema.annotation());
        identity.ok_or_else(|| {
            Error::Internal("the stored identity of the member is missing or malformed".into())
        })
    }

    /// Lets the engine drop what only reads below the line would see.
    pub fn set_waterline(&self, store: &Store, line: i64) -> Result<()> {
        Ok(store.alter_table(self.user, user_schema(line)?)?)
    }

    /// Returns the line below which the engine drops history.
    pub fn engine_waterline(&self, store: &Store) -> Result<i64> {
        let schema = store.schema(self.user)?;
        Ok(schema.groups()[0].purge.waterline().unwrap_or(-1))
    }

    pub fn read_watermarks(&self, store: &Store) -> Result<Watermarks> {
        match self.read_one(store, self.meta, WATERMARKS_ROW)? {
            Some(bytes) => Watermarks::decode(&bytes),
            None => Ok(Watermarks::default()),
        }
    }

    pub fn read_samples(&self, store: &Store) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        read_all(store, self.time, RowRange::all(), |row, value| {
            samples.push(Sample::decode(row, value));
        })?;
        samples.into_iter().collect()
    }

    pub fn read_alarms(&self, store: &Store) -> Result<Vec<ActiveAlarm>> {
        let bytes = self.read_one(store, self.meta, ALARMS_ROW)?.unwrap_or_default();
        let parse = |stored: &[u8]| {
            let member = u64::from_le_bytes(stored[..8].try_into().expect("chunks of nine bytes"));
            let (alarm, by_hand) = match stored[8] {
                0 => (Alarm::NoSpace, false),
                1 => (Alarm::Corrupt, false),
                2 => (Alarm::NoSpace, true),
                3 => (Alarm::Corrupt, true),
                _ => return Err(Error::Internal("unknown kind of a stored alarm".into())),
            };
            Ok(ActiveAlarm { member, alarm, by_hand })
        };
        bytes.chunks_exact(9).map(parse).collect()
    }

    /// Returns the stored users and roles.
    pub fn read_auth(&self, store: &Store) -> Result<AuthState> {
        let mut auth = AuthState::default();
        let mut outcome = Ok(());
        read_all(store, self.meta, RowRange::prefix(AUTH_ROW), |row, value| {
            if let Err(error) = auth.read_row(row, value) {
                outcome = Err(error);
            }
        })?;
        outcome.map(|()| auth)
    }

    /// Adds the rows of `meta`, which must come last in a commit.
    pub fn push_meta(
        &self,
        commit: &mut CommitBuilder,
        watermarks: &Watermarks,
        alarms: Option<&[ActiveAlarm]>,
        auth: &[Row],
    ) {
        const BY_HAND: u8 = 2;
        commit.table(self.meta);
        if let Some(alarms) = alarms {
            let mut bytes = Vec::new();
            for ActiveAlarm { member, alarm, by_hand } in alarms {
                bytes.extend_from_slice(&member.to_le_bytes());
                bytes.push(*alarm as u8 + if *by_hand { BY_HAND } else { 0 });
            }
            commit.row(ALARMS_ROW).set(DATA, b"", 0, &bytes);
        }
        for (row, value) in auth {
            commit.row(row);
            match value {
                Some(value) => commit.set(DATA, b"", 0, value),
                None => commit.delete_row(),
            };
        }
        commit.row(WATERMARKS_ROW).set(DATA, b"", 0, &watermarks.encode());
    }

    /// Adds the rows of quotas that changed, after the other rows of `meta`.
    pub fn push_quotas(
        &self,
        commit: &mut CommitBuilder,
        quotas: &Quotas,
        changed: &BTreeSet<Bytes>,
    ) {
        for prefix in changed {
            commit.row(&[QUOTA_ROW, prefix].concat());
            match quotas.get(prefix) {
                Some(quota) => commit.set(DATA, b"", 0, &quota.encode()),
                None => commit.delete_row(),
            };
        }
    }

    pub fn read_quotas(&self, store: &Store) -> Result<Quotas> {
        let mut found = Vec::new();
        read_all(store, self.meta, RowRange::prefix(QUOTA_ROW), |row, value| {
            let prefix = Bytes::copy_from_slice(&row[QUOTA_ROW.len()..]);
            found.push((prefix, PrefixQuota::decode(value)));
        })?;
        let mut quotas = Quotas::default();
        for (prefix, quota) in found {
            quotas.set(prefix, quota?);
        }
        Ok(quotas)
    }

    /// Replaces the identity. For a member that leaves its cluster, offline.
    pub fn set_identity(&self, store: &Store, identity: Identity) -> Result<()> {
        let schema = Schema::with_families([Family::new(DATA)])?;
        Ok(store.alter_table(self.meta, schema.annotated(identity.encode()))?)
    }

    /// Stores the waterline in a table of its own, with its history.
    fn push_waterline(&self, commit: &mut CommitBuilder, watermarks: &Watermarks) {
        let (revision, line) = (watermarks.revision, watermarks.waterline.to_le_bytes());
        commit.table(self.waterline).row(WATERLINE_ROW).set(DATA, b"", revision, &line);
    }

    /// Adds leases and their keys.
    pub fn push_leases(
        &self,
        commit: &mut CommitBuilder,
        leases: &BTreeMap<i64, Option<StoredLease>>,
        lease_keys: &BTreeMap<Vec<u8>, bool>,
        lock_keys: &BTreeMap<Vec<u8>, bool>,
    ) {
        if !leases.is_empty() {
            commit.table(self.leases);
        }
        // Rows are ordered by the bits of the id, in which negative ids come
        // last.
        let (negative, positive) = (leases.range(..0), leases.range(0..));
        for (id, lease) in positive.chain(negative) {
            commit.row(&id.to_be_bytes());
            match lease {
                Some(lease) => commit.set(DATA, b"", 0, &lease.encode()),
                None => commit.delete_row(),
            };
        }
        for (table, rows) in [(self.lease_keys, lease_keys), (self.lock_keys, lock_keys)] {
            if !rows.is_empty() {
                commit.table(table);
            }
            for (row, there) in rows {
                commit.row(row);
                if *there {
                    commit.set(DATA, b"", 0, b"")
                } else {
                    commit.delete_row()
                };
            }
        }
    }

    /// Adds a sample, and removes those below the waterline when it moves.
    pub fn push_time(
        &self,
        commit: &mut CommitBuilder,
        sample: Option<&Sample>,
        line_moved: Option<&Watermarks>,
    ) {
        commit.table(self.time);
        if let Some(watermarks) = line_moved {
            let line = watermarks.waterline.max(0);
            commit.delete_range(&RowRange::new(0i64.to_be_bytes(), line.to_be_bytes()));
        }
        if let Some(sample) = sample {
            commit.row(&sample.revision.to_be_bytes()).set(DATA, b"", 0, &sample.encode());
        }
        if let Some(watermarks) = line_moved {
            self.push_waterline(commit, watermarks);
        }
    }

    /// Returns all leases.
    pub fn read_leases(&self, store: &Store) -> Result<Vec<(i64, StoredLease)>> {
        let mut leases = Vec::new();
        read_all(store, self.leases, RowRange::all(), |row, value| {
            let id = row.try_into().ok().map(i64::from_be_bytes);
            leases.push(id.zip(StoredLease::decode(value)));
        })?;
        let all: Option<Vec<_>> = leases.into_iter().collect();
        all.ok_or_else(|| Error::Internal("cannot decode a stored lease".into()))
    }

    fn read_one(&self, store: &Store, table: TableId, row: &[u8]) -> Result<Option<Vec<u8>>> {
        let spec = ScanSpec { view: View::Latest, ..ScanSpec::default() };
        let mut found = None;
        store.read_row(table, row, &spec, |cell| found = Some(cell.value.to_vec()))?;
        Ok(found)
    }
}

/// Returns the row of a key in `lease_keys` or `lock_keys`: the id of the
/// lease, then the key.
pub fn owned_row(owner: i64, key: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(OWNER_BYTES + key.len());
    row.extend_from_slice(&owner.to_be_bytes());
    row.extend_from_slice(key);
    row
}

impl MemberState {
    /// Returns the first rows of a lease in `lease_keys` or `lock_keys`, at
    /// most `rows_max` and about `bytes_max` bytes.
    pub fn owned_rows_some(
        &self,
        table: TableId,
        owner: i64,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<BTreeSet<Vec<u8>>> {
        let mut rows = BTreeSet::new();
        let range = RowRange::prefix(&owned_row(owner, b""));
        let spec =
            ScanSpec { view: View::Latest, rows_max: Some(rows_max), ..ScanSpec::range(range) };
        let mut scan = self.store.scan(table, spec)?;
        let mut bytes = 0;
        loop {
            let limits = BatchLimits { bytes: bytes_max, ..BatchLimits::default() };
            let end = scan.next_batch(limits, &mut |cell| {
                bytes += cell.row.len();
                rows.insert(cell.row.to_vec());
            })?;
            if end.done || bytes >= bytes_max {
                return Ok(rows);
            }
        }
    }

    /// Returns the rows of a lease in `lease_keys` or `lock_keys`.
    pub fn owned_rows(&self, table: TableId, owner: i64) -> Result<BTreeSet<Vec<u8>>> {
        let mut rows = BTreeSet::new();
        read_all(&self.store, table, RowRange::prefix(&owned_row(owner, b"")), |row, _| {
            rows.insert(row.to_vec());
        })?;
        Ok(rows)
    }
}

/// Reads rows of a plain table.
pub fn read_all(
    store: &Store,
    table: TableId,
    rows: RowRange,
    mut sink: impl FnMut(&[u8], &[u8]),
) -> Result<()> {
    let spec = ScanSpec { view: View::Latest, ..ScanSpec::range(rows) };
    store.read(table, spec, |cell| sink(cell.row, cell.value))?;
    Ok(())
}

/// Stores values and locks in separate groups, so that a range does not read
/// locks.
fn user_schema(waterline: i64) -> Result<Schema> {
    let group = |name: &str, family: &[u8]| Group {
        purge: Purge::Waterline(waterline),
        ..Group::new(name, [Family::new(family)])
    };
    Ok(Schema::new(vec![group("values", VALUE), group("locks", LOCK)])?)
}
