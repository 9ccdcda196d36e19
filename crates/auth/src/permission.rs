//! Permissions, with Google's names where Google has one.

use std::fmt;

macro_rules! permissions {
    ($($variant:ident $name:literal,)*) => {
        /// One thing that a caller may be allowed to do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Permission { $($variant,)* }

        impl Permission {
            pub const ALL: &[Permission] = &[$(Permission::$variant,)*];

            /// Returns the name, as in `bigtable.tables.readRows`.
            pub fn name(self) -> &'static str {
                match self { $(Permission::$variant => $name,)* }
            }

            /// Returns the permission with this name.
            pub fn parse(name: &str) -> Option<Permission> {
                match name { $($name => Some(Permission::$variant),)* _ => None }
            }
        }
    };
}

permissions! {
    InstancesGet "bigtable.instances.get",
    InstancesList "bigtable.instances.list",
    InstancesCreate "bigtable.instances.create",
    InstancesUpdate "bigtable.instances.update",
    InstancesDelete "bigtable.instances.delete",
    InstancesPing "bigtable.instances.ping",
    InstancesExecuteQuery "bigtable.instances.executeQuery",
    InstancesGetIamPolicy "bigtable.instances.getIamPolicy",
    InstancesSetIamPolicy "bigtable.instances.setIamPolicy",
    ClustersGet "bigtable.clusters.get",
    ClustersList "bigtable.clusters.list",
    ClustersCreate "bigtable.clusters.create",
    ClustersUpdate "bigtable.clusters.update",
    ClustersDelete "bigtable.clusters.delete",
    AppProfilesGet "bigtable.appProfiles.get",
    AppProfilesList "bigtable.appProfiles.list",
    AppProfilesCreate "bigtable.appProfiles.create",
    AppProfilesUpdate "bigtable.appProfiles.update",
    AppProfilesDelete "bigtable.appProfiles.delete",
    TablesGet "bigtable.tables.get",
    TablesList "bigtable.tables.list",
    TablesCreate "bigtable.tables.create",
    TablesUpdate "bigtable.tables.update",
    TablesDelete "bigtable.tables.delete",
    TablesUndelete "bigtable.tables.undelete",
    TablesReadRows "bigtable.tables.readRows",
    TablesSampleRowKeys "bigtable.tables.sampleRowKeys",
    TablesMutateRows "bigtable.tables.mutateRows",
    TablesGenerateConsistencyToken "bigtable.tables.generateConsistencyToken",
    TablesCheckConsistency "bigtable.tables.checkConsistency",
    TablesGetIamPolicy "bigtable.tables.getIamPolicy",
    TablesSetIamPolicy "bigtable.tables.setIamPolicy",
    BackupsGet "bigtable.backups.get",
    BackupsList "bigtable.backups.list",
    BackupsCreate "bigtable.backups.create",
    BackupsUpdate "bigtable.backups.update",
    BackupsDelete "bigtable.backups.delete",
    BackupsRead "bigtable.backups.read",
    BackupsRestore "bigtable.backups.restore",
    BackupsGetIamPolicy "bigtable.backups.getIamPolicy",
    BackupsSetIamPolicy "bigtable.backups.setIamPolicy",
    ViewsGet "bigtable.authorizedViews.get",
    ViewsList "bigtable.authorizedViews.list",
    ViewsCreate "bigtable.authorizedViews.create",
    ViewsUpdate "bigtable.authorizedViews.update",
    ViewsDelete "bigtable.authorizedViews.delete",
    ViewsReadRows "bigtable.authorizedViews.readRows",
    ViewsSampleRowKeys "bigtable.authorizedViews.sampleRowKeys",
    ViewsMutateRows "bigtable.authorizedViews.mutateRows",
    ViewsGetIamPolicy "bigtable.authorizedViews.getIamPolicy",
    ViewsSetIamPolicy "bigtable.authorizedViews.setIamPolicy",
    LogicalViewsGet "bigtable.logicalViews.get",
    LogicalViewsList "bigtable.logicalViews.list",
    LogicalViewsCreate "bigtable.logicalViews.create",
    LogicalViewsUpdate "bigtable.logicalViews.update",
    LogicalViewsDelete "bigtable.logicalViews.delete",
    LogicalViewsGetIamPolicy "bigtable.logicalViews.getIamPolicy",
    LogicalViewsSetIamPolicy "bigtable.logicalViews.setIamPolicy",
    MaterializedViewsGet "bigtable.materializedViews.get",
    MaterializedViewsList "bigtable.materializedViews.list",
    MaterializedViewsCreate "bigtable.materializedViews.create",
    MaterializedViewsUpdate "bigtable.materializedViews.update",
    MaterializedViewsDelete "bigtable.materializedViews.delete",
    MaterializedViewsReadRows "bigtable.materializedViews.readRows",
    MaterializedViewsSampleRowKeys "bigtable.materializedViews.sampleRowKeys",
    MaterializedViewsGetIamPolicy "bigtable.materializedViews.getIamPolicy",
    MaterializedViewsSetIamPolicy "bigtable.materializedViews.setIamPolicy",
    SchemaBundlesGet "bigtable.schemaBundles.get",
    SchemaBundlesList "bigtable.schemaBundles.list",
    SchemaBundlesCreate "bigtable.schemaBundles.create",
    SchemaBundlesUpdate "bigtable.schemaBundles.update",
    SchemaBundlesDelete "bigtable.schemaBundles.delete",
    HotTabletsList "bigtable.hotTablets.list",
    CatalogueRead "catalogue.read",
    CatalogueWrite "catalogue.write",
    CatalogueAdmin "catalogue.admin",
    MetastoreRead "metastore.read",
    MetastoreWrite "metastore.write",
    MetastoreAdmin "metastore.admin",
    NamesCall "names.call",
    NamesAdmin "names.admin",
    TracesRead "traces.read",
    TracesIngest "traces.ingest",
    TracesLabel "traces.label",
    TracesAdmin "traces.admin",
    SteleMonitor "stele.monitor",
    SteleOperate "stele.operate",
    StelePolicyGet "stele.policy.get",
    SteleConfigure "stele.configure",
}

