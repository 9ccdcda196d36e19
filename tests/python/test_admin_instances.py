"""Instances, clusters and app profiles: created, read, changed and deleted."""

import pytest
from google.api_core import exceptions
from google.cloud import bigtable
from google.cloud.bigtable import enums
from google.cloud.bigtable_admin_v2 import types as admin
from google.protobuf import field_mask_pb2

from server import Server, admin_clients, data_client

PROJECT = "projects/p"
mask = lambda *paths: field_mask_pb2.FieldMask(paths=paths)


def cluster(zone="us-central1-b", nodes=1, **fields):
    location = f"{PROJECT}/locations/{zone}"
    return admin.Cluster(location=location, serve_nodes=nodes, **fields)


def autoscaling(low, high, cpu=50):
    return {
        "cluster_autoscaling_config": {
            "autoscaling_limits": {"min_serve_nodes": low, "max_serve_nodes": high},
            "autoscaling_targets": {"cpu_utilization_percent": cpu},
        }
    }


def create(instances, instance_id, clusters=None, **fields):
    fields = {"display_name": "An instance", **fields}
    return instances.create_instance(
        parent=PROJECT,
        instance_id=instance_id,
        instance=admin.Instance(**fields),
        clusters=clusters or {f"{instance_id}-one": cluster()},
    )


def test_the_sequence_of_requests_that_terraform_sends(instances, tables):
    """Create, plan without a difference, update, destroy: google_bigtable_instance with two
    clusters, google_bigtable_table, google_bigtable_app_profile."""
    name = f"{PROJECT}/instances/terraform"
    clusters = {
        "terraform-a": cluster("us-east1-b", 1, default_storage_type="SSD"),
        "terraform-b": cluster("us-east1-c", 0, cluster_config=autoscaling(1, 3)),
    }
    labels = {"env": "test"}
    operation = create(instances, "terraform", clusters, display_name="Terraform", labels=labels)
    created = operation.result()
    assert operation.metadata.original_request.instance_id == "terraform"

    def read():
        found = instances.get_instance(name=name)
        listed = instances.list_clusters(parent=name)
        assert not listed.failed_locations
        return found, list(listed.clusters)

    found, listed = read()
    assert found == created and found.state == admin.Instance.State.READY
    assert (found.display_name, dict(found.labels)) == ("Terraform", labels)
    assert found.edition == admin.Instance.Edition.ENTERPRISE and found.create_time
    shapes = [(c.name.rsplit("/", 1)[1], c.serve_nodes, c.location) for c in listed]
    assert shapes == [
        ("terraform-a", 1, f"{PROJECT}/locations/us-east1-b"),
        ("terraform-b", 1, f"{PROJECT}/locations/us-east1-c"),
    ]
    table = tables.create_table(
        parent=name,
        table_id="t",
        table=admin.Table(
            column_families={"f": {"gc_rule": {"max_num_versions": 1}}},
            deletion_protection=True,
        ),
    )
    states = tables.get_table(request={"name": table.name, "view": "REPLICATION_VIEW"}).cluster_states
    assert set(states) == {"terraform-a", "terraform-b"}
    both = {"cluster_ids": ["terraform-a", "terraform-b"]}
    profile = instances.create_app_profile(
        request={
            "parent": name,
            "app_profile_id": "main",
            "app_profile": {"description": "d", "multi_cluster_routing_use_any": both},
            "ignore_warnings": True,
        }
    )
    # A plan reads everything again and finds no difference.
    assert read() == (found, listed)
    assert instances.get_app_profile(name=profile.name) == profile
    assert tables.get_table(request={"name": table.name, "view": "FULL"}).deletion_protection

    updated = instances.partial_update_instance(
        instance={"name": name, "display_name": "Renamed", "labels": {"env": "prod", "team": "a"}},
        update_mask=mask("display_name", "labels"),
    ).result()
    assert (updated.display_name, dict(updated.labels)) == ("Renamed", {"env": "prod", "team": "a"})
    grown = instances.partial_update_cluster(
        cluster={"name": f"{name}/clusters/terraform-a", "serve_nodes": 3},
        update_mask=mask("serve_nodes"),
    )
    assert grown.result().serve_nodes == 3
    assert grown.metadata.original_request.cluster.serve_nodes == 3
    scaled = instances.partial_update_cluster(
        cluster={"name": f"{name}/clusters/terraform-b", "cluster_config": autoscaling(2, 9, 60)},
        update_mask=mask("cluster_config.cluster_autoscaling_config"),
    ).result()
    limits = scaled.cluster_config.cluster_autoscaling_config.autoscaling_limits
    assert (limits.min_serve_nodes, limits.max_serve_nodes) == (2, 9)
    instances.create_cluster(parent=name, cluster_id="terraform-c", cluster=cluster("us-east1-d")).result()
    instances.delete_cluster(name=f"{name}/clusters/terraform-c")
    changed = instances.update_app_profile(
        app_profile={"name": profile.name, "description": "new", "etag": profile.etag},
        update_mask=mask("description"),
    ).result()
    assert changed.description == "new" and changed.etag != profile.etag

    with pytest.raises(exceptions.FailedPrecondition, match="deletion protection"):
        instances.delete_instance(name=name)
    tables.update_table(
        table={"name": table.name, "deletion_protection": False}, update_mask=mask("deletion_protection")
    ).result()
    instances.delete_app_profile(request={"name": profile.name, "ignore_warnings": True})
    tables.delete_table(name=table.name)
    instances.delete_instance(name=name)
    for call in (instances.get_instance, instances.delete_instance):
        with pytest.raises(exceptions.NotFound, match="terraform"):
            call(name=name)
    assert name not in [found.name for found in instances.list_instances(parent=PROJECT).instances]


