//! The metastore: keys at any retained revision, the changes of a key, writes that apply
//! only if the key is still as seen, leases, locks and members. All through the native API.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::{RawQuery, State};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use stele_grpc::Transport;
use stele_metastore::proto::native::metastore_client::MetastoreClient;
use stele_metastore::proto::native::{self as api, key_range, snapshot_request};

use crate::answer::{Answer, Failure, Json, put, take};
use crate::args::Args;
use crate::routes::{Console, body_json};
use crate::rows::put_value;

const LIMIT: i64 = 200;
const LIMIT_MAX: i64 = 1000;
/// The number of leases that are listed.
const LEASES_MAX: usize = 200;
/// The maximum size of a response.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

pub type Api = MetastoreClient<Transport>;

impl Console {
    pub fn metastore(&self) -> Result<Api, Failure> {
        let services = self.metastore.clone().ok_or_else(|| Failure::off("the metastore"))?;
        let client = MetastoreClient::new(Transport::InProcess(services));
        Ok(client.max_decoding_message_size(RESPONSE_BYTES_MAX))
    }
}

/// Returns the range of keys with a prefix; an empty prefix is all keys.
pub fn prefix_range(prefix: Bytes) -> api::KeyRange {
    let bound = match prefix.is_empty() {
        true => key_range::Bound::Unbounded(true),
        false => key_range::Bound::Prefix(true),
    };
    api::KeyRange { start: prefix, bound: Some(bound) }
}

/// Answers `GET metastore`: revision, history, size, members.
pub async fn status(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    Args::parse(query.as_deref(), &[])?;
    let mut client = console.metastore()?;
    let status = client.status(api::StatusRequest {}).await?.into_inner();
    let cluster = client.cluster_status(api::ClusterStatusRequest {}).await?.into_inner();
    let members = cluster.members.iter().map(|member| {
        json!({
            "id": format!("{:x}", member.member_id),
            "peer_url": member.peer_url,
            "error": member.error,
            "is_leader": member.member_id == member.leader_id,
            "is_this": member.member_id == status.member_id,
            "applied_index": member.applied_index,
            "last_index": member.last_index,
            "term": member.term,
        })
    });
    Ok(Json(json!({
        "cluster": format!("{:x}", status.cluster_id),
        "revision": status.revision,
        "oldest_revision": status.oldest_revision,
        "oldest_micros": status.oldest_micros,
        "live_bytes": status.live_bytes,
        "stored_bytes": status.stored_bytes,
        "quota_bytes": status.quota_bytes,
        "alarms": status.alarms,
        "level": status.level,
        "members": members.collect::<Vec<_>>(),
    })))
}

/// Answers `GET metastore/keys`: keys of a prefix in order, at a revision or a time.
pub async fn keys(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    let known = ["prefix", "after", "revision", "time", "limit", "search"];
    let args = Args::parse(query.as_deref(), &known)?;
    let limit = args.number("limit", LIMIT, 1, LIMIT_MAX)?;
    let prefix = args.bytes("prefix").unwrap_or_default();
    let search = args.bytes("search");
    let mut client = console.metastore()?;
    let revision = at(&mut client, &args).await?;
    let _permit = console.heavy().await?;
    let mut range = prefix_range(prefix.clone());
    if let Some(after) = args.bytes("after") {
        let mut start = after.to_vec();
        start.push(0);
        let end = after_prefix(&prefix);
        let bound = end.map_or(key_range::Bound::Unbounded(true), key_range::Bound::End);
        range = api::KeyRange { start: start.into(), bound: Some(bound) };
    }
    let mut listed = Vec::new();
    let (mut more, mut newest, mut total, mut last);
    loop {
        let request = api::GetRangeRequest {
            range: Some(range.clone()),
            revision,
            limit,
            keys_only: false,
            descending: false,
        };
        let page = client.get_range(request).await?.into_inner();
        (more, newest, total) = (page.more, page.revision, page.count);
        last = page.kvs.last().map(|kv| kv.key.clone());
        let found =
            page.kvs.iter().filter(|kv| search.as_ref().is_none_or(|text| contains(&kv.key, text)));
        listed.extend(found.map(key_json));
        let Some(after) = &last else { break };
        if !more || search.is_none() || listed.len() >= limit as usize {
            break;
        }
        // A search goes on until it has found a page of keys.
        let mut start = after.to_vec();
        start.push(0);
        range.start = start.into();
        range.bound = Some(
            after_prefix(&prefix).map_or(key_range::Bound::Unbounded(true), key_range::Bound::End),
        );
    }
    let mut answer = Map::new();
    answer.insert("keys".into(), Value::Array(listed));
    answer.insert("more".into(), json!(more));
    answer.insert("total".into(), json!(total));
    answer.insert("revision".into(), json!(if revision > 0 { revision } else { newest }));
    if let Some(last) = last.filter(|_| more) {
        put(&mut answer, "after", &last);
    }
    Ok(Json(Value::Object(answer)))
}

