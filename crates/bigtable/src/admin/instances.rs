//! The instance admin service, limited to what clients query: instances are
//! implied by table names, and each has one cluster and one app profile.

use std::collections::BTreeSet;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::cluster::{DEFAULT_APP_PROFILE, app_profile, cluster, cluster_id};
use super::list::page_size;
use crate::error::{Error, Result};
use crate::name::{AppProfileName, ClusterName, InstanceName, Instances, ProjectName, TableName};
use crate::proto::admin::bigtable_instance_admin_server::BigtableInstanceAdmin;
use crate::proto::admin::{
    AppProfile, Cluster, GetAppProfileRequest, GetClusterRequest, GetInstanceRequest, Instance,
    ListAppProfilesRequest, ListAppProfilesResponse, ListClustersRequest, ListClustersResponse,
    ListInstancesRequest, ListInstancesResponse, instance,
};
use crate::reserved;
use crate::table::Tables;

/// Serves the instances that table names imply.
pub struct InstanceAdmin {
    tables: Arc<Tables>,
}

impl InstanceAdmin {
    pub fn new(tables: Arc<Tables>) -> InstanceAdmin {
        InstanceAdmin { tables }
    }

    /// Applies `show` to each instance that a list request covers, ordered by id.
    fn each<T>(&self, asked: Instances<'_>, show: impl Fn(InstanceName<'_>) -> T) -> Vec<T> {
        let project = match asked {
            Instances::One(instance) => return vec![show(instance)],
            Instances::All(ProjectName { project }) => project,
        };
        let tables = self.tables.all();
        let names = tables.iter().filter_map(|table| TableName::parse(&table.name).ok());
        let implied = names.filter(|name| name.instance.project == project);
        let ids: BTreeSet<&str> = implied.map(|name| name.instance.instance).collect();
        ids.into_iter().map(|instance| show(InstanceName { project, instance })).collect()
    }
}

fn shown(name: InstanceName<'_>) -> Instance {
    Instance {
        name: name.to_string(),
        display_name: name.instance.into(),
        state: instance::State::Ready.into(),
        r#type: instance::Type::Production.into(),
        ..Instance::default()
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
        let instances = self.each(Instances::All(project), shown);
        Ok(Response::new(ListInstancesResponse { instances, ..Default::default() }))
    }

    async fn get_instance(
        &self,
        request: Request<GetInstanceRequest>,
    ) -> Result<Response<Instance>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        Ok(Response::new(shown(InstanceName::parse(&request.get_ref().name)?)))
    }

    async fn list_clusters(
        &self,
        request: Request<ListClustersRequest>,
    ) -> Result<Response<ListClustersResponse>, Status> {
        reserved::check(request.extensions(), &request.get_ref().parent)?;
        let clusters = self.each(Instances::parse(&request.get_ref().parent)?, cluster);
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
        Ok(Response::new(cluster(instance)))
    }

    async fn list_app_profiles(
        &self,
        request: Request<ListAppProfilesRequest>,
    ) -> Result<Response<ListAppProfilesResponse>, Status> {
        reserved::check(request.extensions(), &request.get_ref().parent)?;
        let ListAppProfilesRequest { parent, page_size: size, page_token } = request.get_ref();
        page_size(*size)?;
        if !page_token.is_empty() {
            let what = "Error in field 'page_token' : was not given out for this list";
            return Err(Error::invalid(what).into());
        }
        let app_profiles = self.each(Instances::parse(parent)?, app_profile);
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
        Ok(Response::new(app_profile(instance)))
    }
}
