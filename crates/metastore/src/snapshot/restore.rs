//! Creates a new member from a snapshot, offline.
//!
//! The member is built beside its final directory and renamed when it is
//! complete, so an interrupted restore leaves nothing that looks like a store.
//! The restored data goes through the log like all other writes.

use std::collections::HashSet;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use stele_engine::world::World;

use super::{Reader, Record};
use crate::command::{AuthCommand, Command, Restore};
use crate::error::{Error, Result};
use crate::node::{Node, NodeSettings};

/// The approximate size of one log entry.
const ENTRY_BYTES: usize = 1 << 20;

/// A summary of a restored snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    pub cluster_id: u64,
    pub revision: i64,
    pub keys: u64,
    pub leases: u64,
}

/// Restores into `dir`, which must not exist. The member is a new one, in a new
/// cluster unless one is given. Its first revision is `bump` above the
/// snapshot's. If `bump` exceeds the number of revisions written since the
/// snapshot, no client sees a revision twice with different contents.
pub async fn restore<R: Read + Seek>(
    snapshot: R,
    dir: &Path,
    cluster_id: Option<u64>,
    bump: i64,
) -> Result<Restored> {
    let mut reader = Reader::open(snapshot)?;
    let revision = match reader.revision().checked_add(bump) {
        Some(revision) if bump >= 1 => revision,
        _ => {
            return Err(Error::Config(format!(
                "cannot raise the revision by {bump}: --bump-revision must be at least 1"
            )));
        }
    };
    let building = build_dir(dir)?;
    let mut settings = NodeSettings::new(building.clone(), World::real());
    settings.cluster_id = cluster_id;
    // Nothing may expire or be checked while the store is incomplete.
    settings.duties = false;
    let node = Node::open(settings).await?;
    let cluster_id = node.status().cluster_id;
    let (keys, leases) = propose_records(&node, &mut reader, revision).await?;
    node.close().await?;
    finish_dir(&building, dir)?;
    Ok(Restored { cluster_id, revision, keys, leases })
}

/// Proposes all records, several to an entry. Returns the number of keys and
/// leases.
async fn propose_records<R: Read + Seek>(
    node: &Node,
    reader: &mut Reader<R>,
    revision: i64,
) -> Result<(u64, u64)> {
    let (mut keys, mut bytes) = (0, 0);
    let mut leases = HashSet::new();
    let mut auth = Vec::new();
    let mut entry = Restore { revision, ..Restore::default() };
    while let Some(record) = reader.next_record()? {
        match record {
            Record::Auth { row, value } => auth.push((row, value)),
            Record::Lease { id, granted_seconds } => {
                leases.insert(id);
                bytes += 2 * size_of::<i64>();
                entry.leases.push((id, granted_seconds));
            }
            Record::Key(kv) => {
                keys += 1;
                let lease = kv.view().lease();
                if lease != 0 && leases.insert(lease) {
                    // The lease ended while the snapshot was taken: let its
                    // keys expire soon.
                    entry.leases.push((lease, node.settings().lease_ttl_seconds_min));
                }
                bytes += kv.key.len() + kv.tail.len();
                entry.kvs.push(kv);
            }
        }
        if bytes >= ENTRY_BYTES {
            let empty = Restore { revision, ..Restore::default() };
            let full = std::mem::replace(&mut entry, empty);
            node.propose(Command::Restore(full)).await?;
            bytes = 0;
        }
    }
    // The last entry, which may be empty: an empty snapshot still has a
    // revision.
    node.propose(Command::Restore(entry)).await?;
    if !auth.is_empty() {
        node.propose(Command::Auth(AuthCommand::Restore(auth))).await?;
    }
    Ok((keys, leases.len() as u64))
}

/// Prepares the directory in which the member for `dir` is built. Refuses a
/// `dir` that exists.
pub(crate) fn build_dir(dir: &Path) -> Result<PathBuf> {
    if dir.exists() {
        return Err(Error::Config(format!(
            "{} already exists: choose another directory, or move it away",
            dir.display()
        )));
    }
    let building = building_dir(dir)?;
    if building.exists() {
        // Left by an interrupted restore.
        std::fs::remove_dir_all(&building).map_err(|error| failed(&building, &error))?;
    }
    Ok(building)
}

/// Gives a complete member its name.
pub(crate) fn finish_dir(building: &Path, dir: &Path) -> Result<()> {
    std::fs::rename(building, dir).map_err(|error| failed(dir, &error))?;
    sync_parent(dir)
}

/// Returns the directory in which the member is built.
fn building_dir(dir: &Path) -> Result<PathBuf> {
    let name = dir.file_name().ok_or_else(|| {
        Error::Config(format!("{} cannot be the name of a new directory", dir.display()))
    })?;
    let mut name = name.to_os_string();
    name.push(".restoring");
    Ok(dir.with_file_name(name))
}

fn sync_parent(dir: &Path) -> Result<()> {
    let parent = match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let synced = std::fs::File::open(parent).and_then(|parent| parent.sync_all());
    synced.map_err(|error| failed(parent, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::Config(format!("{}: {error}", path.display()))
}
