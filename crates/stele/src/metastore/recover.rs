//! `stele metastore recover`: a surviving member of a group without a quorum becomes the
//! only member of a new cluster.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde_json::json;
use stele_engine::world::World;
use stele_metastore::node::{Recovery, inspect_member, recover_member};

use crate::output::json_line;
use crate::serve::METASTORE_DIR;

/// Recover from the loss of most members, offline.
///
/// Shows what the member in a data directory has and what may be lost. With --yes, makes
/// it the only member of a new cluster. Stop all servers first, and choose the member
/// whose log ends last.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stele metastore recover --data stele-data\n  \
    stele metastore recover --data stele-data --yes")]
pub struct Recover {
    /// Data directory of the stopped server.
    #[arg(
        long,
        alias = "data-dir",
        value_name = "DIR",
        env = "STELE_DATA",
        hide_env_values = true
    )]
    data: PathBuf,
    /// Make this member the only one of a new cluster.
    #[arg(long)]
    yes: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

impl Recover {
    pub fn run(self) -> anyhow::Result<()> {
        let dir = self.data.join(METASTORE_DIR);
        let recover = if self.yes { recover_member } else { inspect_member };
        let recovery = recover(&dir, World::real()).with_context(|| dir.display().to_string())?;
        let out = &mut io::stdout().lock();
        if self.json {
            print_json(out, &recovery)?
        } else {
            self.print(out, &recovery)?
        }
        Ok(())
    }

    fn print(&self, out: &mut dyn Write, recovery: &Recovery) -> io::Result<()> {
        let Recovery { identity, applied, revision, last, voters, new_cluster_id } = recovery;
        let voters: Vec<String> = voters.iter().map(|voter| format!("{voter:x}")).collect();
        let waiting = recovery.entries_not_applied();
        writeln!(out, "cluster     {:x}", identity.cluster_id)?;
        writeln!(out, "member      {:x} of {}", identity.member_id, voters.join(", "))?;
        writeln!(
            out,
            "applied     entry {} of term {}, revision {revision}",
            applied.index, applied.term
        )?;
        writeln!(out, "log         ends at entry {} of term {}", last.index, last.term)?;
        writeln!(
            out,
            "not applied {waiting} entries: they are applied at the next start, though the other \
             members may not have agreed on them"
        )?;
        writeln!(out, "may be lost entries after {} that only the other members had", last.index)?;
        match new_cluster_id {
            Some(id) => {
                writeln!(out, "recovered   as the only member of the new cluster {id:x}")?;
                writeln!(out, "start it with: stele serve --data {}", self.data.display())
            }
            None => writeln!(
                out,
                "nothing was changed: run again with --yes to make this the only member of a new \
                 cluster"
            ),
        }
    }
}

fn print_json(out: &mut dyn Write, recovery: &Recovery) -> io::Result<()> {
    let Recovery { identity, applied, revision, last, voters, new_cluster_id } = recovery;
    let hex = |id: &u64| format!("{id:x}");
    let object = json!({
        "cluster_id": hex(&identity.cluster_id),
        "member_id": hex(&identity.member_id),
        "voters": voters.iter().map(hex).collect::<Vec<_>>(),
        "applied_index": applied.index,
        "applied_term": applied.term,
        "revision": revision,
        "last_index": last.index,
        "last_term": last.term,
        "entries_not_applied": recovery.entries_not_applied(),
        "new_cluster_id": new_cluster_id.as_ref().map(hex),
    });
    json_line(out, &object)
}