def test_the_classic_client_creates_and_deletes_an_instance(server):
    client = bigtable.Client(project="p", admin=True)
    instance = client.instance("classic-a", instance_type=enums.Instance.Type.PRODUCTION, labels={"a": "b"})
    one = instance.cluster("classic-one", location_id="us-central1-f", serve_nodes=3)
    instance.create(clusters=[one]).result(timeout=10)
    assert instance.exists() and one.exists()
    instance.reload()
    assert instance.state == enums.Instance.State.READY and instance.labels == {"a": "b"}
    instance.display_name = "New name"
    instance.update().result(timeout=10)
    found, failed = client.list_instances()
    assert "New name" in [other.display_name for other in found] and not failed
    one.serve_nodes = 4
    one.update().result(timeout=10)
    one.reload()
    assert one.serve_nodes == 4
    profile = instance.app_profile(
        "app", routing_policy_type=enums.RoutingPolicyType.ANY, description="any"
    )
    profile.create(ignore_warnings=True)
    assert sorted(p.app_profile_id for p in instance.list_app_profiles()) == ["app", "default"]
    profile.delete(ignore_warnings=True)
    assert not profile.exists()
    instance.delete()
    assert not instance.exists()


def test_malformed_instances_and_clusters_are_refused(instances):
    for instance_id in ("short", "Upper-case", "-starts", "ends-"):
        with pytest.raises(exceptions.InvalidArgument, match="instance_id"):
            create(instances, instance_id, {"cluster-one": cluster()})
    for clusters, text in [
        ({"Bad": cluster()}, "cluster_id"),
        ({"cluster-one": cluster(nodes=0)}, "serve_nodes"),
        ({"cluster-one": admin.Cluster(location="z", serve_nodes=1)}, "location"),
        ({"cluster-one": cluster(), "cluster-two": cluster()}, "location"),
        ({"cluster-one": cluster(nodes=0, cluster_config=autoscaling(3, 1))}, "autoscaling_limits"),
        ({"cluster-one": cluster(nodes=0, cluster_config=autoscaling(1, 3, 99))}, "cpu_utilization"),
    ]:
        with pytest.raises(exceptions.InvalidArgument, match=text):
            create(instances, "refused-a", clusters)
    key = {"kms_key_name": "projects/p/locations/l/keyRings/r/cryptoKeys/k"}
    with pytest.raises(exceptions.MethodNotImplemented, match="encryption_config"):
        create(instances, "refused-a", {"cluster-one": cluster(encryption_config=key)})
    with pytest.raises(exceptions.InvalidArgument, match="display_name"):
        create(instances, "refused-a", display_name="abc")
    with pytest.raises(exceptions.InvalidArgument, match="labels"):
        create(instances, "refused-a", labels={"Upper": ""})
    create(instances, "refused-b").result()
    with pytest.raises(exceptions.AlreadyExists, match="already exists"):
        create(instances, "refused-b")
    name = f"{PROJECT}/instances/refused-b"
    for paths, text in [((), "A non-empty 'update_mask' must be specified"), (("name",), "update_mask")]:
        with pytest.raises(exceptions.InvalidArgument, match=text):
            instances.partial_update_instance(instance={"name": name}, update_mask=mask(*paths))
    one = f"{name}/clusters/refused-b-one"
    with pytest.raises(exceptions.InvalidArgument, match="location"):
        instances.partial_update_cluster(cluster={"name": one}, update_mask=mask("location"))
    with pytest.raises(exceptions.FailedPrecondition, match="last"):
        instances.delete_cluster(name=one)
    with pytest.raises(exceptions.AlreadyExists, match="already exists"):
        instances.create_cluster(parent=name, cluster_id="refused-b-one", cluster=cluster("other"))
    instances.delete_instance(name=name)


