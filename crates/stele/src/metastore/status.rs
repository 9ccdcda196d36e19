//! `stele metastore status`: the member that answers, and the cluster at a glance.

use std::io::{self, Write};

use clap::Args;
use comfy_table::CellAlignment;
use serde_json::{Value, json};
use stele_metastore::client::{Client, MemberStatus};

use super::commands::Connection;
use super::members::Names;
use super::render;
use crate::Outcome;
use crate::output::{bytes, table};

/// Show the members, the leader and the range of available history.
///
/// Exits with 1 if a member does not answer or there is no leader.
#[derive(Args)]
pub struct Status {
    #[command(flatten)]
    connection: Connection,
}

impl Status {
    pub fn run(self) -> anyhow::Result<Outcome> {
        let json = self.connection.json;
        let (status, cluster) = self
            .connection
            .run(async |client| Ok((client.status().await?, Cluster::ask(&client).await?)))?;
        let out = &mut io::stdout().lock();
        if json {
            let mut object = render::status_json(&status);
            object["members"] = cluster.json();
            crate::output::json_line(out, &object)?;
        } else {
            render::status(out, &status)?;
            cluster.write(out)?;
        }
        let sound = status.leader_id != 0 && cluster.all_answer();
        Ok(if sound { Outcome::Sound } else { Outcome::Findings })
    }
}

/// The members as they report themselves.
struct Cluster {
    members: Vec<MemberStatus>,
    names: Names,
    /// The index of the newest entry that any member has.
    newest: u64,
}

impl Cluster {
    async fn ask(client: &Client) -> anyhow::Result<Cluster> {
        let members = client.cluster_status().await?.members;
        let newest = members.iter().map(|member| member.last_index).max().unwrap_or(0);
        Ok(Cluster { members, names: Names::of(client).await, newest })
    }

    fn all_answer(&self) -> bool {
        self.members.iter().all(|member| member.error.is_empty())
    }

    fn lag(&self, member: &MemberStatus) -> u64 {
        self.newest.saturating_sub(member.applied_index)
    }

    fn json(&self) -> Value {
        let id = |id: u64| format!("{id:x}");
        let member = |member: &MemberStatus| {
            let mut object = json!({
                "member_id": id(member.member_id),
                "name": self.names.get(member.member_id),
                "peer_url": member.peer_url,
            });
            if !member.error.is_empty() {
                object["error"] = member.error.clone().into();
                return object;
            }
            let answered = json!({
                "leads": member.leader_id == member.member_id,
                "leader_id": id(member.leader_id),
                "term": member.term,
                "last_index": member.last_index,
                "applied_index": member.applied_index,
                "lag": self.lag(member),
                "revision": member.revision,
                "live_bytes": member.live_bytes,
                "stored_bytes": member.stored_bytes,
                "level": member.level,
                "level_spoken": member.level_spoken,
                "version": member.version,
            });
            if let (Value::Object(object), Value::Object(answered)) = (&mut object, answered) {
                object.extend(answered);
            }
            object
        };
        self.members.iter().map(member).collect()
    }

    /// Writes a row for each member; nothing if there is only one.
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.members.len() < 2 {
            return Ok(());
        }
        let columns = [
            "member", "id", "role", "term", "index", "applied", "lag", "stored", "level",
            "version", "error",
        ];
        let mut rows = table(&columns, 3);
        if let Some(errors) = rows.column_mut(columns.len() - 1) {
            errors.set_cell_alignment(CellAlignment::Left);
        }
        for member in &self.members {
            let (id, name) = (format!("{:x}", member.member_id), self.names.get(member.member_id));
            let name = name.unwrap_or("").to_string();
            if !member.error.is_empty() {
                let blank = || String::from("-");
                let mut row = vec![name, id];
                row.resize_with(columns.len() - 1, blank);
                row.push(member.error.clone());
                rows.add_row(row);
                continue;
            }
            let role = match member.leader_id {
                0 => "no leader",
                leader if leader == member.member_id => "leader",
                _ => "follower",
            };
            rows.add_row([
                name,
                id,
                role.to_string(),
                member.term.to_string(),
                member.last_index.to_string(),
                member.applied_index.to_string(),
                self.lag(member).to_string(),
                bytes(u64::try_from(member.stored_bytes).unwrap_or(0)),
                member.level.to_string(),
                member.version.clone(),
                String::new(),
            ]);
        }
        let text = rows.to_string();
        writeln!(out)?;
        text.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
    }
}
