//! `stele cluster move`: unloads a tablet where it is and loads it where it shall be. A key
//! of the coordinator keeps the others from loading it meanwhile; its lease ends if the
//! command does.

use std::time::Duration;

use anyhow::{Context, bail};
use stele_cluster::{
    ClusterSecret, Peers, SECRET_HEADER, TABLETS_SERVICE, TabletReply, TabletRequest,
};
use stele_grpc::{Tls, frame};
use stele_tables::coordinate::{LeaseId, Op, Transaction, ask};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use super::ClusterFlags;
use super::view::View;
use crate::Outcome;
use crate::escape::Typed;
use crate::output::{print_line, text};
use crate::serve::cluster::Access;

/// The command keeps others from loading the tablet for this long.
const LEASE: Duration = Duration::from_secs(60);
/// How long loading is tried.
const ATTEMPTS: u32 = 20;
const RETRY_PAUSE: Duration = Duration::from_millis(250);

pub async fn run(
    flags: &ClusterFlags,
    table: &str,
    row: Option<Typed>,
    to: &str,
) -> anyhow::Result<Outcome> {
    let row = row.map(|row| row.0).unwrap_or_default();
    let access = flags.open().await?;
    let view = View::read(&access).await?;
    let table = view.table(table)?.clone();
    let rows = view.rows_of(table.id);
    let tablet = rows.into_iter().find(|tablet| tablet.config.rows.contains(&row));
    let tablet = tablet.with_context(|| format!("no tablet has row {:?}", text(&row)))?;
    let (id, target) = view.server(to)?;
    let bounds = &tablet.config.rows;
    let name = format!(
        "{} [{}, {})",
        table.name,
        text(&bounds.start),
        bounds.end.as_deref().map_or("end".into(), text)
    );
    let owner = view.server_of(tablet);
    if owner.is_some_and(|owner| owner.id == *id) {
        print_line(&format!("{name} is on server {id} already"))?;
        return Ok(Outcome::Sound);
    }
    let secret = access.secret(None).await?;
    let request = TabletRequest { table_id: table.id.0, end: bounds.end.clone() };
    let row_key = access.keys.tablet(table.id, bounds.end.as_deref());
    let lease = reserve(&access, &row_key, id).await?;
    if let Some(owner) = owner {
        let address = &view.servers[&owner.id].address;
        call(address, "Unload", &request, &secret)
            .await
            .map_err(|status| explain(&status))
            .with_context(|| format!("unloading {name} on server {}", owner.id))?;
    }
    let mut obstacle = None;
    for _ in 0..ATTEMPTS {
        match call(&target.address, "Load", &request, &secret).await {
            Ok(reply) if reply.loaded => {
                ask(|done| access.coordinator.revoke(lease, done)).await?;
                print_line(&format!("moved {name} to server {id}"))?;
                return Ok(Outcome::Sound);
            }
            Ok(_) => obstacle = None,
            Err(status) => obstacle = Some(status),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    // Anybody may load it now.
    ask(|done| access.coordinator.revoke(lease, done)).await?;
    match obstacle {
        Some(status) => Err(explain(&status)).with_context(|| format!("loading {name} on {id}")),
        None => bail!(
            "server {id} did not get {name}: another server owns it, see `stele cluster status`"
        ),
    }
}

/// Keeps other servers from loading a tablet.
async fn reserve(access: &Access, row_key: &[u8], target: &str) -> anyhow::Result<LeaseId> {
    let lease = access.retry(|| ask(|done| access.coordinator.grant(LEASE, done))).await?;
    let rows = access.keys.all_tablets();
    let tablet = row_key.strip_prefix(&rows[..]).context("the key of a tablet")?;
    let key = [&access.keys.key("moving/")[..], tablet].concat();
    let then = vec![Op::Put { key, value: target.to_string().into(), lease: Some(lease) }];
    let put = Transaction { then, ..Transaction::default() };
    access.retry(|| access.coordinator.run(put.clone())).await?;
    Ok(lease)
}

/// Calls the service of tablets of a server.
async fn call(
    address: &str,
    method: &str,
    request: &TabletRequest,
    secret: &ClusterSecret,
) -> Result<TabletReply, Status> {
    let mut transport = Peers::new(Tls::default()).transport(address)?;
    std::future::poll_fn(|cx| transport.poll_ready(cx)).await.map_err(unreachable)?;
    let call = http::Request::post(format!("/{TABLETS_SERVICE}/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header(SECRET_HEADER, secret.header())
        .body(Body::new(http_body_util::Full::new(frame::encode(request))));
    let call = call.map_err(|error| Status::internal(error.to_string()))?;
    let response = transport.call(call).await.map_err(unreachable)?;
    stele_cluster::only_message(response).await
}

fn unreachable(error: Box<dyn std::error::Error + Send + Sync>) -> Status {
    Status::unavailable(stele_grpc::chain(&*error))
}

fn explain(status: &Status) -> anyhow::Error {
    anyhow::anyhow!("{}", status.message())
}
