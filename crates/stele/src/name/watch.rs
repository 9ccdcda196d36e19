//! `stele name watch`: a subtree and its changes as they happen.

use std::collections::BTreeMap;
use std::io::{self, Write};

use clap::Args;
use serde_json::json;
use stele_mounttable::proto::watch_reply::Reply;
use stele_mounttable::proto::{NodeChange, NodeVersion, micros};

use crate::Outcome;
use crate::connect::{NameServer, with_hint};
use crate::output::json_line;

/// Show a subtree and each change of it, until stopped.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  stele name watch services\n  stele name watch services --json"
)]
pub struct Watch {
    #[arg(default_value = "")]
    name: String,
    /// Exit after showing the current state.
    #[arg(long)]
    once: bool,
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    name_server: NameServer,
}

impl Watch {
    pub fn run(self) -> anyhow::Result<Outcome> {
        self.name_server.run(async |names| {
            let mut known: BTreeMap<String, NodeVersion> = BTreeMap::new();
            loop {
                let from = known.values().cloned().collect();
                let mut changes = names.watch(&self.name, from).await.map_err(with_hint)?;
                loop {
                    match changes.message().await {
                        Ok(Some(reply)) => match reply.reply {
                            Some(Reply::Change(change)) => {
                                self.print(&change)?;
                                remember(&mut known, change);
                            }
                            Some(Reply::Synced(_)) if self.once => return Ok(()),
                            Some(Reply::Synced(_)) | None => {}
                        },
                        // The server ends long watches. The known versions are kept for
                        // the next one.
                        Ok(None) => break,
                        Err(status) if status.code() == tonic::Code::DeadlineExceeded => break,
                        Err(status) => anyhow::bail!("{}", status.message()),
                    }
                }
            }
        })?;
        Ok(Outcome::Sound)
    }

    fn print(&self, change: &NodeChange) -> io::Result<()> {
        let node = change.node.clone().unwrap_or_default();
        let entry = change.entry.clone().unwrap_or_default();
        let mut out = io::stdout().lock();
        if self.json {
            let server = |server: &stele_mounttable::proto::MountedServer| {
                json!({
                    "server": server.server,
                    "deadline_micros": micros(server.deadline.as_ref()),
                })
            };
            let line = json!({
                "name": node.name,
                "id": node.id,
                "version": node.version,
                "deleted": change.deleted,
                "servers": entry.servers.iter().map(server).collect::<Vec<_>>(),
                "mt": entry.serves_mount_table,
                "leaf": entry.is_leaf,
                "children": change.children,
                "sticky": change.sticky,
            });
            json_line(&mut out, &line)?;
        } else {
            let name = if node.name.is_empty() { "(root)" } else { &node.name };
            let servers: Vec<_> = entry.servers.iter().map(|server| &server.server[..]).collect();
            match (change.deleted, servers.is_empty()) {
                (true, _) => writeln!(out, "- {name}")?,
                (false, true) => writeln!(out, "+ {name}")?,
                (false, false) => writeln!(out, "+ {name}  {}", servers.join(" "))?,
            }
        }
        out.flush()
    }
}

/// Records the version from which a later watch resumes.
fn remember(known: &mut BTreeMap<String, NodeVersion>, change: NodeChange) {
    let Some(node) = change.node else { return };
    if change.deleted {
        known.remove(&node.name);
    } else {
        known.insert(node.name.clone(), node);
    }
}
