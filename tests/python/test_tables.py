"""Creating, reading, changing and deleting tables with the classic client."""

import datetime

import pytest
from google.api_core import exceptions
from google.cloud.bigtable import column_family, enums
from google.cloud.bigtable_admin_v2 import types as admin
from google.protobuf import field_mask_pb2

from conftest import INSTANCE, PARENT, aggregate, name

versions = column_family.MaxVersionsGCRule
days = lambda count: column_family.MaxAgeGCRule(datetime.timedelta(days=count))


def test_a_table_is_created_found_listed_and_deleted(instance, table_id):
    table = instance.table(table_id)
    assert not table.exists()
    table.create(column_families={"f": versions(10)})
    assert table.exists()
    assert table_id in [table.table_id for table in instance.list_tables()]
    with pytest.raises(exceptions.AlreadyExists, match="already exists"):
        table.create()
    table.delete()
    assert not table.exists()
    with pytest.raises(exceptions.NotFound, match=table_id):
        table.delete()


def test_lists_are_paged_and_sorted_by_name(tables):
    parent = "projects/p/instances/pages"
    ids = [f"t{number:02}" for number in range(7)]
    for table_id in reversed(ids):
        tables.create_table(parent=parent, table_id=table_id, table=admin.Table())
    request = admin.ListTablesRequest(parent=parent, page_size=3)
    pages = [
        [table.name.rsplit("/", 1)[1] for table in page.tables]
        for page in tables.list_tables(request).pages
    ]
    assert pages == [ids[0:3], ids[3:6], ids[6:]]
    with pytest.raises(exceptions.InvalidArgument, match="page_size"):
        tables.list_tables(admin.ListTablesRequest(parent=parent, page_size=-1))
    with pytest.raises(exceptions.InvalidArgument, match="page_token"):
        tables.list_tables(admin.ListTablesRequest(parent=parent, page_token="bogus"))


RULES = {
    "none": None,
    "versions": versions(3),
    "age": days(2),
    "union": column_family.GCRuleUnion([versions(2), days(1)]),
    "intersection": column_family.GCRuleIntersection([versions(5), days(9)]),
    "nested": column_family.GCRuleUnion(
        [
            versions(1),
            column_family.GCRuleIntersection(
                [days(3), column_family.GCRuleUnion([versions(2), days(4)])]
            ),
        ]
    ),
}


def test_gc_rules_are_read_back_unchanged(instance, table_id):
    table = instance.table(table_id)
    table.create(column_families=RULES)
    listed = table.list_column_families()
    assert {name: family.gc_rule for name, family in listed.items()} == RULES


def test_families_are_added_changed_and_dropped(classic):
    family = classic.column_family("late", versions(2))
    family.create()
    assert set(classic.list_column_families()) == {"f", "g", "late"}
    with pytest.raises(exceptions.AlreadyExists, match="already exists"):
        family.create()
    changed = classic.column_family("late", days(1))
    changed.update()
    assert classic.list_column_families()["late"].gc_rule == days(1)
    family.delete()
    assert set(classic.list_column_families()) == {"f", "g"}
    for attempt in (family.delete, family.update):
        with pytest.raises(exceptions.NotFound, match="late"):
            attempt()


def test_cells_of_a_dropped_family_are_deleted(classic):
    row = classic.direct_row(b"r")
    row.set_cell("f", b"q", b"stays")
    row.set_cell("g", b"q", b"goes")
    row.commit()
    family = classic.column_family("g")
    family.delete()
    family.create()
    assert list(classic.read_row(b"r").cells) == ["f"]


def test_modifications_are_applied_in_order_and_atomically(tables, classic):
    table = name(classic.table_id)
    rule = lambda count: {"gc_rule": {"max_num_versions": count}}
    tables.modify_column_families(
        name=table,
        modifications=[
            {"id": "a", "create": rule(1)},
            {"id": "a", "update": rule(7)},
            {"id": "b", "create": {}},
            {"id": "b", "drop": True},
        ],
    )
    families = tables.get_table(name=table).column_families
    assert families["a"].gc_rule.max_num_versions == 7 and "b" not in families
    with pytest.raises(exceptions.NotFound):
        tables.modify_column_families(
            name=table,
            modifications=[{"id": "c", "create": {}}, {"id": "missing", "drop": True}],
        )
    assert "c" not in tables.get_table(name=table).column_families


def test_the_type_of_an_aggregate_cannot_change(tables, aggregates):
    with pytest.raises(exceptions.InvalidArgument, match="Immutable fields 'value_type"):
        tables.modify_column_families(
            name=name(aggregates.table_id),
            modifications=[
                {
                    "id": "sum",
                    "update": aggregate("max"),
                    "update_mask": {"paths": ["value_type"]},
                }
            ],
        )


