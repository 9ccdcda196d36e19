//! Updates of instances, clusters and app profiles: the fields that a mask names are
//! replaced, and the result is validated as a whole.

use prost_types::FieldMask;

use super::fields::{check_capacity, check_instance, check_profile};
use crate::error::{Error, Result};
use crate::name::excerpt;
use crate::proto::admin::app_profile::RoutingPolicy;
use crate::proto::admin::cluster::{ClusterAutoscalingConfig, Config};
use crate::proto::admin::{
    AppProfile, AutoscalingLimits, AutoscalingTargets, Cluster, Instance, instance,
};

/// Returns the paths of a mask, which must name something.
pub fn mask_paths(mask: Option<FieldMask>) -> Result<Vec<String>> {
    let paths = mask.unwrap_or_default().paths;
    if paths.is_empty() {
        return Err(Error::invalid("A non-empty 'update_mask' must be specified"));
    }
    Ok(paths)
}

fn unknown_path(path: &str, use_these: &str) -> Error {
    let path = excerpt(path);
    let what = format!("'{path}' cannot be updated: use {use_these}");
    Error::Invalid(format!("Error in field 'update_mask' : {what}"))
}

/// Returns an instance after an update.
pub fn updated_instance(old: Instance, given: &Instance, paths: &[String]) -> Result<Instance> {
    let (was, name) = (old.r#type(), old.name.clone());
    let mut next = old;
    for path in paths {
        match path.as_str() {
            "display_name" => next.display_name.clone_from(&given.display_name),
            "labels" => next.labels.clone_from(&given.labels),
            "type" => next.r#type = given.r#type,
            "edition" => next.edition = given.edition,
            other => return Err(unknown_path(other, "display_name, labels, type, edition")),
        }
    }
    let next = check_instance(None, next)?;
    if was == instance::Type::Production && next.r#type() == instance::Type::Development {
        let what = "an instance of type PRODUCTION cannot become one of type DEVELOPMENT";
        return Err(Error::Precondition(format!("{name}: {what}")));
    }
    Ok(next)
}

const AUTOSCALING: &str = "cluster_config.cluster_autoscaling_config";

/// Returns a cluster after an update.
pub fn updated_cluster(old: Cluster, given: &Cluster, paths: &[String]) -> Result<Cluster> {
    let mut next = old;
    let mut set = AutoscalingFields::of(&next);
    let wanted = AutoscalingFields::of(given);
    for path in paths {
        match path.as_str() {
            "serve_nodes" => next.serve_nodes = given.serve_nodes,
            "cluster_config" | AUTOSCALING => set = wanted,
            other => {
                let known = other.strip_prefix(AUTOSCALING).is_some_and(|field| {
                    set.assign(field.strip_prefix('.').unwrap_or_default(), wanted)
                });
                if !known {
                    let fields = format!("serve_nodes, cluster_config, {AUTOSCALING}");
                    return Err(unknown_path(other, &fields));
                }
            }
        }
    }
    let names = |field: &str| paths.iter().any(|path| path.starts_with(field));
    if set.config().is_some()
        && given.serve_nodes != 0
        && names("serve_nodes")
        && names("cluster_config")
    {
        return Err(Error::invalid(
            "Error in field 'update_mask' : serve_nodes and cluster_config exclude each other",
        ));
    }
    if names("serve_nodes") && !names("cluster_config") && given.serve_nodes != 0 {
        // A number of nodes replaces autoscaling.
        set = AutoscalingFields::default();
    }
    next.config = set.config();
    check_capacity(next)
}

/// The fields of autoscaling, each of which a mask may name.
#[derive(Clone, Copy, Default)]
struct AutoscalingFields {
    limits: Option<AutoscalingLimits>,
    targets: Option<AutoscalingTargets>,
}

impl AutoscalingFields {
    fn of(cluster: &Cluster) -> AutoscalingFields {
        let Some(Config::ClusterConfig(config)) = &cluster.config else {
            return AutoscalingFields::default();
        };
        let autoscaling = config.cluster_autoscaling_config.unwrap_or_default();
        AutoscalingFields {
            limits: autoscaling.autoscaling_limits,
            targets: autoscaling.autoscaling_targets,
        }
    }

    /// Takes one field from `given`. Returns whether the field is known.
    fn assign(&mut self, field: &str, given: AutoscalingFields) -> bool {
        let limits = given.limits.unwrap_or_default();
        let targets = given.targets.unwrap_or_default();
        let own_limits = self.limits.get_or_insert_default();
        let own_targets = self.targets.get_or_insert_default();
        match field {
            "autoscaling_limits" => *own_limits = limits,
            "autoscaling_limits.min_serve_nodes" => {
                own_limits.min_serve_nodes = limits.min_serve_nodes;
            }
            "autoscaling_limits.max_serve_nodes" => {
                own_limits.max_serve_nodes = limits.max_serve_nodes;
            }
            "autoscaling_targets" => *own_targets = targets,
            "autoscaling_targets.cpu_utilization_percent" => {
                own_targets.cpu_utilization_percent = targets.cpu_utilization_percent;
            }
            "autoscaling_targets.storage_utilization_gib_per_node" => {
                own_targets.storage_utilization_gib_per_node =
                    targets.storage_utilization_gib_per_node;
            }
            _ => return false,
        }
        true
    }

    fn config(self) -> Option<Config> {
        if self.limits.is_none() && self.targets.is_none() {
            return None;
        }
        let autoscaling = ClusterAutoscalingConfig {
            autoscaling_limits: self.limits,
            autoscaling_targets: self.targets,
        };
        let config = crate::proto::admin::cluster::ClusterConfig {
            cluster_autoscaling_config: Some(autoscaling),
        };
        Some(Config::ClusterConfig(config))
    }
}

/// Returns an app profile after an update. Unless warnings are ignored, single-row
/// transactions that were allowed stay allowed.
pub fn updated_profile(
    clusters: &[String],
    old: AppProfile,
    given: &AppProfile,
    paths: &[String],
    ignore_warnings: bool,
) -> Result<AppProfile> {
    let transactional = |profile: &AppProfile| match &profile.routing_policy {
        Some(RoutingPolicy::SingleClusterRouting(single)) => single.allow_transactional_writes,
        _ => false,
    };
    let (name, was_transactional) = (old.name.clone(), transactional(&old));
    let mut next = old;
    for path in paths {
        match path.split('.').next().unwrap_or_default() {
            "description" => next.description.clone_from(&given.description),
            "multi_cluster_routing_use_any" | "single_cluster_routing" => {
                next.routing_policy.clone_from(&given.routing_policy);
            }
            "standard_isolation" | "priority" | "data_boost_isolation_read_only" => {
                next.isolation.clone_from(&given.isolation);
            }
            // It protects the update whether or not it is named.
            "etag" => {}
            _ => {
                let fields = "description, multi_cluster_routing_use_any, \
                     single_cluster_routing, standard_isolation, data_boost_isolation_read_only";
                return Err(unknown_path(path, fields));
            }
        }
    }
    let next = check_profile(clusters, next)?;
    if was_transactional && !transactional(&next) && !ignore_warnings {
        return Err(Error::Precondition(format!(
            "{name}: clients that use single-row transactions will fail: set ignore_warnings \
             to update it nevertheless"
        )));
    }
    Ok(next)
}
