//! Creates a new member from a chain of backups, offline, with the history
//! since the full backup.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use bytes::Bytes;
use stele_engine::world::World;

use super::chain::{Chain, check_files, list, open_file};
use super::format::{Change, KIND_DELETE, KIND_LOCK, KIND_PUT, Key};
use super::location::Location;
use super::reader::Record;
use crate::command::{Command, Kv, Restore, RestoreHistory, RestoredChange, RestoredVersion};
use crate::error::{Error, Result};
use crate::node::{Node, NodeSettings};
use crate::snapshot::{build_dir, finish_dir};
use crate::state::Tail;

/// The approximate size of one log entry.
const ENTRY_BYTES: usize = 1 << 20;
/// A revision is divided between entries only above this size.
const REVISION_BYTES_MAX: usize = 8 << 20;

/// What to restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Newest,
    Revision(i64),
    /// The revision that was the newest at this time.
    Time(i64),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Newest => write!(f, "the newest revision"),
            Target::Revision(revision) => write!(f, "revision {revision}"),
            Target::Time(micros) => write!(f, "the time {micros} (microseconds since 1970)"),
        }
    }
}

/// A summary of a restored member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    pub cluster_id: u64,
    pub revision: i64,
    /// The first revision that can be read.
    pub oldest_revision: i64,
    pub keys: i64,
}

/// Restores into `dir`, which must not exist. The member keeps the cluster id
/// and all revisions of the backup, unless `new_cluster` gives it a new id.
pub async fn restore(
    location: &dyn Location,
    target: Target,
    dir: &Path,
    new_cluster: bool,
) -> Result<Restored> {
    let chains = list(location)?;
    let chain = match chains.covering(target) {
        Ok(chain) => chain,
        Err(error) => {
            // A damaged file may look like a missing one.
            check_files(location, &chains)?;
            return Err(error);
        }
    };
    // Verify everything before the first write.
    for file in chain.files() {
        open_file(location, file)?;
    }
    let building = build_dir(dir)?;
    let mut settings = NodeSettings::new(building.clone(), World::real());
    settings.cluster_id = (!new_cluster).then_some(chain.full.header.cluster_id);
    // Nothing may expire or be checked while the store is incomplete.
    settings.duties = false;
    let node = Node::open(settings).await?;
    let mut restoring = Restoring {
        node: &node,
        target,
        base: chain.full.header.base,
        leases: HashMap::new(),
        keys: Restore { revision: chain.full.header.base, ..Restore::default() },
        history: RestoreHistory::default(),
        bytes: 0,
        done: false,
    };
    restoring.run(location, chain).await?;
    let restored = Restored {
        cluster_id: node.status().cluster_id,
        revision: node.revision(),
        oldest_revision: node.waterline().max(1),
        keys: node.count(&crate::key::KeyRange::all(), 0)?,
    };
    node.close().await?;
    finish_dir(&building, dir)?;
    Ok(restored)
}

/// A restore in progress.
struct Restoring<'n> {
    node: &'n Node,
    target: Target,
    /// The revision of the full backup's keys.
    base: i64,
    /// The granted seconds of all leases that the files have named so far.
    leases: HashMap<i64, i64>,
    /// The parts that are not proposed yet, and their size.
    keys: Restore,
    history: RestoreHistory,
    bytes: usize,
    /// The target has been reached.
    done: bool,
}

