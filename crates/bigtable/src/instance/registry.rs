//! Finds instances, clusters and app profiles: those that were created, and those that
//! names imply.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message;
use xxhash_rust::xxh3::xxh3_64;

use super::implied::{
    DEFAULT_APP_PROFILE, default_profile, implied_cluster, implied_cluster_id, implied_instance,
};
use crate::error::{Error, Result};
use crate::name::{AppProfileName, ClusterName, InstanceName, Instances as Requested, TableName};
use crate::proto::admin::app_profile::{Isolation, RoutingPolicy};
use crate::proto::admin::{AppProfile, Cluster, Instance};
use crate::records::{Change, Records};
use crate::reserved;
use crate::table::Tables;

/// What a data request does, as far as app profiles care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    /// A conditional write, which needs a single cluster.
    Transaction,
}

/// The instances of a server.
#[derive(Clone, Copy)]
pub struct Instances<'t>(&'t Tables);

impl<'t> Instances<'t> {
    pub(crate) fn new(tables: &'t Tables) -> Instances<'t> {
        Instances(tables)
    }

    fn records(&self) -> &'t Records {
        self.0.records()
    }

    /// Returns an instance, created or implied.
    pub fn find(&self, name: InstanceName<'_>) -> Result<Instance> {
        match self.records().get(&name.to_string())? {
            Some(created) => Ok(created),
            None => self.check_implied(name).map(|()| implied_instance(name)),
        }
    }

    /// Fails with NOT_FOUND unless the instance exists.
    pub fn check(&self, name: InstanceName<'_>) -> Result<()> {
        if self.records().contains(&name.to_string()) { Ok(()) } else { self.check_implied(name) }
    }

    /// Whether the instance was created, rather than implied by its name.
    pub fn is_created(&self, name: InstanceName<'_>) -> bool {
        self.records().contains(&name.to_string())
    }

    /// Fails unless the name of an instance that was not created implies it: always if it
    /// has tables or belongs to the server, and otherwise if the server is not strict and it
    /// was never deleted.
    fn check_implied(&self, name: InstanceName<'_>) -> Result<()> {
        let is_implied = self.has_tables(name)
            || name.project == reserved::PROJECT
            || !self.0.is_strict() && !self.records().contains(&deleted_name(name));
        if is_implied { Ok(()) } else { Err(instance_not_found(name)) }
    }

    fn has_tables(&self, name: InstanceName<'_>) -> bool {
        let prefix = format!("{name}/tables/");
        self.0.any_table(|table| table.starts_with(&prefix))
    }

    /// Returns the instances that a list covers, by name: those that were created or have
    /// tables.
    pub fn list(&self, requested: Requested<'_>) -> Result<Vec<Instance>> {
        let project = match requested {
            Requested::One(name) => return Ok(vec![self.find(name)?]),
            Requested::All(project) => project.project,
        };
        let prefix = format!("projects/{project}/instances/");
        let mut found = BTreeMap::new();
        for table in self.0.all() {
            if let Ok(TableName { instance, .. }) = TableName::parse(&table.name)
                && instance.project == project
            {
                found.entry(instance.to_string()).or_insert_with(|| implied_instance(instance));
            }
        }
        let is_instance = |name: &str| !name[prefix.len()..].contains('/');
        found.extend(self.records().list::<Instance>(&prefix, is_instance)?);
        Ok(found.into_values().collect())
    }

    /// Returns the clusters of an instance, by name.
    pub fn clusters(&self, name: InstanceName<'_>) -> Result<Vec<Cluster>> {
        if !self.is_created(name) {
            self.check_implied(name)?;
            return Ok(vec![implied_cluster(name)]);
        }
        let found = self.records().list(&format!("{name}/clusters/"), is_cluster)?;
        Ok(found.into_iter().map(|(_, cluster)| cluster).collect())
    }

    /// Returns the ids of the clusters of an instance, ascending.
    pub fn cluster_ids(&self, name: InstanceName<'_>) -> Result<Vec<String>> {
        let id = |cluster: Cluster| cluster.name.rsplit('/').next().unwrap_or_default().into();
        Ok(self.clusters(name)?.into_iter().map(id).collect())
    }

    /// Returns a cluster, created or implied.
    pub fn cluster(&self, name: ClusterName<'_>) -> Result<Cluster> {
        let not_found = || Error::NotFound(format!("Cluster not found: {name}"));
        if !self.is_created(name.instance) {
            self.check_implied(name.instance)?;
            let is_implied = name.cluster == implied_cluster_id(name.instance);
            return is_implied.then(|| implied_cluster(name.instance)).ok_or_else(not_found);
        }
        self.records().get(&name.to_string())?.ok_or_else(not_found)
    }

    /// Returns the app profiles of an instance, by name.
    pub fn app_profiles(&self, name: InstanceName<'_>) -> Result<Vec<AppProfile>> {
        let default = default_profile(name, &self.cluster_ids(name)?);
        let mut profiles = BTreeMap::from([(default.name.clone(), default)]);
        profiles.extend(self.records().list(&format!("{name}/appProfiles/"), |_| true)?);
        Ok(profiles.into_values().map(with_etag).collect())
    }

