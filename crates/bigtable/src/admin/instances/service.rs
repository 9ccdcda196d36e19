//! The methods of the instance admin service.

use std::sync::Arc;

use stele_engine::world::Clock;
use tonic::{Request, Response, Status};

use super::{app_profile, cluster, instance};
use crate::admin::paging::{PAGE_ITEMS_MAX, Page, page_size};
use crate::admin::services::blocking;
use crate::error::Result;
use crate::name::{AppProfileName, ClusterName, InstanceName, Instances, ProjectName};
use crate::proto::admin::bigtable_instance_admin_server::BigtableInstanceAdmin;
use crate::proto::admin::{
    AppProfile, Cluster, CreateAppProfileRequest, CreateClusterRequest, CreateInstanceRequest,
    DeleteAppProfileRequest, DeleteClusterRequest, DeleteInstanceRequest, GetAppProfileRequest,
    GetClusterRequest, GetInstanceRequest, Instance, ListAppProfilesRequest,
    ListAppProfilesResponse, ListClustersRequest, ListClustersResponse, ListInstancesRequest,
    ListInstancesResponse, PartialUpdateClusterRequest, PartialUpdateInstanceRequest,
    UpdateAppProfileRequest,
};
use crate::proto::longrunning::Operation;
use crate::reserved;
use crate::table::Tables;

/// Serves instances, clusters and app profiles.
pub struct InstanceAdmin {
    tables: Arc<Tables>,
    clock: Arc<dyn Clock>,
}

/// What a change of instances needs.
pub struct Context {
    pub tables: Arc<Tables>,
    /// When the request arrived.
    pub now_micros: i64,
}

impl InstanceAdmin {
    pub fn new(tables: Arc<Tables>, clock: Arc<dyn Clock>) -> InstanceAdmin {
        InstanceAdmin { tables, clock }
    }

    /// Makes a change of the named resource on a thread that may block.
    async fn change<R, T>(
        &self,
        request: Request<R>,
        name: impl Fn(&R) -> &str,
        change: impl FnOnce(&Context, R) -> Result<T> + Send + 'static,
    ) -> Result<Response<T>, Status>
    where
        R: Send + 'static,
        T: Send + 'static,
    {
        reserved::check(request.extensions(), name(request.get_ref()))?;
        let context = Context { tables: self.tables.clone(), now_micros: self.clock.now_micros() };
        let request = request.into_inner();
        blocking(move || change(&context, request)).await.map(Response::new)
    }
}

#[tonic::async_trait]
impl BigtableInstanceAdmin for InstanceAdmin {
    async fn create_instance(
        &self,
        request: Request<CreateInstanceRequest>,
    ) -> Result<Response<Operation>, Status> {
        self.change(request, |request| &request.parent, instance::create).await
    }

    async fn list_instances(
        &self,
        request: Request<ListInstancesRequest>,
    ) -> Result<Response<ListInstancesResponse>, Status> {
        reserved::check(request.extensions(), &request.get_ref().parent)?;
        let ListInstancesRequest { parent, page_token } = request.get_ref();
        let project = ProjectName::parse(parent)?;
        let all = self.tables.instances().list(Instances::All(project))?;
        let all = all.into_iter().map(|found| (found.name.clone(), found));
        let page = Page::of(all, PAGE_ITEMS_MAX, page_token, parent)?;
        Ok(Response::new(ListInstancesResponse {
            instances: page.items,
            next_page_token: page.next_token,
            ..Default::default()
        }))
    }

