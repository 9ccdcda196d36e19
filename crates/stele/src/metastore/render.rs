//! Prints keys, changes and the status of the metastore: one line each for people, one
//! JSON object each for programs. Bytes in JSON are base64.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use stele_metastore::client::{Change, Event, KeyValue, Lock, StatusResponse};

use crate::output::{bytes, json_line, text};
use crate::timestamp;

pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Formats a lease id the way every command prints and accepts it.
pub fn hex(id: i64) -> String {
    format!("{id:x}")
}

/// Prints what was done, as text or as JSON.
pub fn done(text: &str, object: &serde_json::Value, json: bool) -> io::Result<()> {
    let out = &mut io::stdout().lock();
    if json { json_line(out, object) } else { writeln!(out, "{text}") }
}

pub fn key_value(out: &mut dyn Write, kv: &KeyValue, json: bool) -> io::Result<()> {
    if json {
        return json_line(out, &kv_json(kv));
    }
    writeln!(out, "{}\t{}", text(&kv.key), text(&kv.value))
}

fn kv_json(kv: &KeyValue) -> serde_json::Value {
    json!({
        "key": base64(&kv.key),
        "value": base64(&kv.value),
        "create_revision": kv.create_revision,
        "mod_revision": kv.mod_revision,
        "version": kv.version,
        "lease": (kv.client_id != 0).then(|| hex(kv.client_id)),
    })
}

pub fn revision(out: &mut dyn Write, what: &str, revision: i64, json: bool) -> io::Result<()> {
    if json {
        return json_line(out, &json!({ "revision": revision }));
    }
    writeln!(out, "{what} at revision {revision}")
}

pub fn deleted(out: &mut dyn Write, deleted: i64, json: bool) -> io::Result<()> {
    if json {
        return json_line(out, &json!({ "deleted": deleted }));
    }
    let keys = crate::output::things(u64::try_from(deleted).unwrap_or(0), "key");
    writeln!(out, "deleted {keys}")
}

pub fn event(out: &mut dyn Write, event: &Event, json: bool) -> io::Result<()> {
    let Event { revision, key, change, previous_value } = event;
    let change = change.as_ref();
    if json {
        let mut object = json!({ "revision": revision, "key": base64(key) });
        match change {
            Some(Change::Put(kv)) => object["put"] = kv_json(kv),
            Some(Change::Deleted(_)) => object["deleted"] = true.into(),
            Some(Change::Lock(lock)) => object["lock"] = lock_json(lock),
            None => {}
        }
        if let Some(previous) = previous_value {
            object["previous_value"] = base64(previous).into();
        }
        return json_line(out, &object);
    }
    let key = text(key);
    match change {
        Some(Change::Put(kv)) => writeln!(out, "{revision}\tput\t{key}\t{}", text(&kv.value)),
        Some(Change::Deleted(_)) => writeln!(out, "{revision}\tdelete\t{key}"),
        Some(Change::Lock(lock)) => writeln!(out, "{revision}\tlock\t{key}\t{}", lock_line(lock)),
        None => Ok(()),
    }
}

pub fn lock_json(lock: &Lock) -> serde_json::Value {
    let holders = lock.holders.iter().map(|holder| {
        let lease = hex(holder.client_id);
        json!({ "lease": lease, "shared": holder.shared, "token": holder.token })
    });
    let waiters = lock
        .waiters
        .iter()
        .map(|waiter| json!({ "lease": hex(waiter.client_id), "shared": waiter.shared }));
    let (holders, waiters): (Vec<_>, Vec<_>) = (holders.collect(), waiters.collect());
    json!({ "holders": holders, "waiters": waiters })
}

/// Describes the holders of a lock and the number of waiters.
pub fn lock_line(lock: &Lock) -> String {
    let mode = |shared| if shared { "shared" } else { "exclusive" };
    let holders: Vec<String> = lock
        .holders
        .iter()
        .map(|held| format!("{} by {:x} (token {})", mode(held.shared), held.client_id, held.token))
        .collect();
    let held = if holders.is_empty() { "free".to_string() } else { holders.join(", ") };
    match lock.waiters.len() {
        0 => held,
        waiting => format!("{held}; {waiting} waiting"),
    }
}

pub fn status_json(status: &StatusResponse) -> serde_json::Value {
    let id = |id: u64| format!("{id:x}");
    json!({
        "cluster_id": id(status.cluster_id),
        "member_id": id(status.member_id),
        "leader_id": id(status.leader_id),
        "term": status.term,
        "last_index": status.last_index,
        "applied_index": status.applied_index,
        "revision": status.revision,
        "compacted": status.compacted,
        "waterline": status.waterline,
        "live_bytes": status.live_bytes,
        "stored_bytes": status.stored_bytes,
        "quota_bytes": status.quota_bytes,
        "alarms": status.alarms,
        "level": status.level,
        "level_spoken": status.level_spoken,
        "oldest_revision": status.oldest_revision,
        "oldest_time": (status.oldest_micros > 0).then(|| timestamp::format(status.oldest_micros)),
    })
}

pub fn status(out: &mut dyn Write, status: &StatusResponse) -> io::Result<()> {
    let size = |number: i64| bytes(u64::try_from(number).unwrap_or(0));
    let leader = match status.leader_id {
        0 => "no leader".to_string(),
        leader if leader == status.member_id => "this member is the leader".to_string(),
        leader => format!("member {leader:x} is the leader"),
    };
    writeln!(out, "cluster     {:x}", status.cluster_id)?;
    writeln!(out, "member      {:x}; {leader}, term {}", status.member_id, status.term)?;
    writeln!(out, "log         entry {}, applied {}", status.last_index, status.applied_index)?;
    writeln!(out, "revision    {}", status.revision)?;
    let newer = match status.level_spoken > status.level {
        true => format!("; this member speaks levels up to {}", status.level_spoken),
        false => String::new(),
    };
    writeln!(out, "level       {}{newer}", status.level)?;
    match status.oldest_micros {
        0 => writeln!(out, "history     from revision {}", status.waterline.max(1))?,
        micros => {
            let time = timestamp::format(micros);
            writeln!(out, "history     from revision {} of {time}", status.oldest_revision)?;
        }
    }
    if status.compacted > 0 {
        writeln!(out, "for etcd    from revision {}", status.compacted)?;
    }
    let quota = match status.quota_bytes {
        0 => "no quota".to_string(),
        quota => format!("of {}", size(quota)),
    };
    writeln!(out, "live        {} {quota}", size(status.live_bytes))?;
    writeln!(out, "stored      {}", size(status.stored_bytes))?;
    status.alarms.iter().try_for_each(|alarm| writeln!(out, "alarm       {alarm}"))
}
