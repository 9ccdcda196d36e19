//! The names of members, and leadership moved between them.

use std::collections::BTreeMap;

use anyhow::bail;
use clap::Args;
use serde_json::json;
use stele_metastore::client::Client;
use stele_metastore::proto::etcd::{MemberListRequest, MemberListResponse};

use super::commands::Connection;
use super::render;

/// The names of members by their ids.
pub struct Names(BTreeMap<u64, String>);

impl Names {
    /// Asks a server. Members without a name, or of a server that does not list
    /// them, have none.
    pub async fn of(client: &Client) -> Names {
        let (path, request) = ("/etcdserverpb.Cluster/MemberList", MemberListRequest::default());
        let listed: Result<MemberListResponse, _> = client.call_etcd(path, request).await;
        let members = listed.map(|listed| listed.members).unwrap_or_default();
        let named = members.into_iter().filter(|member| !member.name.is_empty());
        Names(named.map(|member| (member.id, member.name)).collect())
    }

    pub fn get(&self, id: u64) -> Option<&str> {
        self.0.get(&id).map(String::as_str)
    }

    /// Returns the id of a member given by its name or id.
    fn id_of(&self, member: &str) -> anyhow::Result<u64> {
        let named = self.0.iter().find(|(_, name)| *name == member).map(|(id, _)| *id);
        match named.or_else(|| u64::from_str_radix(member, 16).ok()) {
            Some(id) => Ok(id),
            None => bail!(
                "member {member:?} not found: use a name or an id of `stele metastore status`"
            ),
        }
    }
}

/// Hand leadership over to another member.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stele metastore move-leader\n  stele metastore move-leader b")]
pub struct MoveLeader {
    /// Name or id of the new leader [default: the member with the longest log]
    member: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

impl MoveLeader {
    pub fn run(self) -> anyhow::Result<()> {
        let (leader, name) = self.connection.run(async |client| {
            let names = Names::of(&client).await;
            let to = self.member.as_deref().map(|member| names.id_of(member)).transpose()?;
            let leader = client.move_leader(to.unwrap_or(0)).await?;
            Ok((leader, names.get(leader).map(str::to_string)))
        })?;
        let called = name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let text = format!("member {leader:x}{called} is the leader");
        let object = json!({ "leader_id": format!("{leader:x}"), "name": name });
        Ok(render::done(&text, &object, self.connection.json)?)
    }
}