def test_app_profiles_are_checked_and_guarded_by_their_etags(instances):
    name = f"{PROJECT}/instances/profiles"
    create(instances, "profiles", {"profiles-one": cluster("a"), "profiles-two": cluster("b")}).result()
    new = lambda profile_id, **fields: instances.create_app_profile(
        parent=name, app_profile_id=profile_id, app_profile=admin.AppProfile(**fields)
    )
    single = lambda cluster_id: {"cluster_id": cluster_id, "allow_transactional_writes": True}
    with pytest.raises(exceptions.InvalidArgument, match="routing_policy"):
        new("none")
    with pytest.raises(exceptions.NotFound, match="nowhere"):
        new("nowhere", single_cluster_routing=single("nowhere"))
    profile = new("one", single_cluster_routing=single("profiles-one"))
    with pytest.raises(exceptions.AlreadyExists, match="already exists"):
        new("one", single_cluster_routing=single("profiles-one"))
    with pytest.raises(exceptions.FailedPrecondition, match="names it"):
        instances.delete_cluster(name=f"{name}/clusters/profiles-one")
    update = lambda etag="", ignore=False, paths=("multi_cluster_routing_use_any",), **fields: (
        instances.update_app_profile(
            admin.UpdateAppProfileRequest(
                app_profile=admin.AppProfile(name=profile.name, etag=etag, **fields),
                update_mask=mask(*paths),
                ignore_warnings=ignore,
            )
        )
    )
    with pytest.raises(exceptions.InvalidArgument, match="A non-empty 'update_mask' must be specified"):
        update(paths=())
    with pytest.raises(exceptions.Aborted, match="etag"):
        update(etag="stale", multi_cluster_routing_use_any={})
    with pytest.raises(exceptions.FailedPrecondition, match="ignore_warnings"):
        update(etag=profile.etag, multi_cluster_routing_use_any={})
    update(etag=profile.etag, ignore=True, multi_cluster_routing_use_any={}).result()
    boost = new(
        "boost",
        single_cluster_routing={"cluster_id": "profiles-two"},
        data_boost_isolation_read_only={"compute_billing_owner": "HOST_PAYS"},
    )
    assert boost.data_boost_isolation_read_only.compute_billing_owner.name == "HOST_PAYS"
    pages = instances.list_app_profiles(admin.ListAppProfilesRequest(parent=name, page_size=1)).pages
    ids = [[p.name.rsplit("/", 1)[1] for p in page.app_profiles] for page in pages]
    assert ids == [["boost"], ["default"], ["one"]]
    with pytest.raises(exceptions.FailedPrecondition):
        instances.delete_app_profile(
            request={"name": f"{name}/appProfiles/default", "ignore_warnings": True}
        )
    instances.delete_instance(name=name)


def test_records_survive_a_kill_and_strict_servers_know_only_them(tmp_path):
    server = Server("--data", str(tmp_path))
    name = f"{PROJECT}/instances/survives"
    with admin_clients(server.address) as clients:
        clients.tables.create_table(parent=f"{PROJECT}/instances/implied", table_id="t", table={})
        create(clients.instances, "survives").result()
        operation = clients.instances.create_cluster(
            parent=name, cluster_id="survives-two", cluster=cluster("other-zone")
        )
        clients.instances.create_app_profile(
            parent=name,
            app_profile_id="any",
            app_profile={"multi_cluster_routing_use_any": {}},
        )
        create(clients.instances, "deleted").result()
        clients.instances.delete_instance(name=f"{PROJECT}/instances/deleted")
    server.kill()
    server = Server("--data", str(tmp_path), "--strict")
    with admin_clients(server.address) as clients, data_client(server.address) as data:
        instances, tables = clients.instances, clients.tables
        assert clients.operations.get_operation(operation.operation.name).done
        found = instances.list_instances(parent=PROJECT).instances
        assert [instance.name.rsplit("/", 1)[1] for instance in found] == ["implied", "survives"]
        listed = instances.list_clusters(parent=name).clusters
        assert [c.name.rsplit("/", 1)[1] for c in listed] == ["survives-one", "survives-two"]
        unknown = f"{PROJECT}/instances/unknown"
        for call in (
            lambda: instances.get_instance(name=unknown),
            lambda: instances.list_clusters(parent=unknown),
            lambda: tables.create_table(parent=unknown, table_id="t", table={}),
            lambda: tables.list_tables(parent=unknown),
            lambda: data.ping_and_warm(name=unknown),
            lambda: list(data.read_rows(table_name=f"{unknown}/tables/t")),
        ):
            with pytest.raises(exceptions.NotFound, match="unknown"):
                call()
        table = tables.create_table(
            parent=name, table_id="t", table=admin.Table(column_families={"f": {}})
        ).name
        assert list(data.read_rows(table_name=table, app_profile_id="any")) == []
        with pytest.raises(exceptions.NotFound, match="nobody"):
            list(data.read_rows(table_name=table, app_profile_id="nobody"))
        rule = {"family_name": "f", "column_qualifier": b"q", "increment_amount": 1}
        modify = lambda profile: data.read_modify_write_row(
            table_name=table, row_key=b"k", rules=[rule], app_profile_id=profile
        )
        with pytest.raises(exceptions.FailedPrecondition, match="transactions"):
            modify("any")
        modify("default")
    assert server.terminate() == 0
