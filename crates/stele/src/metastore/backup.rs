//! `stele metastore backup` and `stele metastore restore`: backups with their history,
//! and a new metastore from them.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::json;
use stele_engine::world::{Disk, Files};
use stele_metastore::backup::{self, BackupFile, Chains, Target};

use super::buckets;
use super::commands::Connection;
use super::render;
use crate::output::{bytes, json_line, things};
use crate::serve::METASTORE_DIR;
use crate::timestamp::{self, Timestamp};

#[derive(Subcommand)]
pub enum Command {
    /// Let the server take a backup now, to the location of its --metastore-backup.
    #[command(after_help = "Example:\n  stele metastore backup create --full")]
    Create {
        /// Take a full backup even if a delta would do.
        #[arg(long)]
        full: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the backups of a location.
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Read all backups of a location and check them.
    Verify {
        #[command(flatten)]
        place: Place,
    },
}

/// A location and the output format.
#[derive(Args)]
pub struct Place {
    /// Directory or URL (file://, s3://, az://, gs://) of the backups.
    #[arg(long, value_name = "DIR", env = "STELE_METASTORE_BACKUP", hide_env_values = true)]
    from: String,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Create a new metastore from backups.
///
/// Keys, revisions, versions, leases and the history since the full backup are restored,
/// locks are not. Start `stele serve` on the directory afterwards.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stele metastore restore --from backups --data new-data\n  \
    stele metastore restore --from backups --at-time 10m --data new-data --new-cluster")]
pub struct Restore {
    #[command(flatten)]
    place: Place,
    /// Restore the state of this revision [default: the newest]
    #[arg(long, value_name = "REVISION", conflicts_with = "at_time", verbatim_doc_comment)]
    at_revision: Option<i64>,
    /// Restore the state of this time: a date, a time, an age (10m) or microseconds.
    #[arg(long, value_name = "TIME")]
    at_time: Option<Timestamp>,
    /// Data directory of the server. It must not contain a metastore yet.
    #[arg(
        long,
        alias = "data-dir",
        value_name = "DIR",
        env = "STELE_DATA",
        hide_env_values = true
    )]
    data: PathBuf,
    /// Give the metastore a new cluster id, so that it is not mistaken for the old one.
    #[arg(long)]
    new_cluster: bool,
}

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Create { full, connection } => create(full, &connection),
        Command::List { place } => {
            let chains = backup::list(&*buckets::open_location(&place.from)?)?;
            list(&chains, place.json)
        }
        Command::Verify { place } => {
            let (chains, end) = backup::verify(&*buckets::open_location(&place.from)?)?;
            let files = chains.chains.iter().map(|chain| chain.files().count() as u64);
            let files: u64 = files.sum();
            let text = format!(
                "sound: {} with {} and {}",
                things(files, "file"),
                things(end.keys, "key"),
                things(end.changes, "change")
            );
            let object = json!({ "files": files, "keys": end.keys, "changes": end.changes });
            Ok(render::done(&text, &object, place.json)?)
        }
    }
}

fn create(full: bool, connection: &Connection) -> anyhow::Result<()> {
    let created = connection.run(async |client| Ok(client.create_backup(full).await?))?;
    let object = json!({
        "name": created.name, "location": created.location, "kind": created.kind,
        "revision": created.revision, "keys": created.keys, "changes": created.changes,
        "bytes": created.bytes,
    });
    let text = match created.kind.as_str() {
        "unchanged" => format!(
            "unchanged since {} of revision {} in {}",
            created.name, created.revision, created.location
        ),
        kind => format!(
            "created {} in {}: {kind} backup up to revision {} with {} and {}, {}",
            created.name,
            created.location,
            created.revision,
            things(created.keys, "key"),
            things(created.changes, "change"),
            bytes(created.bytes)
        ),
    };
    Ok(render::done(&text, &object, connection.json)?)
}

fn list(chains: &Chains, json: bool) -> anyhow::Result<()> {
    let out = &mut io::stdout().lock();
    let mut line = |file: &BackupFile, missing: bool| -> io::Result<()> {
        let header = &file.header;
        let taken = timestamp::format(header.taken_micros);
        let kind = if header.is_full() { "full" } else { "delta" };
        if json {
            let object = json!({
                "name": file.name, "kind": kind, "from": header.from, "revision": header.to,
                "taken": taken, "cluster_id": format!("{:x}", header.cluster_id),
                "bytes": file.bytes, "restorable": !missing,
            });
            return json_line(out, &object);
        }
        let note = if missing { "\tthe file before is missing" } else { "" };
        writeln!(out, "{}\t{taken}\t{}{note}", file.name, bytes(file.bytes))
    };
    for chain in &chains.chains {
        chain.files().try_for_each(|file| line(file, false))?;
    }
    chains.orphans.iter().try_for_each(|file| line(file, true))?;
    Ok(())
}

impl Restore {
    pub fn run(self) -> anyhow::Result<()> {
        let target = match (self.at_revision, self.at_time) {
            (Some(revision), _) => Target::Revision(revision),
            (None, Some(Timestamp(micros))) => Target::Time(micros),
            (None, None) => Target::Newest,
        };
        let data = self.data.display();
        Disk.create_dir_all(&self.data).with_context(|| format!("--data {data}"))?;
        let dir = self.data.join(METASTORE_DIR);
        let location = buckets::open_location(&self.place.from)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let restoring = backup::restore(&*location, target, &dir, self.new_cluster);
        let restored = runtime.block_on(restoring).with_context(|| self.place.from.clone())?;
        let backup::Restored { cluster_id, revision, oldest_revision, keys } = restored;
        let keys = u64::try_from(keys).unwrap_or(0);
        let object = json!({
            "cluster_id": format!("{cluster_id:x}"), "revision": revision,
            "oldest_revision": oldest_revision, "keys": keys,
        });
        let text = format!(
            "restored {} as cluster {cluster_id:x} at revision {revision}, with history from \
             revision {oldest_revision}\nstart it with: stele serve --data {data}",
            things(keys, "key")
        );
        Ok(render::done(&text, &object, self.place.json)?)
    }
}
