//! The table of changes: one row per change, so that catching up on k changes
//! costs k reads, however many keys there are.

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use prost::encoding::{decode_varint, encode_varint};
use stele_engine::{
    BatchLimits, Columns, CommitBuilder, FamilyColumns, RowRange, Scan, ScanSpec, TimeRange, View,
};

use super::tables::{DATA, read_all};
use super::{LOCK, MemberState, VALUE};
use crate::error::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// A put of a key that did not exist.
    Create,
    Put,
    Delete,
    Lock,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub revision: i64,
    /// Orders the changes of one revision.
    pub sub: u32,
    pub kind: ChangeKind,
    pub key: Bytes,
    /// The tail of a put that a later change of the same revision overwrote, so
    /// that the key's cell does not have it.
    pub overwritten: Option<Bytes>,
    /// The user who made the change, if callers are identified.
    pub user: Option<Arc<str>>,
}

/// The stored forms of a changed key: the tail of its value, or its lock.
pub struct ChangedVersions {
    /// As of the change's revision; empty if the key was deleted.
    pub new: Vec<u8>,
    /// As of the revision before.
    pub prev: Option<Vec<u8>>,
}

/// Bytes before the key: the kind and the time.
const HEAD_BYTES: usize = 1 + 8;
/// A flag in the kind: the key is preceded by its length and followed by a
/// tail.
const HAS_OVERWRITTEN: u8 = 0x80;
/// A flag in the kind: the time is followed by the length and the name of the
/// user.
const HAS_USER: u8 = 0x40;

impl Change {
    /// Returns whether the change is of the key's value.
    pub fn is_of_value(&self) -> bool {
        self.kind != ChangeKind::Lock
    }

    /// Adds the row to the current table of the commit.
    pub fn push(&self, commit: &mut CommitBuilder, time_micros: i64) {
        let mut value = Vec::with_capacity(HEAD_BYTES + self.key.len());
        let overwritten = if self.overwritten.is_some() { HAS_OVERWRITTEN } else { 0 };
        let has_user = if self.user.is_some() { HAS_USER } else { 0 };
        value.push(self.kind as u8 | overwritten | has_user);
        value.put_i64_le(time_micros);
        if let Some(user) = &self.user {
            encode_varint(user.len() as u64, &mut value);
            value.extend_from_slice(user.as_bytes());
        }
        match &self.overwritten {
            None => value.extend_from_slice(&self.key),
            Some(overwritten) => {
                encode_varint(self.key.len() as u64, &mut value);
                value.extend_from_slice(&self.key);
                value.extend_from_slice(overwritten);
            }
        }
        commit.row(&row(self.revision, self.sub)).set(DATA, b"", 0, &value);
    }

    fn parse(row: &[u8], value: &[u8]) -> Result<Change> {
        let malformed = || Error::Internal("cannot decode a stored change".into());
        let (revision, sub) = row.split_at_checked(8).ok_or_else(malformed)?;
        let (flags, rest) = value.split_first().ok_or_else(malformed)?;
        let rest = rest.get(HEAD_BYTES - 1..).ok_or_else(malformed)?;
        let kind = match flags & !(HAS_OVERWRITTEN | HAS_USER) {
            0 => ChangeKind::Create,
            1 => ChangeKind::Put,
            2 => ChangeKind::Delete,
            3 => ChangeKind::Lock,
            _ => return Err(malformed()),
        };
        let (user, rest) = if flags & HAS_USER == 0 {
            (None, rest)
        } else {
            let (user, rest) = split_sized(rest).ok_or_else(malformed)?;
            (Some(std::str::from_utf8(user).map_err(|_| malformed())?.into()), rest)
        };
        let (key, overwritten) = if flags & HAS_OVERWRITTEN == 0 {
            (rest, None)
        } else {
            let (key, overwritten) = split_sized(rest).ok_or_else(malformed)?;
            (key, Some(Bytes::copy_from_slice(overwritten)))
        };
        Ok(Change {
            revision: revision.try_into().map(i64::from_be_bytes).map_err(|_| malformed())?,
            sub: sub.try_into().map(u32::from_be_bytes).map_err(|_| malformed())?,
            kind,
            key: Bytes::copy_from_slice(key),
            overwritten,
            user,
        })
    }
}

/// Splits off bytes that are preceded by their length.
fn split_sized(mut bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let size = decode_varint(&mut bytes).ok()?;
    bytes.split_at_checked(usize::try_from(size).ok()?)
}

/// Encodes a row. Revisions are positive, so their byte order is their order.
pub fn row(revision: i64, sub: u32) -> [u8; 12] {
    let mut row = [0; 12];
    row[..8].copy_from_slice(&revision.to_be_bytes());
    row[8..].copy_from_slice(&sub.to_be_bytes());
    row
}

