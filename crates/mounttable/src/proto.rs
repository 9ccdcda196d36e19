//! The messages and services of `proto/mounttable.proto`, and conversions.

use std::time::Duration;

use prost_types::Timestamp;

use crate::access;
use crate::fsck;
use crate::node;
use crate::tree;

tonic::include_proto!("stele.mounttable.v1");

/// Descriptors for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mounttable.descriptors"));

/// The name of the service in health checks.
pub const SERVICE: &str = "stele.mounttable.v1.Mounttable";

/// The call whose stream has no end.
pub const WATCH: &str = "/stele.mounttable.v1.Mounttable/Watch";

/// Returns the replies of Fsck in order.
pub fn fsck_replies(
    mended: &[fsck::Problem],
    report: &fsck::Report,
) -> impl Iterator<Item = FsckReply> {
    use fsck_reply::Reply;
    let problem = |problem: &fsck::Problem| FsckProblem {
        kind: problem.kind().into(),
        name: problem.node().map(|name| name.as_str().to_string()),
        description: problem.to_string(),
    };
    let summary = FsckSummary {
        nodes: report.nodes,
        servers: report.servers,
        more_problems: report.more_problems,
    };
    let mended = mended.iter().map(move |one| Reply::Mended(problem(one)));
    let left = report.problems.iter().map(move |one| Reply::Problem(problem(one)));
    let all = mended.chain(left).chain([Reply::Summary(summary)]);
    all.map(|reply| FsckReply { reply: Some(reply) })
}

pub fn timestamp(micros: i64) -> Timestamp {
    let nanos = i32::try_from(micros.rem_euclid(1_000_000) * 1000).expect("less than a second");
    Timestamp { seconds: micros.div_euclid(1_000_000), nanos }
}

/// Returns microseconds since 1970; invalid timestamps become zero.
pub fn micros(timestamp: Option<&Timestamp>) -> i64 {
    let read = |time: &Timestamp| {
        let nanos = Duration::from_nanos(u64::try_from(time.nanos).ok()?);
        let micros = i64::try_from(nanos.as_micros()).ok()?;
        time.seconds.checked_mul(1_000_000)?.checked_add(micros)
    };
    timestamp.and_then(read).unwrap_or(0)
}

impl From<&tree::Entry> for MountEntry {
    fn from(entry: &tree::Entry) -> MountEntry {
        let server = |server: &node::Server| MountedServer {
            server: server.address.clone(),
            deadline: Some(timestamp(server.deadline_micros)),
        };
        MountEntry {
            name: entry.name.clone(),
            servers: entry.servers.iter().map(server).collect(),
            serves_mount_table: entry.flags.mt,
            is_leaf: entry.flags.leaf,
        }
    }
}

impl From<access::Permissions> for Permissions {
    fn from(permissions: access::Permissions) -> Permissions {
        let list =
            |list: access::AccessList| AccessList { r#in: list.included, not_in: list.excluded };
        let tags = permissions.0.into_iter().map(|(tag, lists)| (tag, list(lists)));
        Permissions { tags: tags.collect() }
    }
}

impl From<Permissions> for access::Permissions {
    fn from(permissions: Permissions) -> access::Permissions {
        let list =
            |list: AccessList| access::AccessList { included: list.r#in, excluded: list.not_in };
        let tags = permissions.tags.into_iter().map(|(tag, lists)| (tag, list(lists)));
        access::Permissions(tags.collect())
    }
}

impl From<tree::Found> for GlobReply {
    fn from(found: tree::Found) -> GlobReply {
        let reply = match found {
            tree::Found::Entry(entry) => glob_reply::Reply::Entry((&entry).into()),
            tree::Found::Error { name, error } => glob_reply::Reply::Error(GlobError {
                name,
                code: error.code() as i32,
                message: error.to_string(),
            }),
        };
        GlobReply { reply: Some(reply) }
    }
}

impl From<tree::WatchEvent> for WatchReply {
    fn from(event: tree::WatchEvent) -> WatchReply {
        let reply = match event {
            tree::WatchEvent::Synced => watch_reply::Reply::Synced(true),
            tree::WatchEvent::Change(change) => {
                let tree::KnownNode { name, id, version } = change.node;
                watch_reply::Reply::Change(NodeChange {
                    node: Some(NodeVersion { name, id, version }),
                    deleted: change.deleted,
                    entry: Some((&change.entry).into()),
                    children: change.children,
                    sticky: change.sticky,
                })
            }
        };
        WatchReply { reply: Some(reply) }
    }
}
