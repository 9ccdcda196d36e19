//! Validation of the instances, clusters and app profiles that clients declare.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::name::excerpt;
use crate::proto::admin::app_profile::data_boost_isolation_read_only::ComputeBillingOwner;
use crate::proto::admin::app_profile::{Isolation, Priority, RoutingPolicy};
use crate::proto::admin::cluster::{Config, NodeScalingFactor};
use crate::proto::admin::{AppProfile, AutoscalingTargets, Cluster, Instance, StorageType};
use crate::proto::admin::{cluster, instance};

/// The maximum number of labels of an instance.
const LABELS_MAX: usize = 64;
const LABEL_CHARS_MAX: usize = 63;
const CLUSTERS_MAX: usize = 64;
const DISPLAY_NAME_CHARS: std::ops::RangeInclusive<usize> = 4..=30;
const NODES_MAX: i32 = 100_000;
const CPU_PERCENT: std::ops::RangeInclusive<i32> = 10..=80;
const SSD_GIB_PER_NODE: std::ops::RangeInclusive<i32> = 2560..=5120;
const HDD_GIB_PER_NODE: std::ops::RangeInclusive<i32> = 8192..=16384;
const DESCRIPTION_BYTES_MAX: usize = 1024;

fn invalid<T>(field: &str, what: impl std::fmt::Display) -> Result<T> {
    Err(Error::Invalid(format!("Error in field '{field}' : {what}")))
}

/// Validates the id of an instance: `[a-z][a-z0-9-]+[a-z0-9]`, 6 to 33 characters.
pub fn check_instance_id(id: &str) -> Result<()> {
    check_lowercase("instance_id", id, 6, 33)
}

/// Validates the id of a cluster: `[a-z][-a-z0-9]*[a-z0-9]`, 6 to 30 characters.
pub fn check_cluster_id(id: &str) -> Result<()> {
    check_lowercase("cluster_id", id, 6, 30)
}

fn check_lowercase(field: &str, id: &str, min: usize, max: usize) -> Result<()> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase();
    let is_allowed = |byte: u8| is_letter(byte) || byte.is_ascii_digit() || byte == b'-';
    if (min..=max).contains(&id.len())
        && id.bytes().all(is_allowed)
        && id.bytes().next().is_some_and(is_letter)
        && !id.ends_with('-')
    {
        return Ok(());
    }
    let id = excerpt(id);
    let form = "[a-z][a-z0-9-]*[a-z0-9]";
    invalid(field, format!("'{id}' expected in the form '{form}' with {min} to {max} characters"))
}

