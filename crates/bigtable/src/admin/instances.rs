//! The instance admin service, limited to what clients query: instances are
//! implied by table names, and each has one cluster and one app profile. The
//! cluster's id is the instance's id with the suffix `-c1`.

use std::collections::BTreeSet;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::list::{invalid_page_token, page_size};
use crate::error::{Error, Result};
use crate::name::{AppProfileName, ClusterName, InstanceName, Instances, ProjectName, TableName};
use crate::proto::admin::app_profile::{
    Isolation, Priority, RoutingPolicy, SingleClusterRouting, StandardIsolation,
};
use crate::proto::admin::bigtable_instance_admin_server::BigtableInstanceAdmin;
use crate::proto::admin::{
    AppProfile, Cluster, GetAppProfileRequest, GetClusterRequest, GetInstanceRequest, Instance,
    ListAppProfilesRequest, ListAppProfilesResponse, ListClustersRequest, ListClustersResponse,
    ListInstancesRequest, ListInstancesResponse, StorageType, cluster, instance,
};
use crate::reserved;
use crate::table::Tables;

/// The app profile that every instance has.
const DEFAULT_APP_PROFILE: &str = "default";

/// Serves the instances that table names imply.
pub struct InstanceAdmin {
    tables: Arc<Tables>,
}

impl InstanceAdmin {
    pub fn new(tables: Arc<Tables>) -> InstanceAdmin {
        InstanceAdmin { tables }
    }

    /// Applies `render` to each instance that a list request covers, ordered by id.
    fn each<T>(&self, requested: Instances<'_>, render: impl Fn(InstanceName<'_>) -> T) -> Vec<T> {
        let project = match requested {
            Instances::One(instance) => return vec![render(instance)],
            Instances::All(ProjectName { project }) => project,
        };
        let tables = self.tables.all();
        let names = tables.iter().filter_map(|table| TableName::parse(&table.name).ok());
        let implied = names.filter(|name| name.instance.project == project);
        let ids: BTreeSet<&str> = implied.map(|name| name.instance.instance).collect();
        ids.into_iter().map(|instance| render(InstanceName { project, instance })).collect()
    }
}

fn instance_message(name: InstanceName<'_>) -> Instance {
    Instance {
        name: name.to_string(),
        display_name: name.instance.into(),
        state: instance::State::Ready.into(),
        r#type: instance::Type::Production.into(),
        ..Instance::default()
    }
}

/// Returns the id of the one cluster of an instance.
pub fn cluster_id(instance: InstanceName<'_>) -> String {
    format!("{}-c1", instance.instance)
}

fn cluster_message(instance: InstanceName<'_>) -> Cluster {
    Cluster {
        name: format!("{instance}/clusters/{}", cluster_id(instance)),
        location: format!("projects/{}/locations/local", instance.project),
        state: cluster::State::Ready.into(),
        serve_nodes: 1,
        default_storage_type: StorageType::Ssd.into(),
        ..Cluster::default()
    }
}

/// Returns the default app profile. All traffic is routed to the one cluster, so
/// single-row transactions are allowed.
fn app_profile_message(instance: InstanceName<'_>) -> AppProfile {
    let routing =
        SingleClusterRouting { cluster_id: cluster_id(instance), allow_transactional_writes: true };
    AppProfile {
        name: format!("{instance}/appProfiles/{DEFAULT_APP_PROFILE}"),
        description: "Default app profile: single-cluster routing".into(),
        routing_policy: Some(RoutingPolicy::SingleClusterRouting(routing)),
        isolation: Some(Isolation::StandardIsolation(StandardIsolation {
            priority: Priority::High.into(),
        })),
        ..AppProfile::default()
    }
}

#[tonic::async_trait]
impl BigtableInstanceAdmin for InstanceAdmin {
    async fn list_instances(
        &self,
        request: Request<ListInstancesRequest>,
    ) -> Result<Response<ListInstancesResponse>, Status> {
        reserved::check(request.extensions(), &request.get_ref().parent)?;
        let project = ProjectName::parse(&request.get_ref().parent)?;
        let instances = self.each(Instances::All(project), instance_message);
        Ok(Response::new(ListInstancesResponse { instances, ..Default::default() }))
    }

    async fn get_instance(
        &self,
        request: Request<GetInstanceRequest>,
    ) -> Result<Response<Instance>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        Ok(Response::new(instance_message(InstanceName::parse(&request.get_ref().name)?)))
    }

    async fn list_clusters(
        &self,
        request: Request<ListClustersRequest>,
    ) -> Result<Response<ListClustersResponse>, Status> {
        reserved::check(request.extensions(), &request.get_ref().parent)?;
        let clusters = self.each(Instances::parse(&request.get_ref().parent)?, cluster_message);
        Ok(Response::new(ListClustersResponse { clusters, ..Default::default() }))
    }

    async fn get_cluster(
        &self,
        request: Request<GetClusterRequest>,
    ) -> Result<Response<Cluster>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        let name = &request.get_ref().name;
        let ClusterName { instance, cluster: id } = ClusterName::parse(name)?;
        if id != cluster_id(instance) {
            return Err(Error::NotFound(format!("Cluster not found: {name}")).into());
        }
        Ok(Response::new(cluster_message(instance)))
    }

    async fn list_app_profiles(
        &self,
        request: Request<ListAppProfilesRequest>,
    ) -> Result<Response<ListAppProfilesResponse>, Status> {
        reserved::check(request.extensions(), &request.get_ref().parent)?;
        let ListAppProfilesRequest { parent, page_size: size, page_token } = request.get_ref();
        page_size(*size)?;
        if !page_token.is_empty() {
            return Err(invalid_page_token().into());
        }
        let app_profiles = self.each(Instances::parse(parent)?, app_profile_message);
        Ok(Response::new(ListAppProfilesResponse { app_profiles, ..Default::default() }))
    }

    async fn get_app_profile(
        &self,
        request: Request<GetAppProfileRequest>,
    ) -> Result<Response<AppProfile>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        let name = &request.get_ref().name;
        let AppProfileName { instance, app_profile: id } = AppProfileName::parse(name)?;
        if id != DEFAULT_APP_PROFILE {
            return Err(Error::NotFound(format!("App profile not found: {name}")).into());
        }
        Ok(Response::new(app_profile_message(instance)))
    }
}
