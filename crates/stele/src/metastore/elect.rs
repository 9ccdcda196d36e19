//! `stele metastore elect`: elections over etcd's API.

use std::io::{self, Write};

use bytes::Bytes;
use clap::Args;
use serde_json::json;
use stele_metastore::client::Client;
use stele_metastore::proto::etcd::v3electionpb::*;

use super::commands::Connection;
use super::render::base64;
use crate::escape::Typed;
use crate::output::{json_line, text};

/// Campaign in an election, and lead until interrupted; or observe its leaders.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stele metastore elect primary host1\n  stele metastore elect primary --listen")]
pub struct Elect {
    /// Name of the election.
    name: Typed,
    /// Value of the candidate, which observers see.
    #[arg(required_unless_present = "listen")]
    value: Option<Typed>,
    /// Show the leaders instead of campaigning.
    #[arg(long, conflicts_with = "value")]
    listen: bool,
    /// How long the leadership outlives this command if it is killed, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    ttl: i64,
    #[command(flatten)]
    connection: Connection,
}

impl Elect {
    pub fn run(self) -> anyhow::Result<()> {
        let Elect { name: Typed(name), value, ttl, connection, .. } = self;
        connection.run(async |client| match value {
            Some(Typed(value)) => lead(&client, name, value, ttl, connection.json).await,
            None => observe(&client, name, connection.json).await,
        })
    }
}

async fn lead(
    client: &Client,
    name: Bytes,
    value: Bytes,
    ttl: i64,
    json: bool,
) -> anyhow::Result<()> {
    let session = client.session(ttl).await?;
    let campaign = CampaignRequest { name, lease: session.id(), value: value.clone() };
    let method = "/v3electionpb.Election/Campaign";
    let elected: CampaignResponse = tokio::select! {
        elected = client.call_etcd(method, campaign) => elected?,
        why = session.lost() => anyhow::bail!("the session was lost: {why}"),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            session.close().await?;
            return Ok(());
        }
    };
    let leader = elected.leader.unwrap_or_default();
    print(&leader.key, &value, leader.rev, json)?;
    tokio::select! {
        why = session.lost() => anyhow::bail!("the session was lost: {why}"),
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    let resign = ResignRequest { leader: Some(leader) };
    let _: ResignResponse = client.call_etcd("/v3electionpb.Election/Resign", resign).await?;
    session.close().await?;
    Ok(())
}

async fn observe(client: &Client, name: Bytes, json: bool) -> anyhow::Result<()> {
    let request = LeaderRequest { name };
    let mut leaders =
        client.stream_etcd::<_, LeaderResponse>("/v3electionpb.Election/Observe", request).await?;
    loop {
        let answer = leaders.message().await.map_err(stele_metastore::client::Error::from)?;
        let Some(answer) = answer else { return Ok(()) };
        let kv = answer.kv.unwrap_or_default();
        print(&kv.key, &kv.value, kv.create_revision, json)?;
    }
}

fn print(key: &[u8], value: &[u8], revision: i64, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        let (key, value) = (base64(key), base64(value));
        return json_line(&mut out, &json!({ "key": key, "value": value, "revision": revision }));
    }
    writeln!(out, "{} leads with {} since revision {revision}", text(key), text(value))
}
