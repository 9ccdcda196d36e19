//! Changes of clusters.

use super::service::Context;
use crate::admin::backups::backups_in;
use crate::admin::operations::{any, finished, timestamp};
use crate::error::{Error, Result};
use crate::instance::{check_cluster, mask_paths, updated_cluster};
use crate::name::{ClusterName, InstanceName, excerpt};
use crate::proto::admin::app_profile::RoutingPolicy;
use crate::proto::admin::{
    AppProfile, Cluster, CreateClusterMetadata, CreateClusterRequest, DeleteClusterRequest,
    PartialUpdateClusterMetadata, PartialUpdateClusterRequest, UpdateClusterMetadata,
};
use crate::proto::longrunning::Operation;
use crate::records::Change;

pub fn create(context: &Context, request: CreateClusterRequest) -> Result<Operation> {
    let Context { tables, now_micros } = context;
    let CreateClusterRequest { parent, cluster_id, cluster } = request.clone();
    let instance = InstanceName::parse(&parent)?;
    let created = check_cluster(&parent, &cluster_id, cluster.unwrap_or_default())?;
    let records = tables.records();
    records.change(|| {
        let mut changes = tables.instances().made_explicit(instance)?;
        for other in tables.instances().clusters(instance)? {
            if other.name == created.name {
                return Err(Error::Exists(format!("Cluster already exists: {}", other.name)));
            }
            if other.location == created.location {
                let location = excerpt(&created.location);
                let what = format!("cluster {} is in {location} already", other.name);
                return Err(Error::Invalid(format!("Error in field 'cluster.location' : {what}")));
            }
        }
        let metadata = CreateClusterMetadata {
            original_request: Some(request),
            request_time: Some(timestamp(*now_micros)),
            finish_time: Some(timestamp(*now_micros)),
        };
        let metadata = any("CreateClusterMetadata", &metadata);
        let response = any("Cluster", &created);
        let (recorded, operation) =
            finished(records, *now_micros, &created.name, metadata, response);
        changes.push(Change::put(created.name.clone(), &created));
        changes.extend(recorded);
        Ok((changes, operation))
    })
}

/// Replaces the number of nodes, and autoscaling with it.
pub fn update(context: &Context, given: Cluster) -> Result<Operation> {
    let now = Some(timestamp(context.now_micros));
    let metadata = UpdateClusterMetadata {
        original_request: Some(given.clone()),
        request_time: now,
        finish_time: now,
    };
    let paths = ["serve_nodes".to_string()];
    replace(context, &given, &paths, any("UpdateClusterMetadata", &metadata))
}

pub fn partial_update(
    context: &Context,
    request: PartialUpdateClusterRequest,
) -> Result<Operation> {
    let now = Some(timestamp(context.now_micros));
    let metadata = PartialUpdateClusterMetadata {
        request_time: now,
        finish_time: now,
        original_request: Some(request.clone()),
    };
    let PartialUpdateClusterRequest { cluster, update_mask } = request;
    let given = cluster.unwrap_or_default();
    ClusterName::parse(&given.name)?;
    let paths = mask_paths(update_mask)?;
    replace(context, &given, &paths, any("PartialUpdateClusterMetadata", &metadata))
}

fn replace(
    context: &Context,
    given: &Cluster,
    paths: &[String],
    metadata: prost_types::Any,
) -> Result<Operation> {
    let Context { tables, now_micros } = context;
    let name = ClusterName::parse(&given.name)?;
    let records = tables.records();
    records.change(|| {
        let old = tables.instances().cluster(name)?;
        let mut changes = tables.instances().made_explicit(name.instance)?;
        let updated = updated_cluster(old, given, paths)?;
        let response = any("Cluster", &updated);
        let (recorded, operation) =
            finished(records, *now_micros, &updated.name, metadata, response);
        changes.push(Change::put(updated.name.clone(), &updated));
        changes.extend(recorded);
        Ok((changes, operation))
    })
}

/// Deletes a cluster: not the last one, none with backups, and none that an app profile
/// names.
pub fn delete(context: &Context, request: DeleteClusterRequest) -> Result<()> {
    let tables = &context.tables;
    let name = ClusterName::parse(&request.name)?;
    tables.records().change(|| {
        tables.instances().cluster(name)?;
        let refused = |what: String| {
            Err(Error::Precondition(format!("Cluster {name} cannot be deleted: {what}")))
        };
        if tables.instances().cluster_ids(name.instance)?.len() == 1 {
            return refused("it is the last one of its instance".into());
        }
        if let Some(backup) = backups_in(tables, name.instance, Some(name.cluster))?.first() {
            return refused(format!("it has backups, such as {}: delete them first", backup.name));
        }
        let routes_here = |profile: &AppProfile| match &profile.routing_policy {
            Some(RoutingPolicy::SingleClusterRouting(single)) => single.cluster_id == name.cluster,
            Some(RoutingPolicy::MultiClusterRoutingUseAny(any)) => {
                any.cluster_ids.iter().any(|id| id == name.cluster)
            }
            None => false,
        };
        let profiles = tables.instances().app_profiles(name.instance)?;
        if let Some(profile) = profiles.iter().find(|profile| routes_here(profile)) {
            return refused(format!("app profile {} names it", profile.name));
        }
        Ok((vec![Change::delete(name.to_string())], ()))
    })
}
