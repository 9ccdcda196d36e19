//! Instances are implied by table names; unsupported methods report that they
//! are, and clients that poll operations get a usable response.

use http::uri::PathAndQuery;
use stele_bigtable::proto::admin::app_profile::RoutingPolicy;
use stele_bigtable::proto::admin::instance::{State, Type};
use stele_bigtable::proto::admin::{
    GetAppProfileRequest, GetClusterRequest, GetInstanceRequest, ListAppProfilesRequest,
    ListClustersRequest, ListInstancesRequest, Table, cluster,
};
use stele_bigtable::proto::longrunning::{GetOperationRequest, ListOperationsRequest};
use tonic::client::Grpc;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use super::calls::{PARENT, refused, request};
use crate::server::Server;

async fn with_tables(names: &[(&str, &str)]) -> Server {
    let server = Server::start();
    for (parent, id) in names {
        let mut request = request(id, Table::default());
        request.parent = (*parent).into();
        server.tables().create_table(request).await.unwrap();
    }
    server
}

#[tokio::test]
async fn a_project_lists_the_instances_that_its_tables_imply() {
    let server = with_tables(&[
        ("projects/p/instances/two", "a"),
        ("projects/p/instances/one", "a"),
        ("projects/p/instances/one", "b"),
        ("projects/q/instances/three", "a"),
    ])
    .await;
    let list = async |parent: &str| {
        let request = ListInstancesRequest { parent: parent.into(), ..Default::default() };
        server.instances().list_instances(request).await.map(|answer| answer.into_inner())
    };
    let found = list("projects/p").await.unwrap();
    let names: Vec<_> = found.instances.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, ["projects/p/instances/one", "projects/p/instances/two"]);
    assert!(found.failed_locations.is_empty());
    assert!(list("projects/none").await.unwrap().instances.is_empty());
    refused(list("p").await, Code::InvalidArgument, "expected in the form");
}

