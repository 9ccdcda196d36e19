//! Names: the children of a node with their servers, and the permissions of a node.

use std::time::SystemTime;

use axum::extract::{RawQuery, State};
use serde_json::{Value, json};
use stele_grpc::Transport;
use stele_mounttable::proto::mounttable_client::MounttableClient;
use stele_mounttable::proto::{self as api, glob_reply};

use crate::answer::{Answer, Failure, Json};
use crate::args::Args;
use crate::routes::Console;

/// The maximum number of children that are listed.
const CHILDREN_MAX: usize = 1000;

/// Answers `GET names`: the children of a name, its servers and its permissions.
pub async fn list(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    let args = Args::parse(query.as_deref(), &["name"])?;
    let name = args.text("name")?.unwrap_or_default();
    let mut client = MounttableClient::new(Transport::InProcess(console.services.clone()));
    let _permit = console.heavy().await?;
    let request = api::GlobRequest { name: name.clone(), pattern: "*".into() };
    let mut replies = client.glob(request).await?.into_inner();
    let (mut children, mut errors, mut more) = (Vec::new(), Vec::new(), false);
    while let Some(reply) = replies.message().await? {
        match reply.reply {
            Some(glob_reply::Reply::Entry(_)) if children.len() == CHILDREN_MAX => {
                more = true;
                break;
            }
            Some(glob_reply::Reply::Entry(entry)) => children.push(entry_json(&entry)),
            Some(glob_reply::Reply::Error(error)) => {
                errors.push(json!({"name": error.name, "error": error.message}));
            }
            None => {}
        }
    }
    let permissions =
        client.get_permissions(api::GetPermissionsRequest { name: name.clone() }).await;
    let permissions = match permissions {
        Ok(answer) => permissions_json(&answer.into_inner()),
        // The children may be visible although the permissions are not.
        Err(status) => json!({"error": status.message()}),
    };
    let resolved = match name.is_empty() {
        true => Value::Null,
        false => match client.resolve(api::ResolveRequest { name: name.clone() }).await {
            Ok(answer) => {
                let answer = answer.into_inner();
                json!({"names": answer.names, "entry": answer.entry.as_ref().map(entry_json)})
            }
            Err(status) => json!({"error": status.message()}),
        },
    };
    if children.is_empty() && resolved.get("error").is_some() && permissions.get("error").is_some()
    {
        return Err(Failure::not_found(format!("name {name} not found")));
    }
    Ok(Json(json!({
        "name": name,
        "children": children,
        "more": more,
        "errors": errors,
        "permissions": permissions,
        "resolved": resolved,
    })))
}

fn entry_json(entry: &api::MountEntry) -> Value {
    let now = SystemTime::now();
    let servers = entry.servers.iter().map(|server| {
        let deadline = server.deadline.as_ref().and_then(|deadline| {
            let seconds = u64::try_from(deadline.seconds).ok()?;
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            Some(at.duration_since(now).unwrap_or_default().as_secs())
        });
        json!({"server": server.server, "left_seconds": deadline})
    });
    json!({
        "name": entry.name,
        "servers": servers.collect::<Vec<_>>(),
        "mounttable": entry.serves_mount_table,
        "leaf": entry.is_leaf,
    })
}

fn permissions_json(answer: &api::GetPermissionsResponse) -> Value {
    let tags = answer.permissions.iter().flat_map(|permissions| &permissions.tags);
    let mut tags: Vec<_> = tags.collect();
    tags.sort_by_key(|(tag, _)| (*tag).clone());
    let tags = tags
        .into_iter()
        .map(|(tag, list)| json!({"tag": tag, "in": list.r#in, "not_in": list.not_in}));
    json!({"tags": tags.collect::<Vec<_>>(), "version": answer.version})
}
