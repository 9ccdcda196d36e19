//! Roles: named sets of permissions.

use std::fmt;
use std::sync::LazyLock;

use crate::permission::Permission::{self, *};
use crate::permission::PermissionSet;

/// A role that can be bound to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Role {
    BigtableViewer,
    BigtableReader,
    BigtableUser,
    BigtableAdmin,
    CatalogueReader,
    CatalogueUser,
    CatalogueAdmin,
    MetastoreReader,
    MetastoreUser,
    MetastoreAdmin,
    NamesUser,
    NamesAdmin,
    TracesReader,
    TracesIngester,
    TracesTriager,
    TracesAdmin,
    SteleMonitor,
    SteleOperator,
    SteleAdmin,
}

const VIEWER: &[Permission] = &[
    InstancesGet,
    InstancesList,
    ClustersGet,
    ClustersList,
    AppProfilesGet,
    AppProfilesList,
    TablesGet,
    TablesList,
    BackupsGet,
    BackupsList,
    ViewsGet,
    ViewsList,
    LogicalViewsGet,
    LogicalViewsList,
    MaterializedViewsGet,
    MaterializedViewsList,
    SchemaBundlesGet,
    SchemaBundlesList,
];
const READ: &[Permission] = &[
    TablesReadRows,
    TablesSampleRowKeys,
    TablesGenerateConsistencyToken,
    TablesCheckConsistency,
    ViewsReadRows,
    ViewsSampleRowKeys,
    MaterializedViewsReadRows,
    MaterializedViewsSampleRowKeys,
    InstancesPing,
    InstancesExecuteQuery,
];
const WRITE: &[Permission] = &[TablesMutateRows, ViewsMutateRows];

/// The permissions of every role, by its number.
static PERMISSIONS: LazyLock<Vec<PermissionSet>> =
    LazyLock::new(|| Role::ALL.iter().map(|role| role.collect()).collect());

impl Role {
    pub const ALL: &[Role] = &[
        Role::BigtableViewer,
        Role::BigtableReader,
        Role::BigtableUser,
        Role::BigtableAdmin,
        Role::CatalogueReader,
        Role::CatalogueUser,
        Role::CatalogueAdmin,
        Role::MetastoreReader,
        Role::MetastoreUser,
        Role::MetastoreAdmin,
        Role::NamesUser,
        Role::NamesAdmin,
        Role::TracesReader,
        Role::TracesIngester,
        Role::TracesTriager,
        Role::TracesAdmin,
        Role::SteleMonitor,
        Role::SteleOperator,
        Role::SteleAdmin,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Role::BigtableViewer => "bigtable.viewer",
            Role::BigtableReader => "bigtable.reader",
            Role::BigtableUser => "bigtable.user",
            Role::BigtableAdmin => "bigtable.admin",
            Role::CatalogueReader => "catalogue.reader",
            Role::CatalogueUser => "catalogue.user",
            Role::CatalogueAdmin => "catalogue.admin",
            Role::MetastoreReader => "metastore.reader",
            Role::MetastoreUser => "metastore.user",
            Role::MetastoreAdmin => "metastore.admin",
            Role::NamesUser => "names.user",
            Role::NamesAdmin => "names.admin",
            Role::TracesReader => "traces.reader",
            Role::TracesIngester => "traces.ingester",
            Role::TracesTriager => "traces.triager",
            Role::TracesAdmin => "traces.admin",
            Role::SteleMonitor => "stele.monitor",
            Role::SteleOperator => "stele.operator",
            Role::SteleAdmin => "stele.admin",
        }
    }

    /// Returns the role with this name, which may have the prefix `roles/` of IAM.
    pub fn parse(name: &str) -> Option<Role> {
        let name = name.strip_prefix("roles/").unwrap_or(name);
        Role::ALL.iter().copied().find(|role| role.name() == name)
    }

    pub fn permissions(self) -> PermissionSet {
        PERMISSIONS[self as usize]
    }

    /// Returns whether the role may be bound to everybody: it must not allow changes.
    pub fn is_readonly(self) -> bool {
        let readonly = [
            Role::BigtableViewer,
            Role::BigtableReader,
            Role::CatalogueReader,
            Role::MetastoreReader,
            Role::NamesUser,
            Role::TracesReader,
        ];
        readonly.contains(&self)
    }

    fn collect(self) -> PermissionSet {
        let of = PermissionSet::of;
        match self {
            Role::BigtableViewer => of(VIEWER),
            Role::BigtableReader => of(VIEWER).and(of(READ)),
            Role::BigtableUser => of(VIEWER).and(of(READ)).and(of(WRITE)),
            Role::BigtableAdmin => PermissionSet::named("bigtable."),
            Role::CatalogueReader => of(&[CatalogueRead]),
            Role::CatalogueUser => of(&[CatalogueRead, CatalogueWrite]),
            Role::CatalogueAdmin => PermissionSet::named("catalogue."),
            Role::MetastoreReader => of(&[MetastoreRead]),
            Role::MetastoreUser => of(&[MetastoreRead, MetastoreWrite]),
            Role::MetastoreAdmin => PermissionSet::named("metastore."),
            Role::NamesUser => of(&[NamesCall]),
            Role::NamesAdmin => PermissionSet::named("names."),
            Role::TracesReader => of(&[TracesRead]),
            Role::TracesIngester => of(&[TracesRead, TracesIngest]),
            Role::TracesTriager => of(&[TracesRead, TracesLabel]),
            Role::TracesAdmin => PermissionSet::named("traces."),
            Role::SteleMonitor => of(&[SteleMonitor]),
            Role::SteleOperator => of(&[SteleMonitor, SteleOperate]),
            Role::SteleAdmin => PermissionSet::named(""),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_found_by_its_name_and_includes_the_smaller_ones() {
        for (at, role) in Role::ALL.iter().enumerate() {
            assert_eq!(*role as usize, at);
            assert_eq!(Role::parse(role.name()), Some(*role));
            assert_eq!(Role::parse(&format!("roles/{role}")), Some(*role));
        }
        let larger = [
            (Role::BigtableViewer, Role::BigtableReader),
            (Role::BigtableReader, Role::BigtableUser),
            (Role::BigtableUser, Role::BigtableAdmin),
            (Role::CatalogueUser, Role::CatalogueAdmin),
            (Role::SteleMonitor, Role::SteleOperator),
        ];
        for (small, large) in larger {
            assert!(small.permissions().iter().all(|one| large.permissions().contains(one)));
            assert_ne!(small.permissions(), large.permissions());
        }
        assert!(Permission::ALL.iter().all(|one| Role::SteleAdmin.permissions().contains(*one)));
    }

    #[test]
    fn viewers_and_operators_see_no_rows_and_change_no_policy() {
        for role in [Role::BigtableViewer, Role::SteleMonitor, Role::SteleOperator] {
            for permission in [TablesReadRows, ViewsReadRows, TablesSetIamPolicy, SteleConfigure] {
                assert!(!role.permissions().contains(permission), "{role} {permission}");
            }
        }
    }

    #[test]
    fn roles_for_everybody_change_nothing() {
        for role in Role::ALL.iter().filter(|role| role.is_readonly()) {
            let changes = ["create", "update", "delete", "mutateRows", "setIamPolicy", "write"];
            let changing = |one: &Permission| changes.iter().any(|end| one.name().ends_with(end));
            assert_eq!(role.permissions().iter().find(changing), None, "{role}");
        }
    }
}