/// Returns the rows of the changes in revisions `from..=to`.
pub fn rows(from: i64, to: i64) -> RowRange {
    RowRange::new(row(from.max(0), 0), row(to.max(0).saturating_add(1), 0))
}

/// A scan of changes in order, in bounded pieces.
pub struct ChangeScan(Scan);

impl ChangeScan {
    /// Appends a bounded number of changes to `out`. Returns whether these were
    /// the last.
    pub fn next(&mut self, out: &mut Vec<Change>) -> Result<bool> {
        const BATCH_BYTES: usize = 256 << 10;
        const BATCH_CELLS: usize = 4096;
        let mut outcome = Ok(());
        let limits =
            BatchLimits { bytes: BATCH_BYTES, cells: BATCH_CELLS, ..BatchLimits::default() };
        let end =
            self.0.next_batch(limits, &mut |cell| match Change::parse(cell.row, cell.value) {
                Ok(change) => out.push(change),
                Err(error) => outcome = Err(error),
            })?;
        outcome.map(|()| end.done)
    }
}

impl MemberState {
    /// Opens a scan of the changes from one on, up to and including those of
    /// revision `to`.
    pub fn open_changes(&self, from: (i64, u32), to: i64) -> Result<ChangeScan> {
        let range = RowRange::new(row(from.0.max(0), from.1), row(to.max(0).saturating_add(1), 0));
        let spec = ScanSpec { view: View::Latest, ..ScanSpec::range(range) };
        Ok(ChangeScan(self.store().scan(self.tables.changes, spec)?))
    }

    /// Passes the changes of revisions `from..=to` to `sink`, in order.
    pub fn changes(&self, from: i64, to: i64, sink: &mut dyn FnMut(Change)) -> Result<()> {
        let mut outcome = Ok(());
        read_all(&self.store(), self.tables.changes, rows(from, to), |row, value| {
            match Change::parse(row, value) {
                Ok(change) => sink(change),
                Err(error) => outcome = Err(error),
            }
        })?;
        outcome
    }

    /// Returns the time of a revision, if it has retained changes.
    pub fn time_of(&self, revision: i64) -> Result<Option<i64>> {
        let mut time = None;
        let spec = ScanSpec { view: View::Latest, ..ScanSpec::default() };
        self.store().read_row(self.tables.changes, &row(revision, 0), &spec, |cell| {
            time = cell.value.get(1..HEAD_BYTES).and_then(|bytes| bytes.try_into().ok());
        })?;
        Ok(time.map(i64::from_le_bytes))
    }

    /// Returns the revision that was the newest at a time. Every revision has a
    /// change, and their times never decrease, so this is a binary search.
    pub fn revision_at(&self, time_micros: i64) -> Result<i64> {
        let waterline = self.waterline();
        let (mut below, mut above) = (waterline.max(1), self.revision() + 1);
        if let Some(time) = self.time_of(below)?
            && time > time_micros
        {
            return Err(Error::TimeTooOld { waterline });
        }
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            match self.time_of(middle)? {
                Some(time) if time > time_micros => above = middle,
                Some(_) => below = middle,
                // Dropped during the search.
                None if self.waterline() > waterline => return self.revision_at(time_micros),
                None => {
                    return Err(Error::Internal(format!(
                        "the table of changes has no revision {middle}"
                    )));
                }
            }
        }
        Ok(below)
    }

    /// Reads the versions of a changed key around the change; `None` if they are
    /// no longer retained.
    pub fn versions_of(&self, change: &Change) -> Result<Option<ChangedVersions>> {
        let family = if change.is_of_value() { VALUE } else { LOCK };
        let spec = ScanSpec {
            columns: Columns::Families(vec![FamilyColumns::all(family)]),
            times: Some(TimeRange { min: i64::MIN, max: change.revision }),
            versions: Some(2),
            markers: true,
            view: View::Latest,
            ..ScanSpec::default()
        };
        let (mut new, mut prev) = (None, None);
        self.store().read_row(self.tables.user, &change.key, &spec, |cell| {
            if cell.timestamp == change.revision {
                new = Some(cell.value.to_vec());
            } else if prev.is_none() {
                prev = Some((!cell.marker).then(|| cell.value.to_vec()));
            }
        })?;
        // A created key has no previous value, whatever was deleted in the same
        // revision.
        let prev = prev.flatten().filter(|_| change.kind != ChangeKind::Create);
        Ok(new.map(|new| ChangedVersions { new, prev }))
    }
}