impl Restoring<'_> {
    async fn run(&mut self, location: &dyn Location, chain: &Chain) -> Result<()> {
        for file in chain.files() {
            if self.done {
                break;
            }
            let mut reader = open_file(location, file)?;
            while !self.done
                && let Some(record) = reader.next_record()?
            {
                match record {
                    Record::Lease(lease) => {
                        self.leases.insert(lease.id, lease.granted_seconds);
                        if file.header.is_full() {
                            self.keys.leases.push((lease.id, lease.granted_seconds));
                        } else {
                            self.history.leases.push((lease.id, lease.granted_seconds));
                        }
                        self.bytes += 2 * size_of::<i64>();
                    }
                    Record::Key(key) => self.key(key).await?,
                    Record::Change(change) => self.change(change).await?,
                }
            }
            if file.header.is_full() {
                self.propose_keys().await?;
            }
        }
        self.propose_history().await?;
        self.begin_history().await?;
        match self.target {
            Target::Revision(revision) if revision != self.node.revision() => {
                Err(Error::Config(format!(
                    "the backups end at revision {} instead of {revision}",
                    self.node.revision()
                )))
            }
            _ => Ok(()),
        }
    }

    async fn key(&mut self, Key { key, tail }: Key) -> Result<()> {
        let lease = Tail::parse(&tail).lease;
        if let Some(unknown) = self.unknown_lease(lease) {
            self.keys.leases.push(unknown);
        }
        self.bytes += key.len() + tail.len();
        self.keys.kvs.push(Kv { key, tail });
        if self.bytes >= ENTRY_BYTES { self.propose_keys().await } else { Ok(()) }
    }

    /// Returns a lease that no file has named: it ended while the backup was
    /// taken, so its keys expire soon.
    fn unknown_lease(&mut self, id: i64) -> Option<(i64, i64)> {
        if id == 0 || self.leases.contains_key(&id) {
            return None;
        }
        let seconds = self.node.settings().lease_ttl_seconds_min;
        self.leases.insert(id, seconds);
        Some((id, seconds))
    }

    async fn change(&mut self, change: Change) -> Result<()> {
        self.propose_keys_before_changes().await?;
        let Change { revision, sub, kind, time_micros, key, tail } = change;
        let reached = match self.target {
            Target::Newest => false,
            Target::Revision(last) => revision > last,
            Target::Time(micros) => time_micros > micros,
        };
        if reached {
            self.done = true;
            return Ok(());
        }
        let what = match kind {
            KIND_PUT => {
                if let Some(unknown) = self.unknown_lease(Tail::parse(&tail).lease) {
                    self.history.leases.push(unknown);
                }
                RestoredVersion::Put(tail)
            }
            KIND_DELETE => RestoredVersion::Delete,
            KIND_LOCK => RestoredVersion::Lock,
            _ => return Err(Error::Config("a change in the backup has an unknown kind".into())),
        };
        let begins = sub == 0 && self.bytes >= ENTRY_BYTES;
        if begins || self.bytes >= REVISION_BYTES_MAX {
            self.propose_history().await?;
        }
        const CHANGE_BYTES: usize = 32;
        self.bytes += CHANGE_BYTES + key.len() + version_bytes(&what);
        self.history.changes.push(RestoredChange { revision, sub, time_micros, key, what });
        Ok(())
    }

    /// Proposes the keys of a full backup when its first change follows.
    async fn propose_keys_before_changes(&mut self) -> Result<()> {
        if self.node.revision() < self.base || !self.keys.kvs.is_empty() {
            self.propose_keys().await?;
        }
        Ok(())
    }

    /// Proposes keys; an empty part sets the revision. A new store is at
    /// revision 1 already.
    async fn propose_keys(&mut self) -> Result<()> {
        let empty = Restore { revision: self.base, ..Restore::default() };
        let part = std::mem::replace(&mut self.keys, empty);
        let nothing = part.kvs.is_empty() && part.leases.is_empty();
        self.bytes = 0;
        if self.base > 1 && (!nothing || self.node.revision() < self.base) {
            self.node.propose(Command::Restore(part)).await?;
        } else if !part.leases.is_empty() {
            let (leases, changes) = (part.leases, Vec::new());
            let history = RestoreHistory { leases, changes };
            self.node.propose(Command::RestoreHistory(history)).await?;
        }
        Ok(())
    }

    async fn propose_history(&mut self) -> Result<()> {
        let part = std::mem::take(&mut self.history);
        self.bytes = 0;
        if !part.changes.is_empty() || !part.leases.is_empty() {
            self.node.propose(Command::RestoreHistory(part)).await?;
        }
        Ok(())
    }

    /// Lets history begin at the first revision whose changes are known.
    async fn begin_history(&mut self) -> Result<()> {
        let first = self.base + 1;
        if self.base > 1 && self.node.revision() >= first {
            self.node.propose(Command::Compact { revision: first }).await?;
            self.node.propose(Command::Waterline { revision: first }).await?;
        }
        Ok(())
    }
}

fn version_bytes(what: &RestoredVersion) -> usize {
    if let RestoredVersion::Put(tail) = what { Bytes::len(tail) } else { 0 }
}