    async fn get_instance(
        &self,
        request: Request<GetInstanceRequest>,
    ) -> Result<Response<Instance>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        let name = InstanceName::parse(&request.get_ref().name)?;
        Ok(Response::new(self.tables.instances().find(name)?))
    }

    async fn update_instance(
        &self,
        request: Request<Instance>,
    ) -> Result<Response<Instance>, Status> {
        self.change(request, |request| &request.name, instance::update).await
    }

    async fn partial_update_instance(
        &self,
        request: Request<PartialUpdateInstanceRequest>,
    ) -> Result<Response<Operation>, Status> {
        fn name(request: &PartialUpdateInstanceRequest) -> &str {
            request.instance.as_ref().map_or("", |given| &given.name)
        }
        self.change(request, name, instance::partial_update).await
    }

    async fn delete_instance(
        &self,
        request: Request<DeleteInstanceRequest>,
    ) -> Result<Response<()>, Status> {
        self.change(request, |request| &request.name, instance::delete).await
    }

    async fn create_cluster(
        &self,
        request: Request<CreateClusterRequest>,
    ) -> Result<Response<Operation>, Status> {
        self.change(request, |request| &request.parent, cluster::create).await
    }

    async fn list_clusters(
        &self,
        request: Request<ListClustersRequest>,
    ) -> Result<Response<ListClustersResponse>, Status> {
        reserved::check(request.extensions(), &request.get_ref().parent)?;
        let ListClustersRequest { parent, page_token } = request.get_ref();
        let mut all = Vec::new();
        for instance in self.tables.instances().list(Instances::parse(parent)?)? {
            let clusters =
                self.tables.instances().clusters(InstanceName::parse(&instance.name)?)?;
            all.extend(clusters.into_iter().map(|found| (found.name.clone(), found)));
        }
        let page = Page::of(all, PAGE_ITEMS_MAX, page_token, parent.trim_end_matches('-'))?;
        Ok(Response::new(ListClustersResponse {
            clusters: page.items,
            next_page_token: page.next_token,
            ..Default::default()
        }))
    }

    async fn get_cluster(
        &self,
        request: Request<GetClusterRequest>,
    ) -> Result<Response<Cluster>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        let name = ClusterName::parse(&request.get_ref().name)?;
        Ok(Response::new(self.tables.instances().cluster(name)?))
    }

    async fn update_cluster(
        &self,
        request: Request<Cluster>,
    ) -> Result<Response<Operation>, Status> {
        self.change(request, |request| &request.name, cluster::update).await
    }

    async fn partial_update_cluster(
        &self,
        request: Request<PartialUpdateClusterRequest>,
    ) -> Result<Response<Operation>, Status> {
        fn name(request: &PartialUpdateClusterRequest) -> &str {
            request.cluster.as_ref().map_or("", |given| &given.name)
        }
        self.change(request, name, cluster::partial_update).await
    }

    async fn delete_cluster(
        &self,
        request: Request<DeleteClusterRequest>,
    ) -> Result<Response<()>, Status> {
        self.change(request, |request| &request.name, cluster::delete).await
    }

    async fn create_app_profile(
        &self,
        request: Request<CreateAppProfileRequest>,
    ) -> Result<Response<AppProfile>, Status> {
        self.change(request, |request| &request.parent, app_profile::create).await
    }

    async fn list_app_profiles(
        &self,
        request: Request<ListAppProfilesRequest>,
    ) -> Result<Response<ListAppProfilesResponse>, Status> {
        reserved::check(request.extensions(), &request.get_ref().parent)?;
        let ListAppProfilesRequest { parent, page_size: size, page_token } = request.get_ref();
        let size = page_size(*size, PAGE_ITEMS_MAX)?;
        let mut all = Vec::new();
        for instance in self.tables.instances().list(Instances::parse(parent)?)? {
            let name = InstanceName::parse(&instance.name)?;
            let profiles = self.tables.instances().app_profiles(name)?;
            all.extend(profiles.into_iter().map(|found| (found.name.clone(), found)));
        }
        let page = Page::of(all, size, page_token, parent.trim_end_matches('-'))?;
        Ok(Response::new(ListAppProfilesResponse {
            app_profiles: page.items,
            next_page_token: page.next_token,
            ..Default::default()
        }))
    }

    async fn get_app_profile(
        &self,
        request: Request<GetAppProfileRequest>,
    ) -> Result<Response<AppProfile>, Status> {
        reserved::check(request.extensions(), &request.get_ref().name)?;
        let name = AppProfileName::parse(&request.get_ref().name)?;
        Ok(Response::new(self.tables.instances().app_profile(name)?))
    }

    async fn update_app_profile(
        &self,
        request: Request<UpdateAppProfileRequest>,
    ) -> Result<Response<Operation>, Status> {
        fn name(request: &UpdateAppProfileRequest) -> &str {
            request.app_profile.as_ref().map_or("", |given| &given.name)
        }
        self.change(request, name, app_profile::update).await
    }

    async fn delete_app_profile(
        &self,
        request: Request<DeleteAppProfileRequest>,
    ) -> Result<Response<()>, Status> {
        self.change(request, |request| &request.name, app_profile::delete).await
    }
}