fn contains(key: &[u8], text: &[u8]) -> bool {
    key.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text))
}

/// Returns the first key after all keys with a prefix.
fn after_prefix(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

/// Returns the revision that a request names, or 0 for the newest.
async fn at(client: &mut Api, args: &Args) -> Result<i64, Failure> {
    let revision = args.number("revision", 0, 0, i64::MAX)?;
    let time = args.number("time", 0, 0, i64::MAX)?;
    if time == 0 {
        return Ok(revision);
    }
    let at = Some(snapshot_request::At::TimeMicros(time));
    Ok(client.snapshot(api::SnapshotRequest { at }).await?.into_inner().revision)
}

pub fn key_json(kv: &api::KeyValue) -> Value {
    let mut object = Map::new();
    put(&mut object, "key", &kv.key);
    put_value(&mut object, &kv.value);
    object.insert("created".into(), json!(kv.create_revision));
    object.insert("revision".into(), json!(kv.mod_revision));
    object.insert("version".into(), json!(kv.version));
    if kv.client_id != 0 {
        object.insert("lease".into(), json!(format!("{:x}", kv.client_id)));
    }
    Value::Object(object)
}

/// Answers `GET metastore/top`: the children of a prefix with their keys and bytes.
pub async fn top(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    let args = Args::parse(query.as_deref(), &["prefix", "limit"])?;
    let limit = args.number("limit", 500, 1, 1000)? as u32;
    let _permit = console.heavy().await?;
    let request = api::TopRequest {
        prefix: args.bytes("prefix").unwrap_or_default(),
        depth: 1,
        separator: Bytes::from_static(b"/"),
        limit,
        by_keys: true,
    };
    let top = console.metastore()?.top(request).await?.into_inner();
    let entries = top.entries.iter().map(|entry| {
        let mut object = Map::new();
        put(&mut object, "prefix", &entry.prefix);
        object.insert("keys".into(), json!(entry.keys));
        object.insert("bytes".into(), json!(entry.bytes));
        object.insert("revision".into(), json!(entry.mod_revision));
        Value::Object(object)
    });
    Ok(Json(json!({
        "entries": entries.collect::<Vec<_>>(),
        "keys": top.keys,
        "bytes": top.bytes,
        "revision": top.revision,
        "omitted": top.omitted,
    })))
}

/// Answers `GET metastore/key`: the retained changes of a key, deletes included, the
/// newest first, and its lock.
pub async fn key(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    let args = Args::parse(query.as_deref(), &["key", "before", "limit"])?;
    let key = args.bytes("key").ok_or_else(|| Failure::invalid("parameter \"key\" is missing"))?;
    let before = args.number("before", 0, 0, i64::MAX)?;
    let limit = args.number("limit", 50, 1, LIMIT_MAX)?;
    let mut client = console.metastore()?;
    let request = api::HistoryRequest { key: key.clone(), limit, before };
    let history = client.history(request).await?.into_inner();
    let entries = history.entries.iter().map(|entry| {
        let mut object = Map::new();
        object.insert("revision".into(), json!(entry.revision));
        object.insert("time_micros".into(), json!(entry.time_micros));
        object.insert("user".into(), json!(entry.user));
        object.insert("version".into(), json!(entry.version));
        if let Some(value) = &entry.value {
            put_value(&mut object, value);
        } else {
            object.insert("deleted".into(), json!(true));
        }
        if entry.client_id != 0 {
            object.insert("lease".into(), json!(format!("{:x}", entry.client_id)));
        }
        Value::Object(object)
    });
    let entries: Vec<_> = entries.collect();
    let lock = client.get_lock(api::GetLockRequest { key: key.clone() }).await?.into_inner().lock;
    let mut answer = Map::new();
    put(&mut answer, "key", &key);
    answer.insert("changes".into(), json!(entries));
    answer.insert("more".into(), json!(history.more));
    answer.insert("revision".into(), json!(history.revision));
    answer.insert("oldest_revision".into(), json!(history.waterline));
    if let Some(lock) = lock {
        answer.insert("lock".into(), lock_json(&lock));
    }
    Ok(Json(Value::Object(answer)))
}

pub fn lock_json(lock: &api::Lock) -> Value {
    let holders = lock.holders.iter().map(|holder| {
        json!({"lease": format!("{:x}", holder.client_id), "shared": holder.shared, "token": holder.token})
    });
    let waiters = lock
        .waiters
        .iter()
        .map(|waiter| json!({"lease": format!("{:x}", waiter.client_id), "shared": waiter.shared}));
    json!({"holders": holders.collect::<Vec<_>>(), "waiters": waiters.collect::<Vec<_>>()})
}

/// Answers `GET metastore/leases`: leases with the time left and their keys.
pub async fn leases(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    Args::parse(query.as_deref(), &[])?;
    let mut client = console.metastore()?;
    let ids = client.list_clients(api::ListClientsRequest {}).await?.into_inner().client_ids;
    let mut leases = Vec::new();
    for &client_id in ids.iter().take(LEASES_MAX) {
        // One that has ended since is left out.
        let Ok(lease) = client.get_client(api::GetClientRequest { client_id }).await else {
            continue;
        };
        let lease = lease.into_inner();
        let keys = lease.keys.iter().map(|key| {
            let mut object = Map::new();
            put(&mut object, "key", key);
            Value::Object(object)
        });
        leases.push(json!({
            "id": format!("{client_id:x}"),
            "left_seconds": lease.ttl_seconds,
            "granted_seconds": lease.granted_seconds,
            "keys": keys.collect::<Vec<_>>(),
        }));
    }
    Ok(Json(json!({"leases": leases, "total": ids.len()})))
}

/// Answers `POST metastore/key`: puts or deletes a key if it was not changed after the
/// revision `seen`.
pub async fn change(State(console): State<Console>, body: axum::body::Body) -> Answer {
    let body = body_json(body).await?;
    let key = take(&body, "key")?.filter(|key| !key.is_empty());
    let key = Bytes::from(key.ok_or_else(|| Failure::invalid("key is missing"))?);
    let seen = body.get("seen").and_then(Value::as_i64).filter(|seen| *seen > 0);
    let seen =
        seen.ok_or_else(|| Failure::invalid("seen, the revision of the page, is missing"))?;
    let value = take(&body, "value")?.map(Bytes::from);
    let request = api::ExecuteRequest {
        read_revision: seen,
        reads: vec![api::KeyRange {
            start: key.clone(),
            bound: Some(key_range::Bound::Single(true)),
        }],
        writes: vec![api::Write { key: key.clone(), value, client_id: 0 }],
        locks: Vec::new(),
        attempt_id: attempt(),
        age_micros: 0,
    };
    let executed =
        console.metastore()?.execute(request).await.map_err(|status| match status.code() {
            tonic::Code::Aborted => Failure::conflict(
                "somebody changed this key since it was read; look at it again before saving",
            ),
            _ => status.into(),
        })?;
    console.audit("change key", "metastore", &key);
    Ok(Json(json!({"revision": executed.into_inner().revision})))
}

/// Returns a number that identifies one attempt.
fn attempt() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    RandomState::new().hash_one(now) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_after_a_prefix_begin_where_the_prefix_ends() {
        assert_eq!(after_prefix(b"/a").unwrap(), &b"/b"[..]);
        assert_eq!(after_prefix(b"a\xff\xff").unwrap(), &b"b"[..]);
        assert_eq!(after_prefix(b"\xff"), None);
        assert_eq!(after_prefix(b""), None);
        assert!(contains(b"/Config/x", b"config") && !contains(b"/c", b"config"));
    }
}