impl Permission {
    /// Returns whether every use is recorded in the audit log: changes of what exists, of
    /// who may do what, and of how the server runs; not the reading and writing of data.
    pub fn is_audited(self) -> bool {
        const CHANGES: [&str; 9] = [
            ".create",
            ".update",
            ".delete",
            ".undelete",
            ".restore",
            ".setIamPolicy",
            ".admin",
            ".operate",
            ".configure",
        ];
        CHANGES.iter().any(|end| self.name().ends_with(end))
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A set of permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermissionSet(u128);

// Each permission is a bit of the set.
const _: () = assert!(Permission::ALL.len() <= u128::BITS as usize);

impl PermissionSet {
    pub const EMPTY: PermissionSet = PermissionSet(0);

    pub const fn of(permissions: &[Permission]) -> PermissionSet {
        let (mut bits, mut at) = (0, 0);
        while at < permissions.len() {
            bits |= 1 << permissions[at] as u8;
            at += 1;
        }
        PermissionSet(bits)
    }

    /// Returns all permissions whose name starts with `prefix`.
    pub fn named(prefix: &str) -> PermissionSet {
        let named = Permission::ALL.iter().filter(|one| one.name().starts_with(prefix));
        named.fold(PermissionSet::EMPTY, |set, one| set.and(PermissionSet::of(&[*one])))
    }

    /// Returns the permissions of both sets.
    pub const fn and(self, other: PermissionSet) -> PermissionSet {
        PermissionSet(self.0 | other.0)
    }

    pub const fn contains(self, permission: Permission) -> bool {
        self.0 >> permission as u8 & 1 == 1
    }

    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.iter().copied().filter(move |one| self.contains(*one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_is_found_by_its_name() {
        for permission in Permission::ALL {
            assert_eq!(Permission::parse(permission.name()), Some(*permission));
        }
        assert_eq!(Permission::parse("bigtable.tables.readrows"), None);
    }

    #[test]
    fn changes_are_audited_and_data_is_not() {
        let audited = |name| Permission::parse(name).unwrap().is_audited();
        for name in ["bigtable.tables.delete", "stele.configure", "metastore.admin"] {
            assert!(audited(name), "{name}");
        }
        for name in ["bigtable.tables.readRows", "bigtable.tables.mutateRows", "names.call"] {
            assert!(!audited(name), "{name}");
        }
    }

    #[test]
    fn a_set_holds_what_was_put_into_it() {
        let set = PermissionSet::of(&[Permission::TablesGet, Permission::SteleConfigure]);
        for permission in Permission::ALL {
            let expected = matches!(permission, Permission::TablesGet | Permission::SteleConfigure);
            assert_eq!(set.contains(*permission), expected, "{permission}");
        }
        let traces: Vec<_> = PermissionSet::named("traces.").iter().map(Permission::name).collect();
        assert_eq!(traces, ["traces.read", "traces.ingest", "traces.label", "traces.admin"]);
    }
}
