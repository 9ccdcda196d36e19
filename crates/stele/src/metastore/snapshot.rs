//! `stele metastore snapshot`: saves all keys to a file, and creates a new member from
//! it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;
use stele_engine::world::{Disk, Files};
use stele_metastore::snapshot::{self, Reader, Record};

use super::commands::Connection;
use crate::output::{bytes, json_line, things};
use crate::serve::{ClusterId, METASTORE_DIR};

#[derive(Subcommand)]
pub enum Command {
    /// Save all keys and leases of a running metastore at one revision.
    #[command(after_help = "Example:\n  stele metastore snapshot save backup.snapshot")]
    Save {
        file: PathBuf,
        #[command(flatten)]
        connection: Connection,
    },
    /// Check a snapshot and show its contents.
    Status {
        file: PathBuf,
        /// Print JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    Restore(Restore),
}

/// Create a new metastore from a snapshot.
///
/// Keys, versions and leases are restored; history starts again. The metastore gets a new
/// cluster id, so that it is not mistaken for the old one. Start `stele serve` on the
/// directory afterwards.
#[derive(Args)]
#[command(after_help = "Example:\n  \
    stele metastore snapshot restore backup.snapshot --data new-data\n  \
    stele serve --data new-data")]
pub struct Restore {
    file: PathBuf,
    /// Data directory of the server. It must not contain a metastore yet.
    #[arg(long, value_name = "DIR", env = "STELE_DATA", hide_env_values = true)]
    data: PathBuf,
    /// Cluster id, in hexadecimal [default: a new one]
    #[arg(long, value_name = "ID", verbatim_doc_comment)]
    cluster: Option<ClusterId>,
    /// Continue this many revisions after the snapshot. Use more than were written since,
    /// so that clients that have seen later revisions see none reused.
    #[arg(long, value_name = "N", default_value_t = 1)]
    bump_revision: i64,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Save { file, connection } => save(&file, &connection),
        Command::Status { file, json } => show(&file, json),
        Command::Restore(restore) => restore.run(),
    }
}

/// Saves to a temporary file, verifies it, and renames it into place.
fn save(file: &Path, connection: &Connection) -> anyhow::Result<()> {
    let dir = match file.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let named = || file.display().to_string();
    let mut part = tempfile::NamedTempFile::new_in(dir).with_context(named)?;
    connection.run(async |client| Ok(client.save_snapshot(part.as_file_mut()).await?))?;
    part.as_file().sync_all().with_context(named)?;
    let contents = Contents::count(part.path())?;
    part.persist(file).with_context(named)?;
    contents.print("saved", connection.json)
}

fn show(file: &Path, json: bool) -> anyhow::Result<()> {
    Contents::count(file)?.print("sound", json)
}

/// The contents of a snapshot.
struct Contents {
    revision: i64,
    cluster: u64,
    keys: u64,
    leases: u64,
    bytes: u64,
}

impl Contents {
    fn count(path: &Path) -> anyhow::Result<Contents> {
        let named = || path.display().to_string();
        let file = File::open(path).with_context(named)?;
        let bytes = file.metadata().with_context(named)?.len();
        let mut reader = Reader::open(file).with_context(named)?;
        let (revision, (cluster, _)) = (reader.revision(), reader.origin());
        let (mut keys, mut leases) = (0, 0);
        while let Some(record) = reader.next_record().with_context(named)? {
            match record {
                Record::Key(_) => keys += 1,
                Record::Lease { .. } => leases += 1,
                Record::Auth { .. } => {}
            }
        }
        Ok(Contents { revision, cluster, keys, leases, bytes })
    }

    fn print(&self, what: &str, json: bool) -> anyhow::Result<()> {
        let Contents { revision, cluster, keys, leases, bytes: size } = *self;
        let out = &mut io::stdout().lock();
        if json {
            let cluster = format!("{cluster:x}");
            let object = json!({
                "revision": revision, "cluster_id": cluster, "keys": keys, "leases": leases,
                "bytes": size,
            });
            return Ok(json_line(out, &object)?);
        }
        let (keys, leases) = (things(keys, "key"), things(leases, "lease"));
        let size = bytes(size);
        writeln!(
            out,
            "{what}: {keys} and {leases} of cluster {cluster:x} at revision {revision}, {size}"
        )?;
        Ok(())
    }
}

impl Restore {
    fn run(self) -> anyhow::Result<()> {
        let named = || self.file.display().to_string();
        let file = File::open(&self.file).with_context(named)?;
        let data = self.data.display();
        Disk.create_dir_all(&self.data).with_context(|| format!("--data {data}"))?;
        let dir = self.data.join(METASTORE_DIR);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let cluster = self.cluster.map(|id| id.0);
        let restoring = snapshot::restore(file, &dir, cluster, self.bump_revision);
        let restored = runtime.block_on(restoring).with_context(named)?;
        let snapshot::Restored { cluster_id, revision, keys, leases } = restored;
        let out = &mut io::stdout().lock();
        if self.json {
            let cluster = format!("{cluster_id:x}");
            let object = json!({
                "revision": revision, "cluster_id": cluster, "keys": keys, "leases": leases,
            });
            return Ok(json_line(out, &object)?);
        }
        let (keys, leases) = (things(keys, "key"), things(leases, "lease"));
        writeln!(
            out,
            "restored {keys} and {leases} as cluster {cluster_id:x} at revision {revision}"
        )?;
        writeln!(out, "start it with: stele serve --data {data}")?;
        Ok(())
    }
}
