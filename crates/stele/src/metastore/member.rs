//! `stele metastore member`: lists and changes the members of a cluster. Uses the Cluster
//! service of etcd's API, so it works with etcd, too.

use std::io::{self, Write};

use clap::Subcommand;
use serde_json::json;
use stele_metastore::proto::etcd::*;

use super::commands::Connection;
use super::render::done;
use crate::output::{json_line, table};

#[derive(Subcommand)]
pub enum Command {
    /// List the members with their addresses.
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Add a member. Start it afterwards with an empty data directory.
    #[command(after_help = "Examples:\n  \
        stele metastore member add --peer-urls https://h4:2380 --learner\n  \
        stele metastore serve --name d --initial-cluster-state existing \
        --initial-cluster a=https://h1:2380,b=...,d=https://h4:2380 ...\n  \
        stele metastore member promote 8e9e05c52164694d")]
    Add {
        /// URL at which the other members reach the new one.
        #[arg(long, value_name = "URL", required = true, value_delimiter = ',')]
        peer_urls: Vec<String>,
        /// The member receives all data before it votes; promote it when it has caught up.
        #[arg(long)]
        learner: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove a member. It stops, and its id is never used again.
    Remove {
        /// Id, as in the list.
        #[arg(value_parser = parse_id)]
        id: u64,
        #[command(flatten)]
        connection: Connection,
    },
    /// Replace the URLs at which the other members reach a member.
    Update {
        /// Id, as in the list.
        #[arg(value_parser = parse_id)]
        id: u64,
        /// New URL at which the other members reach it.
        #[arg(long, value_name = "URL", required = true, value_delimiter = ',')]
        peer_urls: Vec<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Make a learner a voter. Refused until it has caught up.
    Promote {
        /// Id, as in the list.
        #[arg(value_parser = parse_id)]
        id: u64,
        #[command(flatten)]
        connection: Connection,
    },
}

/// Parses an id as it is listed, in hexadecimal.
fn parse_id(text: &str) -> Result<u64, String> {
    let invalid =
        |_| format!("invalid member id {text:?}: use one from `stele metastore member list`");
    u64::from_str_radix(text, 16).map_err(invalid)
}

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List { connection } => {
            let response: MemberListResponse = connection.run(async |client| {
                let request = MemberListRequest { linearizable: true };
                Ok(client.call_etcd("/etcdserverpb.Cluster/MemberList", request).await?)
            })?;
            list(&response.members, connection.json)
        }
        Command::Add { peer_urls, learner, connection } => {
            let response: MemberAddResponse = connection.run(async |client| {
                let request = MemberAddRequest { peer_ur_ls: peer_urls, is_learner: learner };
                Ok(client.call_etcd("/etcdserverpb.Cluster/MemberAdd", request).await?)
            })?;
            let id = response.member.unwrap_or_default().id;
            finished(id, "added", &connection)
        }
        Command::Remove { id, connection } => {
            let _: MemberRemoveResponse = connection.run(async |client| {
                let request = MemberRemoveRequest { id };
                Ok(client.call_etcd("/etcdserverpb.Cluster/MemberRemove", request).await?)
            })?;
            finished(id, "removed", &connection)
        }
        Command::Update { id, peer_urls, connection } => {
            let _: MemberUpdateResponse = connection.run(async |client| {
                let request = MemberUpdateRequest { id, peer_ur_ls: peer_urls };
                Ok(client.call_etcd("/etcdserverpb.Cluster/MemberUpdate", request).await?)
            })?;
            finished(id, "updated", &connection)
        }
        Command::Promote { id, connection } => {
            let _: MemberPromoteResponse = connection.run(async |client| {
                let request = MemberPromoteRequest { id };
                Ok(client.call_etcd("/etcdserverpb.Cluster/MemberPromote", request).await?)
            })?;
            finished(id, "promoted", &connection)
        }
    }
}

fn finished(id: u64, what: &str, connection: &Connection) -> anyhow::Result<()> {
    let json = json!({ "id": format!("{id:x}"), "done": what });
    Ok(done(&format!("member {id:x} {what}"), &json, connection.json)?)
}

fn list(members: &[Member], json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        for member in members {
            let line = json!({
                "id": format!("{:x}", member.id),
                "name": member.name,
                "peer_urls": member.peer_ur_ls,
                "client_urls": member.client_ur_ls,
                "learner": member.is_learner,
                "started": !member.name.is_empty(),
            });
            json_line(&mut out, &line)?;
        }
        return Ok(());
    }
    let mut listed = table(&["id", "name", "state", "peer urls", "client urls"], 5);
    for member in members {
        let state = match (member.name.is_empty(), member.is_learner) {
            (true, _) => "not started",
            (false, true) => "learner",
            (false, false) => "voter",
        };
        let (peers, clients) = (member.peer_ur_ls.join(","), member.client_ur_ls.join(","));
        let id = format!("{:x}", member.id);
        listed.add_row([id, member.name.clone(), state.to_owned(), peers, clients]);
    }
    Ok(writeln!(out, "{listed}")?)
}