def test_splits_are_the_sampled_keys_and_then_the_end(instance, table_id, data_client):
    splits = [f"split-{number}-".encode() for number in range(1, 10)]
    table = instance.table(table_id)
    table.create(initial_split_keys=reversed(splits), column_families={"f": None})
    samples = list(table.sample_row_keys())
    assert [sample.row_key for sample in samples] == [*splits, b""]
    offsets = [sample.offset_bytes for sample in samples]
    assert offsets == sorted(offsets)
    for number in range(10):
        row = table.direct_row(f"split-{number}-row".encode())
        row.set_cell("f", b"q", b"v" * 100)
        row.commit()
    with data_client.get_table(INSTANCE, table_id) as data:
        samples = data.sample_row_keys()
    assert [key for key, _ in samples] == [*splits, b""]
    assert samples[-1][1] > 0, "unflushed data is included"


def test_a_table_without_splits_has_one_sample(classic):
    assert [sample.row_key for sample in classic.sample_row_keys()] == [b""]


def test_rows_are_dropped_by_prefix_and_then_all(classic):
    for prefix in ("a", "b", "c"):
        for number in range(5):
            row = classic.direct_row(f"{prefix}{number}".encode())
            row.set_cell("f", b"q", b"v")
            row.commit()
    keys = lambda: [row.row_key.decode() for row in classic.read_rows()]
    classic.drop_by_prefix("b")
    assert keys() == [f"{prefix}{number}" for prefix in "ac" for number in range(5)]
    row = classic.direct_row(b"b1")
    row.set_cell("f", b"q", b"again")
    row.commit()
    assert "b1" in keys()
    classic.drop_by_prefix("a")
    classic.drop_by_prefix("c")
    assert keys() == ["b1"]
    classic.truncate()
    assert keys() == []


def test_views_return_their_fields(tables, classic):
    table = name(classic.table_id)
    view = admin.Table.View
    shown = lambda view: tables.get_table(admin.GetTableRequest(name=table, view=view))
    assert not shown(view.NAME_ONLY).column_families
    assert shown(view.SCHEMA_VIEW).granularity == admin.Table.TimestampGranularity.MILLIS
    states = shown(view.REPLICATION_VIEW).cluster_states
    assert list(states) == [f"{INSTANCE}-c1"]
    full = shown(view.FULL)
    assert set(full.column_families) == {"f", "g"} and full.cluster_states


def test_the_classic_client_shows_clusters_and_encryption(classic):
    cluster = f"{INSTANCE}-c1"
    states = classic.get_cluster_states()
    assert states[cluster].replication_state == enums.Table.ReplicationState.READY
    [info] = classic.get_encryption_info()[cluster]
    assert info.encryption_type == enums.EncryptionInfo.EncryptionType.GOOGLE_DEFAULT_ENCRYPTION


def test_consistency_tokens_become_consistent_and_invalid_ones_are_rejected(tables, classic):
    table = name(classic.table_id)
    token = tables.generate_consistency_token(name=table).consistency_token
    assert tables.check_consistency(name=table, consistency_token=token).consistent
    with pytest.raises(exceptions.InvalidArgument):
        tables.check_consistency(name=table, consistency_token="bogus")


def test_an_instance_exists_once_it_is_named(instance, classic):
    assert instance.exists()
    instances, failed = instance._client.list_instances()
    assert INSTANCE in [instance.instance_id for instance in instances] and not failed
    clusters, failed = instance.list_clusters()
    assert [cluster.cluster_id for cluster in clusters] == [f"{INSTANCE}-c1"] and not failed
    assert [profile.app_profile_id for profile in instance.list_app_profiles()] == ["default"]


def test_unsupported_calls_are_unimplemented_and_create_nothing(tables, table_id, instance):
    table = admin.Table(change_stream_config={"retention_period": {"seconds": 86400 * 2}})
    with pytest.raises(exceptions.MethodNotImplemented, match="change_stream_config"):
        tables.create_table(parent=PARENT, table_id=table_id, table=table)
    assert not instance.table(table_id).exists()
    with pytest.raises(exceptions.MethodNotImplemented):
        tables.get_iam_policy(resource=name(table_id))
    with pytest.raises(exceptions.MethodNotImplemented):
        list(tables.list_schema_bundles(parent=name(table_id)))


def test_a_protected_table_is_not_deleted(tables, table_id):
    table = admin.Table(deletion_protection=True, column_families={"f": {}})
    tables.create_table(parent=PARENT, table_id=table_id, table=table)
    with pytest.raises(exceptions.FailedPrecondition):
        tables.delete_table(name=name(table_id))
    with pytest.raises(exceptions.FailedPrecondition):
        tables.modify_column_families(
            name=name(table_id), modifications=[{"id": "f", "drop": True}]
        )


def test_protection_is_removed_by_an_update_and_then_the_table_is_deleted(tables, table_id):
    table = admin.Table(deletion_protection=True, column_families={"f": {}})
    tables.create_table(parent=PARENT, table_id=table_id, table=table)
    update = admin.Table(name=name(table_id), deletion_protection=False)
    mask = field_mask_pb2.FieldMask(paths=["deletion_protection"])
    operation = tables.update_table(table=update, update_mask=mask)
    updated = operation.result(timeout=60)
    assert not updated.deletion_protection and "f" in updated.column_families
    with pytest.raises(exceptions.InvalidArgument, match="update_mask"):
        tables.update_table(table=update, update_mask=field_mask_pb2.FieldMask())
    tables.delete_table(name=name(table_id))