#[tokio::test]
async fn any_well_formed_instance_is_ready() {
    let server = Server::start();
    let get = async |name: &str| {
        let request = GetInstanceRequest { name: name.into() };
        server.instances().get_instance(request).await.map(|answer| answer.into_inner())
    };
    let found = get(PARENT).await.unwrap();
    assert_eq!((found.name.as_str(), found.display_name.as_str()), (PARENT, "i"));
    assert_eq!((found.state(), found.r#type()), (State::Ready, Type::Production));
    for name in ["", "i", "projects/p/instances/", "projects/p/instances/-"] {
        refused(get(name).await, Code::InvalidArgument, "expected in the form");
    }
}

#[tokio::test]
async fn an_instance_has_one_cluster_named_after_it() {
    let server =
        with_tables(&[("projects/p/instances/a", "t"), ("projects/p/instances/b", "t")]).await;
    let list = async |parent: &str| {
        let request = ListClustersRequest { parent: parent.into(), ..Default::default() };
        server.instances().list_clusters(request).await.map(|answer| answer.into_inner().clusters)
    };
    let get = async |name: &str| {
        let request = GetClusterRequest { name: name.into() };
        server.instances().get_cluster(request).await.map(|answer| answer.into_inner())
    };
    let [cluster] = &list(PARENT).await.unwrap()[..] else { panic!("not one cluster") };
    assert_eq!(cluster.name, "projects/p/instances/i/clusters/i-c1");
    assert_eq!((cluster.state(), cluster.serve_nodes), (cluster::State::Ready, 1));
    assert_eq!(get(&cluster.name).await.unwrap(), *cluster);
    let all = list("projects/p/instances/-").await.unwrap();
    let names: Vec<_> = all.iter().map(|cluster| cluster.name.as_str()).collect();
    assert_eq!(
        names,
        ["projects/p/instances/a/clusters/a-c1", "projects/p/instances/b/clusters/b-c1"]
    );
    let other = format!("{PARENT}/clusters/other");
    refused(get(&other).await, Code::NotFound, &other);
    refused(get("clusters/c").await, Code::InvalidArgument, "expected in the form");
    refused(list("projects/p").await, Code::InvalidArgument, "expected in the form");
}

#[tokio::test]
async fn an_instance_has_the_app_profile_default_and_no_other() {
    let server = Server::start();
    let request = ListAppProfilesRequest { parent: PARENT.into(), ..Default::default() };
    let listed = server.instances().list_app_profiles(request.clone()).await.unwrap().into_inner();
    let [profile] = &listed.app_profiles[..] else { panic!("not one profile") };
    assert_eq!(profile.name, format!("{PARENT}/appProfiles/default"));
    let Some(RoutingPolicy::SingleClusterRouting(routing)) = &profile.routing_policy else {
        panic!("{profile:?}")
    };
    assert!(routing.cluster_id == "i-c1" && routing.allow_transactional_writes);
    let get = async |name: &str| {
        let request = GetAppProfileRequest { name: name.into() };
        server.instances().get_app_profile(request).await.map(|answer| answer.into_inner())
    };
    assert_eq!(get(&profile.name).await.unwrap(), *profile);
    let other = format!("{PARENT}/appProfiles/other");
    refused(get(&other).await, Code::NotFound, &other);
    refused(get(PARENT).await, Code::InvalidArgument, "expected in the form");
    let negative = ListAppProfilesRequest { page_size: -1, ..request.clone() };
    let answer = server.instances().list_app_profiles(negative).await;
    refused(answer, Code::InvalidArgument, "page_size");
    let bogus = ListAppProfilesRequest { page_token: "x".into(), ..request };
    let answer = server.instances().list_app_profiles(bogus).await;
    refused(answer, Code::InvalidArgument, "page_token");
}

#[tokio::test]
async fn an_operation_of_an_unknown_name_is_not_found() {
    let server = Server::start();
    server.create("t", &[]).await;
    let bogus = format!("operations/{}/operations/bogus", super::calls::name("t"));
    for name in ["operations/projects/p/x", "", &bogus] {
        let request = GetOperationRequest { name: name.into() };
        refused(server.operations().get_operation(request).await, Code::NotFound, name);
    }
    let listed = server.operations().list_operations(ListOperationsRequest::default()).await;
    assert!(listed.unwrap().into_inner().operations.is_empty());
}

/// The methods of the published API that this server does not implement.
const ABSENT: &[(&str, &str)] = &[
    (
        "google.bigtable.admin.v2.BigtableTableAdmin",
        "CreateTableFromSnapshot SnapshotTable GetSnapshot ListSnapshots DeleteSnapshot \
         GetIamPolicy SetIamPolicy TestIamPermissions CreateSchemaBundle UpdateSchemaBundle \
         GetSchemaBundle ListSchemaBundles DeleteSchemaBundle",
    ),
    (
        "google.bigtable.admin.v2.BigtableInstanceAdmin",
        "GetIamPolicy SetIamPolicy TestIamPermissions ListHotTablets \
         CreateLogicalView GetLogicalView ListLogicalViews UpdateLogicalView DeleteLogicalView \
         CreateMaterializedView GetMaterializedView ListMaterializedViews UpdateMaterializedView \
         DeleteMaterializedView UpdateMemoryLayer GetMemoryLayer ListMemoryLayers",
    ),
    (
        "google.bigtable.v2.Bigtable",
        "GenerateInitialChangeStreamPartitions ReadChangeStream PrepareQuery ExecuteQuery \
         OpenTable OpenAuthorizedView OpenMaterializedView",
    ),
];

#[tokio::test]
async fn methods_that_are_not_there_answer_unimplemented() {
    let server = Server::start();
    for (service, methods) in ABSENT {
        for method in methods.split_whitespace() {
            let path: PathAndQuery = format!("/{service}/{method}").parse().unwrap();
            let mut client = Grpc::new(server.api().routes());
            client.ready().await.unwrap();
            let codec = ProstCodec::<(), ()>::default();
            let answer = client.unary(Request::new(()), path, codec).await;
            refused(answer, Code::Unimplemented, &format!("{method} is not supported"));
        }
    }
}
