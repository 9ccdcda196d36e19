//! What every gRPC method requires. A method that is not listed here is refused, so a new
//! one must be added; a test compares the list with all `.proto` files.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::permission::Permission::{self, *};

/// What a call requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    Public,
    /// The secret of the cluster, which the service itself checks.
    Cluster,
    /// A valid credential.
    Authenticated,
    /// All of these permissions.
    Needs(&'static [Requirement]),
}

/// A permission on the resource that a message names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub need: Need,
    pub place: Place,
    /// The message may name another resource instead.
    pub optional: bool,
    /// Applies only if the number in this field has one of these bits.
    pub flag: Option<(u32, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    One(Permission),
    Both(Permission, Permission),
    /// The permission to read or change the policy of the resource, which depends on its
    /// kind.
    Policy(PolicyAccess),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyAccess {
    Get,
    Set,
}

/// Where the name of a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is the same for all calls.
    Fixed(&'static str),
    /// In a text field; the numbers lead there from the outer message.
    Name(&'static [u32]),
    /// In the name of an operation.
    Operation(&'static [u32]),
    /// The id of a catalogue; the field may be repeated.
    Fid(&'static [u32]),
}

impl Need {
    /// Returns the permissions that are needed on a resource.
    pub fn permissions(self, resource: &str) -> impl Iterator<Item = Permission> {
        let (first, second) = match self {
            Need::One(one) => (one, None),
            Need::Both(one, other) => (one, Some(other)),
            Need::Policy(access) => (access.permission(resource), None),
        };
        std::iter::once(first).chain(second)
    }

    /// Returns all permissions that may be needed.
    pub fn any(self) -> Vec<Permission> {
        match self {
            Need::Policy(access) => POLICIES.iter().map(|kind| kind.permission(access)).collect(),
            need => need.permissions("").collect(),
        }
    }

    fn is_audited(self) -> bool {
        self.any().into_iter().any(Permission::is_audited)
    }
}

/// The kinds of resources that have policies, by a part of their names; the most specific
/// first.
struct PolicyKind(&'static str, Permission, Permission);

const POLICIES: [PolicyKind; 6] = [
    PolicyKind("/authorizedViews/", ViewsGetIamPolicy, ViewsSetIamPolicy),
    PolicyKind("/backups/", BackupsGetIamPolicy, BackupsSetIamPolicy),
    PolicyKind("/tables/", TablesGetIamPolicy, TablesSetIamPolicy),
    PolicyKind("/logicalViews/", LogicalViewsGetIamPolicy, LogicalViewsSetIamPolicy),
    PolicyKind("/materializedViews/", MaterializedViewsGetIamPolicy, MaterializedViewsSetIamPolicy),
    PolicyKind("", InstancesGetIamPolicy, InstancesSetIamPolicy),
];

impl PolicyKind {
    fn permission(&self, access: PolicyAccess) -> Permission {
        match access {
            PolicyAccess::Get => self.1,
            PolicyAccess::Set => self.2,
        }
    }
}

impl PolicyAccess {
    fn permission(self, resource: &str) -> Permission {
        let kind = POLICIES.iter().find(|kind| resource.contains(kind.0));
        kind.unwrap_or(&POLICIES[POLICIES.len() - 1]).permission(self)
    }
}

impl Access {
    /// Returns whether every call is recorded in the audit log.
    pub fn is_audited(self) -> bool {
        match self {
            Access::Public | Access::Cluster | Access::Authenticated => false,
            Access::Needs(all) => all.iter().any(|one| one.need.is_audited()),
        }
    }
}

/// Returns what a method requires, given its path `/service/method`.
pub fn access(path: &str) -> Option<Access> {
    BY_PATH.get(path).copied()
}

/// Returns all listed methods as `service`, `method`.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    SERVICES.iter().flat_map(|(service, methods)| methods.iter().map(|(name, _)| (*service, *name)))
}

static BY_PATH: LazyLock<HashMap<String, Access>> = LazyLock::new(|| {
    let of = |(service, methods): &(&str, &[(&str, Access)])| {
        let path = |(name, access): &(&str, Access)| (format!("/{service}/{name}"), *access);
        methods.iter().map(path).collect::<Vec<_>>()
    };
    SERVICES.iter().flat_map(of).collect()
});

const fn at(need: Need, place: Place) -> Requirement {
    Requirement { need, place, optional: false, flag: None }
}

const fn one(permission: Permission, field: &'static [u32]) -> Requirement {
    at(Need::One(permission), Place::Name(field))
}

/// One of several names, of which a message has at least one.
const fn either(permission: Permission, field: &'static [u32]) -> Requirement {
    Requirement { optional: true, ..one(permission, field) }
}

const fn both(one: Permission, other: Permission, field: &'static [u32]) -> Requirement {
    Requirement { optional: true, ..at(Need::Both(one, other), Place::Name(field)) }
}

const fn fixed(permission: Permission, resource: &'static str) -> Requirement {
    at(Need::One(permission), Place::Fixed(resource))
}

const fn fid(permission: Permission, field: &'static [u32]) -> Requirement {
    at(Need::One(permission), Place::Fid(field))
}

macro_rules! needs {
    ($($requirement:expr),+) => { Access::Needs(&[$($requirement),+]) };
}

/// The first field of a message, which names its resource in most methods.
const FIRST: &[u32] = &[1];
/// The name in the message that is the first field.
const FIRST_NAME: &[u32] = &[1, 1];

const GET_POLICY: Access = needs!(at(Need::Policy(PolicyAccess::Get), Place::Name(FIRST)));
const SET_POLICY: Access = needs!(at(Need::Policy(PolicyAccess::Set), Place::Name(FIRST)));

const OPERATE: Access = needs!(fixed(SteleOperate, "server"));
const MONITOR: Access = needs!(fixed(SteleMonitor, "server"));
const METASTORE_READ: Access = needs!(fixed(MetastoreRead, "metastore"));
const METASTORE_WRITE: Access = needs!(fixed(MetastoreWrite, "metastore"));
const METASTORE_ADMIN: Access = needs!(fixed(MetastoreAdmin, "metastore"));
const NAMES: Access = needs!(fixed(NamesCall, "names"));
const CATALOGUES_READ: Access = needs!(fixed(CatalogueRead, "catalogues"));
const CATALOGUE_READ: Access = needs!(fid(CatalogueRead, FIRST_NAME));
const CATALOGUE_WRITE: Access = needs!(fid(CatalogueWrite, FIRST_NAME));
/// Put creates its catalogue if flag 8 is set.
const CATALOGUE_PUT: Access = needs!(
    fid(CatalogueWrite, FIRST_NAME),
    Requirement { flag: Some((3, 8)), ..fid(CatalogueAdmin, FIRST_NAME) }
);

type Methods = &'static [(&'static str, Access)];

const SERVICES: &[(&str, Methods)] = &[
    (
        "google.bigtable.v2.Bigtable",
        &[
            (
                "ReadRows",
                needs!(
                    either(TablesReadRows, FIRST),
                    either(ViewsReadRows, &[9]),
                    either(MaterializedViewsReadRows, &[11])
                ),
            ),
            (
                "SampleRowKeys",
                needs!(
                    either(TablesSampleRowKeys, FIRST),
                    either(ViewsSampleRowKeys, &[4]),
                    either(MaterializedViewsSampleRowKeys, &[5])
                ),
            ),
            ("MutateRow", needs!(either(TablesMutateRows, FIRST), either(ViewsMutateRows, &[6]))),
            ("MutateRows", needs!(either(TablesMutateRows, FIRST), either(ViewsMutateRows, &[5]))),
            // Both reveal values, so they need to read as well.
            (
                "CheckAndMutateRow",
                needs!(
                    both(TablesReadRows, TablesMutateRows, FIRST),
                    both(ViewsReadRows, ViewsMutateRows, &[9])
                ),
            ),
            (
                "ReadModifyWriteRow",
                needs!(
                    both(TablesReadRows, TablesMutateRows, FIRST),
                    both(ViewsReadRows, ViewsMutateRows, &[6])
                ),
            ),
            ("PingAndWarm", needs!(one(InstancesPing, FIRST))),
            ("GetClientConfiguration", needs!(one(InstancesPing, FIRST))),
            ("GenerateInitialChangeStreamPartitions", needs!(one(TablesReadRows, FIRST))),
            ("ReadChangeStream", needs!(one(TablesReadRows, FIRST))),
            ("PrepareQuery", needs!(one(InstancesExecuteQuery, FIRST))),
            ("ExecuteQuery", needs!(one(InstancesExecuteQuery, FIRST))),
        ],
    ),
    (
        "google.bigtable.admin.v2.BigtableTableAdmin",
        &[
            ("CreateTable", needs!(one(TablesCreate, FIRST))),
            ("ListTables", needs!(one(TablesList, FIRST))),
            ("GetTable", needs!(one(TablesGet, FIRST))),
            ("UpdateTable", needs!(one(TablesUpdate, FIRST_NAME))),
            ("DeleteTable", needs!(one(TablesDelete, FIRST))),
            ("UndeleteTable", needs!(one(TablesUndelete, FIRST))),
            ("ModifyColumnFamilies", needs!(one(TablesUpdate, FIRST))),
            ("DropRowRange", needs!(one(TablesUpdate, FIRST))),
            ("GenerateConsistencyToken", needs!(one(TablesGenerateConsistencyToken, FIRST))),
            ("CheckConsistency", needs!(one(TablesCheckConsistency, FIRST))),
            ("CreateAuthorizedView", needs!(one(ViewsCreate, FIRST))),
            ("ListAuthorizedViews", needs!(one(ViewsList, FIRST))),
            ("GetAuthorizedView", needs!(one(ViewsGet, FIRST))),
            ("UpdateAuthorizedView", needs!(one(ViewsUpdate, FIRST_NAME))),
            ("DeleteAuthorizedView", needs!(one(ViewsDelete, FIRST))),
            // A backup holds the rows of its table.
            ("CreateBackup", needs!(one(BackupsCreate, FIRST), one(TablesReadRows, &[3, 2]))),
            ("GetBackup", needs!(one(BackupsGet, FIRST))),
            ("UpdateBackup", needs!(one(BackupsUpdate, FIRST_NAME))),
            ("DeleteBackup", needs!(one(BackupsDelete, FIRST))),
            ("ListBackups", needs!(one(BackupsList, FIRST))),
            ("RestoreTable", needs!(one(TablesCreate, FIRST), one(BackupsRestore, &[3]))),
            ("CopyBackup", needs!(one(BackupsCreate, FIRST), one(BackupsRead, &[3]))),
            ("CreateSchemaBundle", needs!(one(SchemaBundlesCreate, FIRST))),
            ("UpdateSchemaBundle", needs!(one(SchemaBundlesUpdate, FIRST_NAME))),
            ("GetSchemaBundle", needs!(one(SchemaBundlesGet, FIRST))),
            ("ListSchemaBundles", needs!(one(SchemaBundlesList, FIRST))),
            ("DeleteSchemaBundle", needs!(one(SchemaBundlesDelete, FIRST))),
            ("GetIamPolicy", GET_POLICY),
            ("SetIamPolicy", SET_POLICY),
            ("TestIamPermissions", Access::Authenticated),
        ],
    ),
    (
        "google.bigtable.admin.v2.BigtableInstanceAdmin",
        &[
            ("CreateInstance", needs!(one(InstancesCreate, FIRST))),
            ("GetInstance", needs!(one(InstancesGet, FIRST))),
            ("ListInstances", needs!(one(InstancesList, FIRST))),
            ("UpdateInstance", needs!(one(InstancesUpdate, FIRST))),
            ("PartialUpdateInstance", needs!(one(InstancesUpdate, FIRST_NAME))),
            ("DeleteInstance", needs!(one(InstancesDelete, FIRST))),
            ("CreateCluster", needs!(one(ClustersCreate, FIRST))),
            ("GetCluster", needs!(one(ClustersGet, FIRST))),
            ("ListClusters", needs!(one(ClustersList, FIRST))),
            ("UpdateCluster", needs!(one(ClustersUpdate, FIRST))),
            ("PartialUpdateCluster", needs!(one(ClustersUpdate, FIRST_NAME))),
            ("DeleteCluster", needs!(one(ClustersDelete, FIRST))),
            ("CreateAppProfile", needs!(one(AppProfilesCreate, FIRST))),
            ("GetAppProfile", needs!(one(AppProfilesGet, FIRST))),
            ("ListAppProfiles", needs!(one(AppProfilesList, FIRST))),
            ("UpdateAppProfile", needs!(one(AppProfilesUpdate, FIRST_NAME))),
            ("DeleteAppProfile", needs!(one(AppProfilesDelete, FIRST))),
            ("ListHotTablets", needs!(one(HotTabletsList, FIRST))),
            ("CreateLogicalView", needs!(one(LogicalViewsCreate, FIRST))),
            ("GetLogicalView", needs!(one(LogicalViewsGet, FIRST))),
            ("ListLogicalViews", needs!(one(LogicalViewsList, FIRST))),
            ("UpdateLogicalView", needs!(one(LogicalViewsUpdate, FIRST_NAME))),
            ("DeleteLogicalView", needs!(one(LogicalViewsDelete, FIRST))),
            ("CreateMaterializedView", needs!(one(MaterializedViewsCreate, FIRST))),
            ("GetMaterializedView", needs!(one(MaterializedViewsGet, FIRST))),
            ("ListMaterializedViews", needs!(one(MaterializedViewsList, FIRST))),
            ("UpdateMaterializedView", needs!(one(MaterializedViewsUpdate, FIRST_NAME))),
            ("DeleteMaterializedView", needs!(one(MaterializedViewsDelete, FIRST))),
            ("GetIamPolicy", GET_POLICY),
            ("SetIamPolicy", SET_POLICY),
            ("TestIamPermissions", Access::Authenticated),
        ],
    ),
    (
        // An operation is visible to those who may see what it works on.
        "google.longrunning.Operations",
        &[
            ("GetOperation", needs!(at(Need::One(TablesGet), Place::Operation(FIRST)))),
            ("ListOperations", needs!(at(Need::One(TablesList), Place::Operation(&[4])))),
            ("WaitOperation", needs!(at(Need::One(TablesGet), Place::Operation(FIRST)))),
            ("CancelOperation", needs!(at(Need::One(TablesUpdate), Place::Operation(FIRST)))),
            ("DeleteOperation", needs!(at(Need::One(TablesUpdate), Place::Operation(FIRST)))),
        ],
    ),
    (
        "stele.tables.v1.TabletAdmin",
        &[
            ("ListTablets", OPERATE),
            ("SplitTablet", OPERATE),
            ("JoinTablets", OPERATE),
            ("CompactTable", OPERATE),
            ("LoadTablets", OPERATE),
            ("UnloadTablets", OPERATE),
            ("VerifyTable", OPERATE),
            ("CollectFiles", OPERATE),
            ("DumpConfig", OPERATE),
            ("CreateBackup", needs!(one(BackupsCreate, FIRST), one(TablesReadRows, FIRST))),
            ("ListBackups", needs!(one(BackupsList, FIRST))),
            ("GetBackup", needs!(one(BackupsGet, FIRST))),
            ("DeleteBackup", needs!(one(BackupsDelete, FIRST))),
            ("RestoreTable", needs!(one(BackupsRestore, FIRST), one(TablesCreate, &[2]))),
            ("ListDeletedTables", needs!(fixed(TablesList, ""))),
            ("UndeleteTable", needs!(one(TablesUndelete, FIRST))),
            ("GetSchema", needs!(one(TablesGet, FIRST))),
            ("CreateTable", needs!(one(TablesCreate, FIRST))),
            ("AlterTable", needs!(one(TablesUpdate, FIRST))),
        ],
    ),
    (
        "stele.tables.v1.Tables",
        &[
            ("Open", needs!(one(TablesGet, FIRST))),
            ("Apply", needs!(one(TablesMutateRows, FIRST))),
            ("Sync", needs!(one(TablesMutateRows, FIRST))),
            ("Scan", needs!(one(TablesReadRows, FIRST))),
            ("Get", needs!(one(TablesReadRows, FIRST))),
            ("Close", needs!(one(TablesReadRows, FIRST))),
            ("LoadTablets", OPERATE),
            ("UnloadTablets", OPERATE),
            ("ReloadSchema", OPERATE),
        ],
    ),
    (
        "stele.tables.v1.Tablets",
        &[
            ("ReadRows", Access::Cluster),
            ("MutateRow", Access::Cluster),
            ("MutateRows", Access::Cluster),
            ("CheckAndMutateRow", Access::Cluster),
            ("ReadModifyWriteRow", Access::Cluster),
            ("SampleRowKeys", Access::Cluster),
            ("Load", Access::Cluster),
            ("Unload", Access::Cluster),
        ],
    ),
    (
        "stele.catalogue.v1.Catalogues",
        &[
            ("Create", needs!(fid(CatalogueAdmin, FIRST))),
            ("Delete", needs!(fid(CatalogueAdmin, FIRST))),
            ("Lookup", needs!(fid(CatalogueRead, FIRST))),
            ("List", CATALOGUES_READ),
            ("Put", CATALOGUE_PUT),
            ("PutStream", CATALOGUE_PUT),
            ("Del", CATALOGUE_WRITE),
            ("DelStream", CATALOGUE_WRITE),
            ("DelRange", needs!(fid(CatalogueAdmin, FIRST_NAME))),
            ("Get", CATALOGUE_READ),
            ("Next", CATALOGUE_READ),
            ("Prev", CATALOGUE_READ),
            ("Count", CATALOGUE_READ),
            ("Stat", needs!(fid(CatalogueRead, FIRST))),
            // A snapshot is pinned for all catalogues.
            ("Pin", CATALOGUES_READ),
            ("Unpin", CATALOGUES_READ),
            ("Fsync", CATALOGUES_READ),
            ("AwaitDeathrow", needs!(fixed(CatalogueAdmin, "catalogues"))),
        ],
    ),
    (
        "stele.mounttable.v1.Mounttable",
        &[
            ("Mount", NAMES),
            ("Unmount", NAMES),
            ("ResolveStep", NAMES),
            ("Resolve", NAMES),
            ("Glob", NAMES),
            ("Delete", NAMES),
            ("GetPermissions", NAMES),
            ("SetPermissions", NAMES),
            ("Watch", NAMES),
            ("Fsck", needs!(fixed(NamesAdmin, "names"))),
        ],
    ),
    (
        "etcdserverpb.KV",
        &[
            ("Range", METASTORE_READ),
            ("RangeStream", METASTORE_READ),
            ("Put", METASTORE_WRITE),
            ("DeleteRange", METASTORE_WRITE),
            ("Txn", METASTORE_WRITE),
            ("Compact", METASTORE_ADMIN),
        ],
    ),
    ("etcdserverpb.Watch", &[("Watch", METASTORE_READ)]),
    (
        "etcdserverpb.Lease",
        &[
            ("LeaseGrant", METASTORE_WRITE),
            ("LeaseRevoke", METASTORE_WRITE),
            ("LeaseKeepAlive", METASTORE_WRITE),
            ("LeaseTimeToLive", METASTORE_READ),
            ("LeaseLeases", METASTORE_READ),
        ],
    ),
    (
        "etcdserverpb.Cluster",
        &[
            ("MemberAdd", METASTORE_ADMIN),
            ("MemberRemove", METASTORE_ADMIN),
            ("MemberUpdate", METASTORE_ADMIN),
            ("MemberList", METASTORE_READ),
            ("MemberPromote", METASTORE_ADMIN),
        ],
    ),
    (
        "etcdserverpb.Maintenance",
        &[
            ("Alarm", METASTORE_ADMIN),
            ("Status", METASTORE_READ),
            ("Defragment", METASTORE_ADMIN),
            ("Hash", METASTORE_ADMIN),
            ("HashKV", METASTORE_ADMIN),
            ("Snapshot", METASTORE_ADMIN),
            ("MoveLeader", METASTORE_ADMIN),
            ("Downgrade", METASTORE_ADMIN),
        ],
    ),
    (
        "etcdserverpb.Auth",
        &[
            ("AuthEnable", METASTORE_ADMIN),
            ("AuthDisable", METASTORE_ADMIN),
            ("AuthStatus", Access::Public),
            ("Authenticate", Access::Public),
            ("UserAdd", METASTORE_ADMIN),
            ("UserGet", METASTORE_ADMIN),
            ("UserList", METASTORE_ADMIN),
            ("UserDelete", METASTORE_ADMIN),
            ("UserChangePassword", METASTORE_ADMIN),
            ("UserGrantRole", METASTORE_ADMIN),
            ("UserRevokeRole", METASTORE_ADMIN),
            ("RoleAdd", METASTORE_ADMIN),
            ("RoleGet", METASTORE_ADMIN),
            ("RoleList", METASTORE_ADMIN),
            ("RoleDelete", METASTORE_ADMIN),
            ("RoleGrantPermission", METASTORE_ADMIN),
            ("RoleRevokePermission", METASTORE_ADMIN),
        ],
    ),
    ("v3lockpb.Lock", &[("Lock", METASTORE_WRITE), ("Unlock", METASTORE_WRITE)]),
    (
        "v3electionpb.Election",
        &[
            ("Campaign", METASTORE_WRITE),
            ("Proclaim", METASTORE_WRITE),
            ("Leader", METASTORE_READ),
            ("Observe", METASTORE_READ),
            ("Resign", METASTORE_WRITE),
        ],
    ),
    (
        "stele.metastore.v1.Metastore",
        &[
            ("Get", METASTORE_READ),
            ("GetRange", METASTORE_READ),
            ("Read", METASTORE_READ),
            ("Put", METASTORE_WRITE),
            ("Delete", METASTORE_WRITE),
            ("Snapshot", METASTORE_READ),
            ("Execute", METASTORE_WRITE),
            ("Watch", METASTORE_READ),
            ("NewClient", METASTORE_WRITE),
            ("KeepAlive", METASTORE_WRITE),
            ("CloseClient", METASTORE_WRITE),
            ("GetClient", METASTORE_READ),
            ("ListClients", METASTORE_READ),
            ("Acquire", METASTORE_WRITE),
            ("Release", METASTORE_WRITE),
            ("GetLock", METASTORE_READ),
            ("Compact", METASTORE_ADMIN),
            ("Status", METASTORE_READ),
            ("History", METASTORE_READ),
            ("Top", METASTORE_READ),
            ("RaiseLevel", METASTORE_ADMIN),
            ("SetQuota", METASTORE_ADMIN),
            ("ListQuotas", METASTORE_READ),
            ("CreateBackup", METASTORE_ADMIN),
            ("GetHashes", METASTORE_READ),
            ("ClusterStatus", METASTORE_READ),
            ("MoveLeader", METASTORE_ADMIN),
        ],
    ),
    (
        "grpc.health.v1.Health",
        &[("Check", Access::Public), ("Watch", Access::Public), ("List", Access::Public)],
    ),
    ("grpc.reflection.v1.ServerReflection", &[("ServerReflectionInfo", MONITOR)]),
    ("grpc.reflection.v1alpha.ServerReflection", &[("ServerReflectionInfo", MONITOR)]),
];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The methods of all `.proto` files with the types of their requests, and the fields
    /// of all messages of those files by number.
    #[derive(Default)]
    struct Protos {
        methods: BTreeMap<String, String>,
        fields: BTreeMap<String, BTreeMap<u32, (String, String)>>,
    }

    impl Protos {
        fn read(&mut self, dir: &Path) {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => self.read(&path),
                    false => self.file(&fs::read_to_string(path).unwrap()),
                }
            }
        }

        fn file(&mut self, text: &str) {
            let plain: String = text
                .lines()
                .map(|line| line.split("//").next().unwrap_or(""))
                .collect::<Vec<_>>()
                .join(" ");
            let words: Vec<&str> = plain
                .split_inclusive([';', '{', '}'])
                .map(str::trim)
                .filter(|statement| !statement.is_empty())
                .collect();
            let (mut package, mut service) = (String::new(), String::new());
            let mut messages: Vec<String> = Vec::new();
            for statement in words {
                let mut parts = statement.split_whitespace();
                match parts.next().unwrap_or("") {
                    "package" => package = parts.next().unwrap().trim_end_matches(';').into(),
                    "service" => service = parts.next().unwrap().into(),
                    "rpc" => {
                        let (name, rest) = statement[3..].split_once('(').unwrap();
                        let request = rest.split(')').next().unwrap().trim();
                        let request = request.strip_prefix("stream ").unwrap_or(request);
                        let path = format!("/{package}.{service}/{}", name.trim());
                        self.methods.insert(
                            path,
                            format!("{package}.{}", request.rsplit('.').next().unwrap()),
                        );
                    }
                    "message" | "enum" | "oneof" => {
                        let name = parts.next().unwrap().trim_end_matches('{');
                        messages.push(match statement.split(' ').next() {
                            Some("message") => format!("{package}.{name}"),
                            // Fields of a choice are fields of its message.
                            Some("oneof") => messages.last().cloned().unwrap_or_default(),
                            _ => format!("values of {name}"),
                        });
                    }
                    "}" => drop(messages.pop()),
                    _ => {
                        let field = statement.split('=').collect::<Vec<_>>();
                        let [declared, number, ..] = field[..] else { continue };
                        let digits: String =
                            number.trim().chars().take_while(char::is_ascii_digit).collect();
                        let Ok(number) = digits.parse() else { continue };
                        let mut parts = declared.split_whitespace().rev();
                        let (name, kind) = (parts.next().unwrap(), parts.next().unwrap_or(""));
                        let message = messages.last().cloned().unwrap_or_default();
                        let fields = self.fields.entry(message).or_default();
                        fields.insert(number, (name.into(), kind.into()));
                    }
                }
            }
        }
    }

    fn protos() -> Protos {
        let mut protos = Protos::default();
        protos.read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto"));
        assert!(protos.methods.len() > 100, "{}", protos.methods.len());
        protos
    }

    #[test]
    fn every_method_of_every_proto_file_is_listed() {
        let protos = protos();
        let missing: Vec<_> = protos.methods.keys().filter(|path| access(path).is_none()).collect();
        assert!(
            missing.is_empty(),
            "add to SERVICES in crates/auth/src/methods.rs what these require: {missing:?}"
        );
    }

    #[test]
    fn the_resource_is_where_the_list_says() {
        let protos = protos();
        let names = [
            "name",
            "parent",
            "table_name",
            "authorized_view_name",
            "materialized_view_name",
            "table",
            "backup",
            "source_table",
            "source_backup",
            "resource",
            "instance_name",
        ];
        for (path, request) in &protos.methods {
            let Some(Access::Needs(all)) = access(path) else { continue };
            for requirement in all {
                let (field, is_fid) = match requirement.place {
                    Place::Fixed(_) => continue,
                    Place::Name(field) | Place::Operation(field) => (field, false),
                    Place::Fid(field) => (field, true),
                };
                let mut message = request.clone();
                for (depth, number) in field.iter().enumerate() {
                    let fields = protos.fields.get(&message);
                    let (name, kind) = fields
                        .and_then(|fields| fields.get(number))
                        .unwrap_or_else(|| panic!("{path}: no field {number} in {message}"));
                    if depth + 1 < field.len() {
                        let package = message.rsplit_once('.').unwrap().0;
                        message = format!("{package}.{kind}");
                        continue;
                    }
                    match is_fid {
                        true => assert!(name == "fid" || name == "fids", "{path}: {name}"),
                        false => {
                            assert!(
                                names.contains(&&**name) && kind == "string",
                                "{path}: {kind} {name}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn only_health_and_the_way_in_are_public() {
        let public: BTreeSet<_> = all()
            .map(|(service, name)| format!("/{service}/{name}"))
            .filter(|path| access(path) == Some(Access::Public))
            .collect();
        let expected = [
            "/etcdserverpb.Auth/AuthStatus",
            "/etcdserverpb.Auth/Authenticate",
            "/grpc.health.v1.Health/Check",
            "/grpc.health.v1.Health/List",
            "/grpc.health.v1.Health/Watch",
        ];
        assert_eq!(public.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn administration_is_audited_and_data_is_not() {
        let audited = |path: &str| access(path).unwrap().is_audited();
        for path in [
            "/google.bigtable.admin.v2.BigtableTableAdmin/DeleteTable",
            "/google.bigtable.admin.v2.BigtableTableAdmin/SetIamPolicy",
            "/stele.tables.v1.TabletAdmin/SplitTablet",
            "/etcdserverpb.Auth/UserAdd",
            "/stele.catalogue.v1.Catalogues/Create",
        ] {
            assert!(audited(path), "{path}");
        }
        for path in [
            "/google.bigtable.v2.Bigtable/ReadRows",
            "/google.bigtable.v2.Bigtable/MutateRow",
            "/etcdserverpb.KV/Put",
            "/grpc.health.v1.Health/Check",
            "/stele.mounttable.v1.Mounttable/Resolve",
        ] {
            assert!(!audited(path), "{path}");
        }
    }

    #[test]
    fn the_permission_for_a_policy_is_that_of_the_kind_of_resource() {
        let of = |name: &str| PolicyAccess::Set.permission(name);
        let instance = "projects/p/instances/i";
        assert_eq!(of(instance), InstancesSetIamPolicy);
        assert_eq!(of(&format!("{instance}/tables/t")), TablesSetIamPolicy);
        assert_eq!(of(&format!("{instance}/tables/t/authorizedViews/v")), ViewsSetIamPolicy);
        assert_eq!(of(&format!("{instance}/clusters/c/backups/b")), BackupsSetIamPolicy);
    }
}
