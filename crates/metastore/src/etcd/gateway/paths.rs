//! The paths of the methods, without `/v3/`.

use crate::etcd::methods::Method;

/// The path of each method.
const PATHS: &[(&str, Method)] = &[
    ("kv/range", Method::Range),
    ("kv/put", Method::Put),
    ("kv/deleterange", Method::DeleteRange),
    ("kv/txn", Method::Txn),
    ("kv/compaction", Method::Compact),
    ("watch", Method::Watch),
    ("lease/grant", Method::LeaseGrant),
    ("lease/revoke", Method::LeaseRevoke),
    ("kv/lease/revoke", Method::LeaseRevoke),
    ("lease/keepalive", Method::LeaseKeepAlive),
    ("lease/timetolive", Method::LeaseTimeToLive),
    ("kv/lease/timetolive", Method::LeaseTimeToLive),
    ("lease/leases", Method::LeaseLeases),
    ("kv/lease/leases", Method::LeaseLeases),
    ("cluster/member/list", Method::MemberList),
    ("maintenance/alarm", Method::Alarm),
    ("maintenance/status", Method::Status),
    ("maintenance/defragment", Method::Defragment),
    ("maintenance/hash", Method::Hash),
    ("maintenance/hashkv", Method::HashKv),
    ("maintenance/snapshot", Method::Snapshot),
];

/// Prefixes of the paths of etcd's methods that this server does not
/// implement.
const ETCD_PREFIXES: [&str; 5] = ["auth/", "lock/", "election/", "cluster/member/", "maintenance/"];

/// Returns the method of a path.
pub fn method(path: &str) -> Option<Method> {
    PATHS.iter().find(|(known, _)| *known == path).map(|(_, method)| *method)
}

/// Returns whether etcd may serve a path that is not in the table.
pub fn is_known_to_etcd(path: &str) -> bool {
    ETCD_PREFIXES.iter().any(|prefix| path.starts_with(prefix))
}
