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
    ("cluster/member/add", Method::MemberAdd),
    ("cluster/member/remove", Method::MemberRemove),
    ("cluster/member/update", Method::MemberUpdate),
    ("cluster/member/promote", Method::MemberPromote),
    ("maintenance/alarm", Method::Alarm),
    ("maintenance/status", Method::Status),
    ("maintenance/defragment", Method::Defragment),
    ("maintenance/hash", Method::Hash),
    ("maintenance/hashkv", Method::HashKv),
    ("maintenance/snapshot", Method::Snapshot),
    ("maintenance/transfer-leadership", Method::MoveLeader),
    ("maintenance/downgrade", Method::Downgrade),
    ("auth/enable", Method::AuthEnable),
    ("auth/disable", Method::AuthDisable),
    ("auth/status", Method::AuthStatus),
    ("auth/authenticate", Method::Authenticate),
    ("auth/user/add", Method::UserAdd),
    ("auth/user/get", Method::UserGet),
    ("auth/user/list", Method::UserList),
    ("auth/user/delete", Method::UserDelete),
    ("auth/user/changepw", Method::UserChangePassword),
    ("auth/user/grant", Method::UserGrantRole),
    ("auth/user/revoke", Method::UserRevokeRole),
    ("auth/role/add", Method::RoleAdd),
    ("auth/role/get", Method::RoleGet),
    ("auth/role/list", Method::RoleList),
    ("auth/role/delete", Method::RoleDelete),
    ("auth/role/grant", Method::RoleGrantPermission),
    ("auth/role/revoke", Method::RoleRevokePermission),
    ("lock/lock", Method::Lock),
    ("lock/unlock", Method::Unlock),
    ("election/campaign", Method::Campaign),
    ("election/proclaim", Method::Proclaim),
    ("election/leader", Method::Leader),
    ("election/observe", Method::Observe),
    ("election/resign", Method::Resign),
];

/// Returns the method of a path.
pub fn method(path: &str) -> Option<Method> {
    PATHS.iter().find(|(known, _)| *known == path).map(|(_, method)| *method)
}
