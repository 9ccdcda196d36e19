"""The first calls of clients that are not installed (Go, Java, HBase, C++), as
raw gRPC, with the responses that these clients need to continue."""

import urllib.request

import grpc
import pytest
from google.cloud.bigtable_admin_v2 import types as admin
from google.cloud.bigtable_v2 import types as data
from google.longrunning import operations_pb2

from conftest import INSTANCE, PARENT

DATA = "google.bigtable.v2.Bigtable"
INSTANCES = "google.bigtable.admin.v2.BigtableInstanceAdmin"
OPERATIONS = "google.longrunning.Operations"


def call(channel, service, method, request, **options):
    """Makes a unary call with serialized messages and returns the response bytes."""
    return channel.unary_unary(f"/{service}/{method}")(request, timeout=30, **options)


def code(channel, service, method, request=b""):
    with pytest.raises(grpc.RpcError) as raised:
        call(channel, service, method, request)
    return raised.value.code()


def test_a_channel_is_warmed_before_its_instance_has_tables(channel):
    request = data.PingAndWarmRequest(name="projects/any/instances/other", app_profile_id="any")
    raw = data.PingAndWarmRequest.serialize(request)
    metadata = [
        ("x-goog-request-params", "name=projects%2Fany%2Finstances%2Fother&app_profile_id=any"),
        ("google-cloud-resource-prefix", "projects/any/instances/other"),
        ("bigtable-features", "not base64"),
    ]
    assert call(channel, DATA, "PingAndWarm", raw, metadata=metadata) == b""


def test_session_calls_are_unimplemented(channel):
    for method in ("OpenTable", "OpenAuthorizedView", "OpenMaterializedView"):
        assert code(channel, DATA, method) == grpc.StatusCode.UNIMPLEMENTED


def test_instances_clusters_and_app_profiles_can_be_read(channel, classic):
    def admin_call(method, request, response):
        return response.deserialize(
            call(channel, INSTANCES, method, type(request).serialize(request))
        )

    listed = admin_call(
        "ListInstances", admin.ListInstancesRequest(parent="projects/p"), admin.ListInstancesResponse
    )
    assert PARENT in [instance.name for instance in listed.instances]
    instance = admin_call("GetInstance", admin.GetInstanceRequest(name=PARENT), admin.Instance)
    assert instance.state == admin.Instance.State.READY
    clusters = admin_call(
        "ListClusters",
        admin.ListClustersRequest(parent="projects/p/instances/-"),
        admin.ListClustersResponse,
    )
    assert f"{PARENT}/clusters/{INSTANCE}-c1" in [cluster.name for cluster in clusters.clusters]
    profile = admin_call(
        "GetAppProfile",
        admin.GetAppProfileRequest(name=f"{PARENT}/appProfiles/default"),
        admin.AppProfile,
    )
    assert profile.single_cluster_routing.allow_transactional_writes


def test_operations_are_polled_on_the_same_port(channel):
    request = operations_pb2.GetOperationRequest(name="operations/projects/p/1")
    status = code(channel, OPERATIONS, "GetOperation", request.SerializeToString())
    assert status == grpc.StatusCode.NOT_FOUND
    # The operations of a resource that has none.
    request = operations_pb2.ListOperationsRequest(name="operations/projects/none")
    assert call(channel, OPERATIONS, "ListOperations", request.SerializeToString()) == b""


def test_unknown_services_and_methods_are_unimplemented(channel):
    for service, method in [
        (DATA, "NoSuchMethod"),
        ("no.such.Service", "Method"),
        (INSTANCES, "CreateMaterializedView"),
        ("google.bigtable.admin.v2.BigtableTableAdmin", "CreateSchemaBundle"),
    ]:
        assert code(channel, service, method) == grpc.StatusCode.UNIMPLEMENTED


def test_the_http_port_reports_health(server):
    with urllib.request.urlopen(f"{server.http}/health", timeout=30) as page:
        assert page.status == 200
    with urllib.request.urlopen(f"{server.http}/metrics", timeout=30) as page:
        assert b"stele_" in page.read()
