//! What clients see of an instance that nobody created.

use crate::name::InstanceName;
use crate::proto::admin::app_profile::{
    Isolation, MultiClusterRoutingUseAny, Priority, RoutingPolicy, SingleClusterRouting,
    StandardIsolation,
};
use crate::proto::admin::{AppProfile, Cluster, Instance, StorageType, cluster, instance};

/// The app profile that every instance has.
pub const DEFAULT_APP_PROFILE: &str = "default";

pub fn implied_instance(name: InstanceName<'_>) -> Instance {
    Instance {
        name: name.to_string(),
        display_name: name.instance.into(),
        state: instance::State::Ready.into(),
        r#type: instance::Type::Production.into(),
        edition: instance::Edition::Enterprise.into(),
        ..Instance::default()
    }
}

/// Returns the id of the one cluster of an implied instance.
pub fn implied_cluster_id(name: InstanceName<'_>) -> String {
    format!("{}-c1", name.instance)
}

pub fn implied_cluster(name: InstanceName<'_>) -> Cluster {
    Cluster {
        name: format!("{name}/clusters/{}", implied_cluster_id(name)),
        location: format!("projects/{}/locations/local", name.project),
        state: cluster::State::Ready.into(),
        serve_nodes: 1,
        node_scaling_factor: cluster::NodeScalingFactor::NodeScalingFactor1x.into(),
        default_storage_type: StorageType::Ssd.into(),
        ..Cluster::default()
    }
}

/// Returns the default app profile of an instance with these clusters: with a single one,
/// all traffic is routed there, so single-row transactions are allowed.
pub fn default_profile(name: InstanceName<'_>, clusters: &[String]) -> AppProfile {
    let (description, routing) = match clusters {
        [cluster] => (
            "Default app profile: single-cluster routing",
            RoutingPolicy::SingleClusterRouting(SingleClusterRouting {
                cluster_id: cluster.clone(),
                allow_transactional_writes: true,
            }),
        ),
        _ => (
            "Default app profile: multi-cluster routing",
            RoutingPolicy::MultiClusterRoutingUseAny(MultiClusterRoutingUseAny::default()),
        ),
    };
    AppProfile {
        name: format!("{name}/appProfiles/{DEFAULT_APP_PROFILE}"),
        description: description.into(),
        routing_policy: Some(routing),
        isolation: Some(Isolation::StandardIsolation(StandardIsolation {
            priority: Priority::High.into(),
            memory_config: None,
        })),
        ..AppProfile::default()
    }
}
