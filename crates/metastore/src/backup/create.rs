//! Takes a backup of a running member: the next delta, or a full one.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::chain::{Chain, Chains, list};
use super::format::{Change, Header, KIND_DELETE, KIND_LOCK, KIND_PUT, Key, Lease};
use super::location::Location;
use super::writer::Writer;
use crate::Node;
use crate::command::{Alarm, KeyRange, RangeQuery};
use crate::error::{Error, Result};
use crate::state::{self, ChangeKind, Floor, MemberState};

/// The number of deltas after which the next backup is full, so that a restore
/// does not depend on too many files.
const DELTAS_MAX: usize = 24;
/// The approximate size of one read of keys.
const READ_BYTES: usize = 256 << 10;

/// Whether a backup stands alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Full,
    Delta,
    /// Nothing has changed since the last backup.
    Unchanged,
}

/// A backup that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    pub name: String,
    pub kind: Kind,
    /// The revision of the state that it ends with.
    pub revision: i64,
    pub keys: u64,
    pub changes: u64,
    pub bytes: u64,
}

/// Takes a backup: a delta if the last one can be continued and `full` is not
/// set. After a full one, removes all but the newest `keep` chains.
pub async fn create(
    node: &Node,
    location: Arc<dyn Location>,
    full: bool,
    keep: usize,
) -> Result<Created> {
    let counts = node.backups();
    let _turn = counts.turn.lock().await;
    let created = take(node, location, full, keep).await;
    match &created {
        Ok(created) => {
            counts.done.fetch_add(1, Ordering::Relaxed);
            counts.last_revision.store(created.revision, Ordering::Relaxed);
            let now = node.settings().world.clock.now_micros();
            counts.last_micros.store(now, Ordering::Relaxed);
        }
        Err(_) => {
            counts.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
    created
}

async fn take(
    node: &Node,
    location: Arc<dyn Location>,
    full: bool,
    keep: usize,
) -> Result<Created> {
    node.barrier().await?;
    let taken_micros = node.settings().world.clock.now_micros();
    let leases = node.leases().list().into_iter().filter_map(|id| {
        let granted_seconds = node.leases().time_to_live(id)?.granted_seconds;
        Some(Lease { id, granted_seconds })
    });
    let leases: Vec<Lease> = leases.collect();
    // Reads all keys and writes files, so it must not block a shared thread.
    node.with_state(move |state| {
        if state.has_alarm(Alarm::Corrupt) {
            return Err(Error::Corrupt);
        }
        let backup = Backup { state, location: &*location, leases, taken_micros };
        backup.take(full, keep)
    })
    .await
}

struct Backup<'l> {
    state: Arc<MemberState>,
    location: &'l dyn Location,
    leases: Vec<Lease>,
    taken_micros: i64,
}

impl Backup<'_> {
    fn take(&self, full: bool, keep: usize) -> Result<Created> {
        let chains = list(self.location)?;
        let to = self.state.revision();
        let header = Header {
            cluster_id: self.state.identity.cluster_id,
            member_id: self.state.identity.member_id,
            to,
            to_micros: self.state.time_of(to)?.unwrap_or(0),
            taken_micros: self.taken_micros,
            level: self.state.level(),
            ..Header::default()
        };
        self.check_same_metastore(&chains, &header)?;
        let header = match self.delta(&chains, &header) {
            Some(header) if !full => header,
            _ => self.full(header),
        };
        let mut files = chains.chains.iter().flat_map(Chain::files);
        let same = files.find(|file| file.header.to == to && (file.header.is_full() || !full));
        if let Some(file) = same {
            let (name, kind, bytes) = (file.name.clone(), Kind::Unchanged, file.bytes);
            return Ok(Created { name, kind, revision: to, keys: 0, changes: 0, bytes });
        }
        let created = self.write(&header)?;
        if header.is_full() {
            self.remove_old(keep)?;
        }
        Ok(created)
    }

    /// Refuses a location with backups of another metastore, or of one whose
    /// history went another way.
    fn check_same_metastore(&self, chains: &Chains, header: &Header) -> Result<()> {
        let Some(last) = chains.last() else { return Ok(()) };
        let place = self.location.describe();
        if last.header.cluster_id != header.cluster_id {
            return Err(Error::Config(format!(
                "{place} has backups of cluster {:x}, not of {:x}: use another directory for the \
                 backups of this metastore",
                last.header.cluster_id, header.cluster_id
            )));
        }
        let known = self.state.time_of(last.header.to.min(header.to))?;
        let diverged = last.header.to > header.to
            || (last.header.to_micros > 0
                && known.is_some_and(|micros| micros != last.header.to_micros));
        if diverged {
            return Err(Error::Config(format!(
                "{place} has a backup of revision {} with another history: the metastore was \
                 restored since; use another directory for its backups",
                last.header.to
            )));
        }
        Ok(())
    }

    /// Returns the header of the next delta; `None` if a full backup is needed.
    fn delta(&self, chains: &Chains, header: &Header) -> Option<Header> {
        let chain = chains.chains.iter().max_by_key(|chain| chain.last().header.to)?;
        let last = chain.last();
        let from = last.header.to;
        let retained = from + 1 >= self.state.waterline();
        (retained && chain.deltas.len() < DELTAS_MAX).then(|| Header {
            from,
            previous: last.digest.clone(),
            ..header.clone()
        })
    }

    /// Returns the header of a full backup: the keys of the revision before the
    /// newest and the changes of the newest, so that a restored member can tell
    /// what the newest revision deleted.
    fn full(&self, header: Header) -> Header {
        let before = header.to - 1;
        let base = if before >= self.state.waterline().max(1) { before } else { header.to };
        Header { base, from: base, previous: Bytes::new(), ..header }
    }

    fn write(&self, header: &Header) -> Result<Created> {
        let name = header.name();
        let mut written = None;
        self.location.create(&name, &mut |out: &mut dyn Write| {
            let mut writer = Writer::start(out, header)?;
            self.leases.iter().try_for_each(|lease| writer.lease(lease))?;
            if header.is_full() {
                self.write_keys(&mut writer, header.base)?;
            }
            self.write_changes(&mut writer, header)?;
            written = Some(writer.finish()?);
            Ok(())
        })?;
        let (end, bytes, _) =
            written.ok_or_else(|| Error::Internal("the backup was not written".into()))?;
        let kind = if header.is_full() { Kind::Full } else { Kind::Delta };
        let (keys, changes) = (end.keys, end.changes);
        Ok(Created { name, kind, revision: header.to, keys, changes, bytes })
    }

    fn write_keys(&self, writer: &mut Writer<'_>, base: i64) -> Result<()> {
        let query = RangeQuery::new(KeyRange::all()).at(base);
        let mut scan = self.state.open_range(&query, Floor::Retained)?;
        let mut outcome = Ok(());
        loop {
            let end = scan.next(READ_BYTES, &mut |view| {
                if outcome.is_ok() {
                    let key = Bytes::copy_from_slice(view.key);
                    outcome = writer.key(&Key { key, tail: Bytes::copy_from_slice(view.tail) });
                }
            })?;
            if outcome.is_err() || end.is_some() {
                return outcome;
            }
        }
    }

    fn write_changes(&self, writer: &mut Writer<'_>, header: &Header) -> Result<()> {
        if header.from >= header.to {
            return Ok(());
        }
        let mut scan = self.state.open_changes((header.from + 1, 0), header.to)?;
        let (mut changes, mut next) = (Vec::new(), header.from + 1);
        let (mut time, mut time_of) = (0, 0);
        loop {
            let done = scan.next(&mut changes)?;
            for change in changes.drain(..) {
                let revision = change.revision;
                if revision != time_of {
                    if revision != next {
                        return Err(self.too_old(next));
                    }
                    time = self.state.time_of(revision)?.ok_or_else(|| self.too_old(revision))?;
                    (time_of, next) = (revision, revision + 1);
                }
                writer.change(&self.with_version(change, time)?)?;
            }
            if done {
                break;
            }
        }
        if next <= header.to { Err(self.too_old(next)) } else { Ok(()) }
    }

    /// Adds the version that a change wrote.
    fn with_version(&self, change: state::Change, time_micros: i64) -> Result<Change> {
        let kind = match change.kind {
            ChangeKind::Create | ChangeKind::Put => KIND_PUT,
            ChangeKind::Delete => KIND_DELETE,
            ChangeKind::Lock => KIND_LOCK,
        };
        let tail = match (kind, &change.overwritten) {
            (KIND_PUT, Some(overwritten)) => overwritten.clone(),
            (KIND_PUT, None) => {
                let versions = self.state.versions_of(&change)?;
                versions.ok_or_else(|| self.too_old(change.revision))?.new.into()
            }
            _ => Bytes::new(),
        };
        let state::Change { revision, sub, key, .. } = change;
        Ok(Change { revision, sub, kind, time_micros, key, tail })
    }

    /// Returns the error of a revision that was dropped during the backup.
    fn too_old(&self, revision: i64) -> Error {
        Error::TooOld { revision, waterline: self.state.waterline() }
    }

    /// Removes the oldest chains, the newest files of each first, so that what
    /// an interrupted removal leaves can still be restored.
    fn remove_old(&self, keep: usize) -> Result<()> {
        let chains = list(self.location)?.chains;
        let old = chains.len().saturating_sub(keep.max(1));
        for chain in &chains[..old] {
            chain.files().rev().try_for_each(|file| self.location.remove(&file.name))?;
        }
        Ok(())
    }
}
