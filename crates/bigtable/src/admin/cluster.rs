//! The single cluster reported for every instance. Its id is the instance's id
//! with the suffix `-c1`.

use crate::name::InstanceName;
use crate::proto::admin::app_profile::{
    Isolation, Priority, RoutingPolicy, SingleClusterRouting, StandardIsolation,
};
use crate::proto::admin::{AppProfile, Cluster, StorageType, cluster};

/// The app profile that every instance has.
pub const DEFAULT_APP_PROFILE: &str = "default";

pub fn cluster_id(instance: InstanceName<'_>) -> String {
    format!("{}-c1", instance.instance)
}

pub fn cluster(instance: InstanceName<'_>) -> Cluster {
    Cluster {
        name: format!("{instance}/clusters/{}", cluster_id(instance)),
        location: format!("projects/{}/locations/local", instance.project),
        state: cluster::State::Ready.into(),
        serve_nodes: 1,
        default_storage_type: StorageType::Ssd.into(),
        ..Cluster::default()
    }
}

/// Returns the app profile. All traffic is routed to the one cluster, so
/// single-row transactions are allowed.
pub fn app_profile(instance: InstanceName<'_>) -> AppProfile {
    let routing =
        SingleClusterRouting { cluster_id: cluster_id(instance), allow_transactional_writes: true };
    AppProfile {
        name: format!("{instance}/appProfiles/{DEFAULT_APP_PROFILE}"),
        description: "The one way into this instance".into(),
        routing_policy: Some(RoutingPolicy::SingleClusterRouting(routing)),
        isolation: Some(Isolation::StandardIsolation(StandardIsolation {
            priority: Priority::High.into(),
        })),
        ..AppProfile::default()
    }
}