    /// Returns an app profile, created or implied.
    pub fn app_profile(&self, name: AppProfileName<'_>) -> Result<AppProfile> {
        self.check(name.instance)?;
        let full = format!("{}/appProfiles/{}", name.instance, name.app_profile);
        let found = match self.records().get(&full)? {
            None if name.app_profile == DEFAULT_APP_PROFILE => {
                Some(default_profile(name.instance, &self.cluster_ids(name.instance)?))
            }
            found => found,
        };
        let not_found = || Error::NotFound(format!("App profile not found: {full}"));
        Ok(with_etag(found.ok_or_else(not_found)?))
    }

    /// Returns the changes that make records of an implied instance and its cluster; none
    /// if it was created.
    pub fn made_explicit(&self, name: InstanceName<'_>) -> Result<Vec<Change>> {
        if self.is_created(name) {
            return Ok(Vec::new());
        }
        self.check_implied(name)?;
        let cluster = implied_cluster(name);
        let profile = default_profile(name, &[implied_cluster_id(name)]);
        let mut changes = vec![
            Change::put(name.to_string(), &implied_instance(name)),
            Change::put(cluster.name.clone(), &cluster),
        ];
        // It keeps its routing when the instance gets more clusters.
        if !self.records().contains(&profile.name) {
            changes.push(Change::put(profile.name.clone(), &profile));
        }
        Ok(changes)
    }

    /// Checks the instance and the app profile of a data request. Only a strict server
    /// does; its own services are exempt.
    pub fn check_request(&self, resource: &str, profile: &str, access: Access) -> Result<()> {
        if !self.0.is_strict() || reserved::is_reserved(resource) {
            return Ok(());
        }
        // What is malformed is reported by the call itself.
        let Some(instance) = instance_of(resource) else { return Ok(()) };
        self.check(instance)?;
        if profile.is_empty() && access != Access::Transaction {
            return Ok(());
        }
        let app_profile = if profile.is_empty() { DEFAULT_APP_PROFILE } else { profile };
        let found = self.app_profile(AppProfileName { instance, app_profile })?;
        let name = &found.name;
        if access != Access::Read
            && matches!(found.isolation, Some(Isolation::DataBoostIsolationReadOnly(_)))
        {
            let what = format!("App profile {name} is for reading only");
            return Err(Error::Precondition(what));
        }
        let single = |routing: &RoutingPolicy| match routing {
            RoutingPolicy::SingleClusterRouting(single) => single.allow_transactional_writes,
            RoutingPolicy::MultiClusterRoutingUseAny(_) => false,
        };
        if access == Access::Transaction && !found.routing_policy.as_ref().is_some_and(single) {
            return Err(Error::Precondition(format!(
                "Single-row transactions are not allowed by app profile {name}: it needs \
                 single-cluster routing with allow_transactional_writes"
            )));
        }
        Ok(())
    }
}

/// The name of the record which states that an instance was deleted, so that its name no
/// longer implies it.
pub(crate) fn deleted_name(name: InstanceName<'_>) -> String {
    format!("deleted/{name}")
}

pub(crate) fn instance_not_found(name: InstanceName<'_>) -> Error {
    Error::NotFound(format!("Instance not found: {name}"))
}

/// Backups have names below those of clusters.
fn is_cluster(name: &str) -> bool {
    ClusterName::parse(name).is_ok()
}

/// Returns the instance that the name of a resource begins with.
fn instance_of(resource: &str) -> Option<InstanceName<'_>> {
    let slashes = resource.match_indices('/').map(|(at, _)| at);
    let end = slashes.chain([resource.len()]).nth(3)?;
    InstanceName::parse(&resource[..end]).ok()
}

/// Returns the etag of a resource: it changes whenever the resource does.
pub fn etag(message: &impl Message) -> String {
    URL_SAFE_NO_PAD.encode(xxh3_64(&message.encode_to_vec()).to_be_bytes())
}

/// Returns an app profile as it is shown, with the etag of its state.
pub(crate) fn with_etag(profile: AppProfile) -> AppProfile {
    let profile = AppProfile { etag: String::new(), ..profile };
    AppProfile { etag: etag(&profile), ..profile }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instance_of_a_resource_is_the_beginning_of_its_name() {
        let name = |resource| instance_of(resource).map(|name| name.to_string());
        let instance = Some("projects/p/instances/i".to_string());
        assert_eq!(name("projects/p/instances/i"), instance);
        assert_eq!(name("projects/p/instances/i/tables/t"), instance);
        assert_eq!(name("projects/p/instances/i/clusters/c/backups/b"), instance);
        for other in ["", "projects/p", "projects/p/instances/", "projects//instances/i", "a/b/c/d"]
        {
            assert_eq!(name(other), None, "{other}");
        }
    }
}
