//! The supported methods and their names on the wire.

use stele_grpc::MethodPath;

/// A method of etcd's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    Range,
    RangeStream,
    Put,
    DeleteRange,
    Txn,
    Compact,
    Watch,
    LeaseGrant,
    LeaseRevoke,
    LeaseKeepAlive,
    LeaseTimeToLive,
    LeaseLeases,
    MemberList,
    MemberAdd,
    MemberRemove,
    MemberUpdate,
    MemberPromote,
    Alarm,
    Status,
    Defragment,
    Hash,
    HashKv,
    Snapshot,
    MoveLeader,
    Downgrade,
    AuthEnable,
    AuthDisable,
    AuthStatus,
    Authenticate,
    UserAdd,
    UserGet,
    UserList,
    UserDelete,
    UserChangePassword,
    UserGrantRole,
    UserRevokeRole,
    RoleAdd,
    RoleGet,
    RoleList,
    RoleDelete,
    RoleGrantPermission,
    RoleRevokePermission,
    Lock,
    Unlock,
    Campaign,
    Proclaim,
    Leader,
    Observe,
    Resign,
}

const METHODS: [(Method, &str, &str); Method::COUNT] = [
    (Method::Range, "etcdserverpb.KV", "Range"),
    (Method::RangeStream, "etcdserverpb.KV", "RangeStream"),
    (Method::Put, "etcdserverpb.KV", "Put"),
    (Method::DeleteRange, "etcdserverpb.KV", "DeleteRange"),
    (Method::Txn, "etcdserverpb.KV", "Txn"),
    (Method::Compact, "etcdserverpb.KV", "Compact"),
    (Method::Watch, "etcdserverpb.Watch", "Watch"),
    (Method::LeaseGrant, "etcdserverpb.Lease", "LeaseGrant"),
    (Method::LeaseRevoke, "etcdserverpb.Lease", "LeaseRevoke"),
    (Method::LeaseKeepAlive, "etcdserverpb.Lease", "LeaseKeepAlive"),
    (Method::LeaseTimeToLive, "etcdserverpb.Lease", "LeaseTimeToLive"),
    (Method::LeaseLeases, "etcdserverpb.Lease", "LeaseLeases"),
    (Method::MemberList, "etcdserverpb.Cluster", "MemberList"),
    (Method::MemberAdd, "etcdserverpb.Cluster", "MemberAdd"),
    (Method::MemberRemove, "etcdserverpb.Cluster", "MemberRemove"),
    (Method::MemberUpdate, "etcdserverpb.Cluster", "MemberUpdate"),
    (Method::MemberPromote, "etcdserverpb.Cluster", "MemberPromote"),
    (Method::Alarm, "etcdserverpb.Maintenance", "Alarm"),
    (Method::Status, "etcdserverpb.Maintenance", "Status"),
    (Method::Defragment, "etcdserverpb.Maintenance", "Defragment"),
    (Method::Hash, "etcdserverpb.Maintenance", "Hash"),
    (Method::HashKv, "etcdserverpb.Maintenance", "HashKV"),
    (Method::Snapshot, "etcdserverpb.Maintenance", "Snapshot"),
    (Method::MoveLeader, "etcdserverpb.Maintenance", "MoveLeader"),
    (Method::Downgrade, "etcdserverpb.Maintenance", "Downgrade"),
    (Method::AuthEnable, "etcdserverpb.Auth", "AuthEnable"),
    (Method::AuthDisable, "etcdserverpb.Auth", "AuthDisable"),
    (Method::AuthStatus, "etcdserverpb.Auth", "AuthStatus"),
    (Method::Authenticate, "etcdserverpb.Auth", "Authenticate"),
    (Method::UserAdd, "etcdserverpb.Auth", "UserAdd"),
    (Method::UserGet, "etcdserverpb.Auth", "UserGet"),
    (Method::UserList, "etcdserverpb.Auth", "UserList"),
    (Method::UserDelete, "etcdserverpb.Auth", "UserDelete"),
    (Method::UserChangePassword, "etcdserverpb.Auth", "UserChangePassword"),
    (Method::UserGrantRole, "etcdserverpb.Auth", "UserGrantRole"),
    (Method::UserRevokeRole, "etcdserverpb.Auth", "UserRevokeRole"),
    (Method::RoleAdd, "etcdserverpb.Auth", "RoleAdd"),
    (Method::RoleGet, "etcdserverpb.Auth", "RoleGet"),
    (Method::RoleList, "etcdserverpb.Auth", "RoleList"),
    (Method::RoleDelete, "etcdserverpb.Auth", "RoleDelete"),
    (Method::RoleGrantPermission, "etcdserverpb.Auth", "RoleGrantPermission"),
    (Method::RoleRevokePermission, "etcdserverpb.Auth", "RoleRevokePermission"),
    (Method::Lock, "v3lockpb.Lock", "Lock"),
    (Method::Unlock, "v3lockpb.Lock", "Unlock"),
    (Method::Campaign, "v3electionpb.Election", "Campaign"),
    (Method::Proclaim, "v3electionpb.Election", "Proclaim"),
    (Method::Leader, "v3electionpb.Election", "Leader"),
    (Method::Observe, "v3electionpb.Election", "Observe"),
    (Method::Resign, "v3electionpb.Election", "Resign"),
];

impl Method {
    pub const COUNT: usize = 49;

    pub fn all() -> impl Iterator<Item = Method> {
        METHODS.iter().map(|(method, ..)| *method)
    }

    /// Returns the method of a path: `/service/method`.
    pub fn of_path(path: &str) -> Option<Method> {
        let MethodPath { service, method: name } = MethodPath::parse(path)?;
        METHODS
            .iter()
            .find(|(_, known, method)| *method == name && *known == service)
            .map(|(method, ..)| *method)
    }

    /// Returns the names of the service and the method.
    pub fn names(self) -> (&'static str, &'static str) {
        let (_, service, name) = METHODS[self as usize];
        (service, name)
    }

    /// Returns whether requests are a stream.
    pub fn is_client_streaming(self) -> bool {
        matches!(self, Method::Watch | Method::LeaseKeepAlive)
    }

    /// Returns whether responses are a stream.
    pub fn is_server_streaming(self) -> bool {
        self.is_client_streaming()
            || matches!(self, Method::RangeStream | Method::Snapshot | Method::Observe)
    }

    /// Returns whether a call may run until it is cancelled.
    pub fn is_endless(self) -> bool {
        self.is_client_streaming()
            || matches!(self, Method::Lock | Method::Campaign | Method::Observe)
    }

    /// Returns whether a learner answers it. A range must be serializable.
    pub fn is_for_learners(self) -> bool {
        matches!(self, Method::Range | Method::Status | Method::Snapshot)
    }

    /// Returns whether callers need not be identified.
    pub fn is_public(self) -> bool {
        matches!(self, Method::Authenticate | Method::AuthStatus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_found_by_their_path_and_know_their_names() {
        for (method, service, name) in METHODS {
            assert_eq!(Method::of_path(&format!("/{service}/{name}")), Some(method));
            assert_eq!(method.names(), (service, name));
        }
        for unknown in ["", "/", "/etcdserverpb.KV/put", "etcdserverpb.KV/Put", "/KV/Put"] {
            assert_eq!(Method::of_path(unknown), None, "{unknown}");
        }
    }
}