/// Validates an instance and fills in what is left to the server. `id` is that of a new
/// instance.
pub fn check_instance(id: Option<&str>, mut given: Instance) -> Result<Instance> {
    if let Some(id) = id {
        check_instance_id(id)?;
    }
    let characters = given.display_name.chars().count();
    if !DISPLAY_NAME_CHARS.contains(&characters) {
        return invalid(
            "instance.display_name",
            format!("{characters} characters: use 4 to 30 characters"),
        );
    }
    given.r#type = match instance::Type::try_from(given.r#type) {
        Ok(instance::Type::Unspecified) => instance::Type::Production.into(),
        Ok(known) => known.into(),
        Err(_) => return invalid("instance.type", format!("unknown type {}", given.r#type)),
    };
    given.edition = match instance::Edition::try_from(given.edition) {
        Ok(instance::Edition::Unspecified) => instance::Edition::Enterprise.into(),
        Ok(known) => known.into(),
        Err(_) => return invalid("instance.edition", format!("unknown edition {}", given.edition)),
    };
    check_labels(&given.labels)?;
    if given.tags.len() > LABELS_MAX {
        return invalid(
            "instance.tags",
            format!("{} tags: use at most {LABELS_MAX}", given.tags.len()),
        );
    }
    Ok(Instance {
        state: instance::State::Ready.into(),
        satisfies_pzi: None,
        satisfies_pzs: None,
        ..given
    })
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    let field = "instance.labels";
    if labels.len() > LABELS_MAX {
        return invalid(field, format!("{} labels: use at most {LABELS_MAX}", labels.len()));
    }
    let is_letter = |letter: char| letter.is_alphabetic() && !letter.is_uppercase();
    let is_allowed =
        |letter: char| is_letter(letter) || letter.is_numeric() || matches!(letter, '_' | '-');
    for (key, value) in labels {
        let fits =
            |text: &str| text.chars().count() <= LABEL_CHARS_MAX && text.chars().all(is_allowed);
        if !fits(key) || !key.chars().next().is_some_and(is_letter) || !fits(value) {
            let label = format!("{}={}", excerpt(key), excerpt(value));
            return invalid(
                field,
                format!(
                    "invalid label '{label}': use lower-case letters, digits, '_' and '-', up to \
                 {LABEL_CHARS_MAX} characters, and a letter first in the key"
                ),
            );
        }
    }
    Ok(())
}

/// Validates the clusters of a new instance, by id.
pub fn check_clusters(
    instance: &str,
    r#type: instance::Type,
    given: BTreeMap<String, Cluster>,
) -> Result<BTreeMap<String, Cluster>> {
    if given.is_empty() || given.len() > CLUSTERS_MAX {
        return invalid("clusters", format!("{} clusters: use 1 to {CLUSTERS_MAX}", given.len()));
    }
    let development = r#type == instance::Type::Development;
    if development && given.len() > 1 {
        return invalid("clusters", "an instance of type DEVELOPMENT has one cluster");
    }
    let mut locations = BTreeSet::new();
    let mut clusters = BTreeMap::new();
    for (id, mut cluster) in given {
        if development && cluster.serve_nodes == 0 && cluster.config.is_none() {
            cluster.serve_nodes = 1;
        }
        let within = |error: Error| error.within(&format!("Error in field 'clusters' : '{id}'"));
        let cluster = check_cluster(instance, &id, cluster).map_err(within)?;
        if !locations.insert(cluster.location.clone()) {
            let location = excerpt(&cluster.location);
            return invalid("clusters", format!("two clusters have the location {location}"));
        }
        clusters.insert(id, cluster);
    }
    Ok(clusters)
}

/// Validates a cluster of an instance and fills in what is left to the server.
pub fn check_cluster(instance: &str, id: &str, given: Cluster) -> Result<Cluster> {
    check_cluster_id(id)?;
    let name = format!("{instance}/clusters/{id}");
    if !given.name.is_empty() && given.name != name {
        return invalid("cluster.name", "must be empty: parent and cluster_id name the cluster");
    }
    let mut parts = given.location.split('/');
    let (projects, _, locations, zone) = (parts.next(), parts.next(), parts.next(), parts.next());
    if (projects, locations) != (Some("projects"), Some("locations"))
        || zone.is_none_or(str::is_empty)
        || parts.next().is_some()
    {
        let (location, form) = (excerpt(&given.location), "projects/<project>/locations/<zone>");
        return invalid("cluster.location", format!("'{location}' expected in the form '{form}'"));
    }
    let storage = match StorageType::try_from(given.default_storage_type) {
        Ok(StorageType::Unspecified) => StorageType::Ssd,
        Ok(known) => known,
        Err(_) => return invalid("cluster.default_storage_type", "unknown storage type"),
    };
    if given.encryption_config.as_ref().is_some_and(|key| !key.kms_key_name.is_empty()) {
        let what = "'cluster.encryption_config' is not supported: encryption is left to the disk";
        return Err(Error::Unimplemented(what.into()));
    }
    let cluster = Cluster {
        name,
        state: cluster::State::Ready.into(),
        default_storage_type: storage.into(),
        encryption_config: None,
        ..given
    };
    check_capacity(cluster)
}

/// Validates the nodes of a cluster, or its autoscaling.
pub fn check_capacity(mut cluster: Cluster) -> Result<Cluster> {
    let factor = match NodeScalingFactor::try_from(cluster.node_scaling_factor) {
        Ok(NodeScalingFactor::Unspecified) => NodeScalingFactor::NodeScalingFactor1x,
        Ok(known) => known,
        Err(_) => return invalid("cluster.node_scaling_factor", "unknown factor"),
    };
    cluster.node_scaling_factor = factor.into();
    let autoscaling = match &cluster.config {
        Some(Config::ClusterConfig(config)) => config.cluster_autoscaling_config,
        None => None,
    };
    let Some(autoscaling) = autoscaling else {
        cluster.config = None;
        let nodes = cluster.serve_nodes;
        if !(1..=NODES_MAX).contains(&nodes) {
            return invalid(
                "cluster.serve_nodes",
                format!(
                    "{nodes} nodes: use at least 1, or set cluster_config.cluster_autoscaling_config"
                ),
            );
        }
        if factor == NodeScalingFactor::NodeScalingFactor2x && nodes % 2 != 0 {
            return invalid("cluster.serve_nodes", format!("{nodes} nodes: use a multiple of 2"));
        }
        return Ok(cluster);
    };
    let field = "cluster.cluster_config.cluster_autoscaling_config";
    let limits = autoscaling.autoscaling_limits.unwrap_or_default();
    let (min, max) = (limits.min_serve_nodes, limits.max_serve_nodes);
    if min < 1 || max < min || max > NODES_MAX {
        let field = format!("{field}.autoscaling_limits");
        return invalid(&field, format!("{min} to {max} nodes: use at least 1, and max >= min"));
    }
    let targets = autoscaling.autoscaling_targets.unwrap_or_default();
    check_targets(
        &format!("{field}.autoscaling_targets"),
        targets,
        cluster.default_storage_type(),
    )?;
    cluster.serve_nodes = cluster.serve_nodes.clamp(min, max);
    Ok(cluster)
}

fn check_targets(field: &str, targets: AutoscalingTargets, storage: StorageType) -> Result<()> {
    let cpu = targets.cpu_utilization_percent;
    if !CPU_PERCENT.contains(&cpu) {
        let field = format!("{field}.cpu_utilization_percent");
        return invalid(&field, format!("{cpu}: use 10 to 80"));
    }
    let range = if storage == StorageType::Hdd { HDD_GIB_PER_NODE } else { SSD_GIB_PER_NODE };
    let gib = targets.storage_utilization_gib_per_node;
    if gib != 0 && !range.contains(&gib) {
        let field = format!("{field}.storage_utilization_gib_per_node");
        return invalid(&field, format!("{gib}: use {} to {}", range.start(), range.end()));
    }
    Ok(())
}

/// Validates an app profile of an instance with these clusters.
#[expect(deprecated, reason = "clients may still set the priority in its former place")]
pub fn check_profile(clusters: &[String], mut given: AppProfile) -> Result<AppProfile> {
    if given.description.len() > DESCRIPTION_BYTES_MAX {
        return invalid("app_profile.description", "at most 1024 bytes are allowed");
    }
    let named: Vec<&String> = match &given.routing_policy {
        None => {
            return invalid(
                "app_profile.routing_policy",
                "one of multi_cluster_routing_use_any and single_cluster_routing must be set",
            );
        }
        Some(RoutingPolicy::SingleClusterRouting(single)) => vec![&single.cluster_id],
        Some(RoutingPolicy::MultiClusterRoutingUseAny(any)) => any.cluster_ids.iter().collect(),
    };
    if let Some(unknown) = named.into_iter().find(|id| !clusters.contains(id)) {
        let unknown = excerpt(unknown);
        return Err(Error::NotFound(format!("Cluster not found: {unknown}, in an app profile")));
    }
    let priority = |wire: i32| match Priority::try_from(wire) {
        Ok(Priority::Unspecified) => Ok(Priority::High.into()),
        Ok(known) => Ok(known.into()),
        Err(_) => invalid("app_profile.priority", format!("unknown priority {wire}")),
    };
    let standard = |priority: i32| {
        Isolation::StandardIsolation(crate::proto::admin::app_profile::StandardIsolation {
            priority,
            memory_config: None,
        })
    };
    given.isolation = Some(match given.isolation.take() {
        None => standard(Priority::High.into()),
        // Superseded by the standard isolation.
        Some(Isolation::Priority(wire)) => standard(priority(wire)?),
        Some(Isolation::StandardIsolation(isolation)) => {
            if isolation.memory_config.is_some() {
                let what = "'app_profile.standard_isolation.memory_config' is not supported";
                return Err(Error::Unimplemented(what.into()));
            }
            standard(priority(isolation.priority)?)
        }
        Some(Isolation::DataBoostIsolationReadOnly(boost)) => {
            if boost.compute_billing_owner() != ComputeBillingOwner::HostPays {
                let field = "app_profile.data_boost_isolation_read_only.compute_billing_owner";
                return invalid(field, "use HOST_PAYS");
            }
            if let Some(RoutingPolicy::SingleClusterRouting(single)) = &given.routing_policy
                && single.allow_transactional_writes
            {
                let field = "app_profile.single_cluster_routing.allow_transactional_writes";
                return invalid(field, "a profile with Data Boost is for reading only");
            }
            Isolation::DataBoostIsolationReadOnly(boost)
        }
    });
    given.etag.clear();
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::admin::cluster::{ClusterAutoscalingConfig, ClusterConfig};
    use crate::proto::admin::{AutoscalingLimits, app_profile};

    fn cluster(nodes: i32) -> Cluster {
        Cluster {
            location: "projects/p/locations/z".into(),
            serve_nodes: nodes,
            ..Cluster::default()
        }
    }

    fn autoscaled(min: i32, max: i32, cpu: i32, gib: i32) -> Cluster {
        let autoscaling = ClusterAutoscalingConfig {
            autoscaling_limits: Some(AutoscalingLimits {
                min_serve_nodes: min,
                max_serve_nodes: max,
            }),
            autoscaling_targets: Some(AutoscalingTargets {
                cpu_utilization_percent: cpu,
                storage_utilization_gib_per_node: gib,
            }),
        };
        let config = ClusterConfig { cluster_autoscaling_config: Some(autoscaling) };
        Cluster { config: Some(Config::ClusterConfig(config)), ..cluster(0) }
    }

    #[test]
    fn ids_have_the_form_that_the_api_documents() {
        for id in ["abcdef", "a-1-b2", &"a".repeat(33)] {
            check_instance_id(id).unwrap();
        }
        for id in ["", "abcde", "Abcdef", "1abcde", "abcde-", "abc_def", &"a".repeat(34)] {
            let error = check_instance_id(id).unwrap_err().to_string();
            assert!(error.contains("expected in the form"), "{error}");
        }
        assert!(check_cluster_id(&"a".repeat(30)).is_ok());
        assert!(check_cluster_id(&"a".repeat(31)).is_err());
    }

    #[test]
    fn a_cluster_has_nodes_or_autoscaling_within_its_limits() {
        let check = |cluster| check_cluster("projects/p/instances/i", "cluster-a", cluster);
        let checked = check(cluster(3)).unwrap();
        assert_eq!(checked.default_storage_type(), StorageType::Ssd);
        assert_eq!(checked.state(), cluster::State::Ready);
        assert_eq!(check(autoscaled(2, 5, 50, 2560)).unwrap().serve_nodes, 2);
        for wrong in [
            cluster(0),
            cluster(-1),
            Cluster { location: "z".into(), ..cluster(1) },
            Cluster { name: "x".into(), ..cluster(1) },
            Cluster { default_storage_type: 9, ..cluster(1) },
            Cluster { node_scaling_factor: 2, ..cluster(3) },
            autoscaled(0, 5, 50, 0),
            autoscaled(6, 5, 50, 0),
            autoscaled(1, 5, 9, 0),
            autoscaled(1, 5, 81, 0),
            autoscaled(1, 5, 50, 100),
            Cluster { default_storage_type: StorageType::Hdd.into(), ..autoscaled(1, 5, 50, 2560) },
        ] {
            assert!(check(wrong.clone()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_app_profile_has_one_routing_policy_of_clusters_that_exist() {
        let clusters = ["cluster-a".to_string()];
        let single = |id: &str| {
            Some(RoutingPolicy::SingleClusterRouting(app_profile::SingleClusterRouting {
                cluster_id: id.into(),
                allow_transactional_writes: true,
            }))
        };
        let profile = |routing_policy| AppProfile { routing_policy, ..AppProfile::default() };
        let checked = check_profile(&clusters, profile(single("cluster-a"))).unwrap();
        let Some(Isolation::StandardIsolation(isolation)) = checked.isolation else { panic!() };
        assert_eq!(isolation.priority(), Priority::High);
        assert!(matches!(check_profile(&clusters, profile(single("b"))), Err(Error::NotFound(_))));
        assert!(matches!(check_profile(&clusters, profile(None)), Err(Error::Invalid(_))));
    }

    #[test]
    fn labels_are_short_lower_case_words() {
        let given = |key: &str, value: &str| Instance {
            display_name: "An instance".into(),
            labels: [(key.to_string(), value.to_string())].into(),
            ..Instance::default()
        };
        for (key, value) in [("env", "test"), ("a_b-1", ""), ("é", "1")] {
            check_instance(None, given(key, value)).unwrap();
        }
        let long = "x".repeat(64);
        for (key, value) in
            [("", ""), ("Env", ""), ("1a", ""), ("env", "T"), (&*long, ""), ("a", &*long)]
        {
            assert!(check_instance(None, given(key, value)).is_err(), "{key}={value}");
        }
        let unnamed = Instance { display_name: "abc".into(), ..Instance::default() };
        assert!(check_instance(None, unnamed).is_err());
    }
}
