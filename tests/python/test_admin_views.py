"""Authorized views: what is outside of them is neither read nor written."""

import pytest
from google.api_core import exceptions
from google.cloud.bigtable_admin_v2 import types as admin
from google.protobuf import field_mask_pb2

from conftest import PARENT, name
from server import Server, admin_clients

mask = lambda *paths: field_mask_pb2.FieldMask(paths=paths)
DENIED = "because the mutation contains cells outside the Authorized View"


def set_cell(family, qualifier, value=b"v"):
    cell = {"family_name": family, "column_qualifier": qualifier, "timestamp_micros": 1000, "value": value}
    return {"set_cell": cell}


@pytest.fixture
def filled(tables, raw, table_id):
    """A table with rows a1, a2 and b1, each with f:open, f:pre-x, f:secret and g:q."""
    families = {"f": admin.ColumnFamily(), "g": admin.ColumnFamily(), "sum": {"value_type": {"aggregate_type": {"input_type": {"int64_type": {}}, "sum": {}}}}}
    tables.create_table(parent=PARENT, table_id=table_id, table=admin.Table(column_families=families))
    columns = [("f", b"open"), ("f", b"pre-x"), ("f", b"secret"), ("g", b"q")]
    for key in (b"a1", b"a2", b"b1"):
        mutations = [set_cell(family, qualifier) for family, qualifier in columns]
        raw.mutate_row(table_name=name(table_id), row_key=key, mutations=mutations)
    return name(table_id)


SUBSET = {
    "row_prefixes": [b"a"],
    "family_subsets": {"f": {"qualifiers": [b"open"], "qualifier_prefixes": [b"pre-"]}, "sum": {"qualifier_prefixes": [b""]}},
}


def create_view(tables, table, view_id="v", subset=SUBSET, **fields):
    return tables.create_authorized_view(
        parent=table,
        authorized_view_id=view_id,
        authorized_view=admin.AuthorizedView(subset_view=subset, **fields),
    )


@pytest.fixture
def view(tables, filled):
    return create_view(tables, filled).result().name


def read(raw, view, **request):
    """Returns the cells of a view as `row/family:qualifier`."""
    cells, row, family = [], b"", ""
    for response in raw.read_rows({"authorized_view_name": view, **request}):
        for chunk in response.chunks:
            pb = type(chunk).pb(chunk)
            row = pb.row_key or row
            family = pb.family_name.value if pb.HasField("family_name") else family
            qualifier = pb.qualifier.value.decode() if pb.HasField("qualifier") else ""
            cells.append(f"{row.decode()}/{family}:{qualifier}")
    return cells


VISIBLE = ["a1/f:open", "a1/f:pre-x", "a2/f:open", "a2/f:pre-x"]


def test_a_read_through_a_view_sees_its_subset_only(raw, view):
    assert read(raw, view) == VISIBLE
    assert read(raw, view, reversed=True) == VISIBLE[2:] + VISIBLE[:2]
    assert read(raw, view, rows={"row_keys": [b"a2", b"b1"]}) == VISIBLE[2:]
    assert read(raw, view, rows={"row_keys": [b"b1"]}) == []
    ranges = [{"start_key_closed": b"a2", "end_key_open": b"z"}]
    assert read(raw, view, rows={"row_ranges": ranges}) == VISIBLE[2:]
    assert read(raw, view, rows_limit=1) == VISIBLE[:2]
    for filter_, expected in [
        ({"family_name_regex_filter": "g"}, []),
        ({"column_qualifier_regex_filter": b"secret|open"}, ["a1/f:open", "a2/f:open"]),
        ({"cells_per_row_limit_filter": 1}, ["a1/f:open", "a2/f:open"]),
        ({"row_key_regex_filter": b"b.*"}, []),
        ({"interleave": {"filters": [{"pass_all_filter": True}, {"block_all_filter": True}]}}, VISIBLE),
        (
            {"condition": {"predicate_filter": {"column_qualifier_regex_filter": b"secret"}, "true_filter": {"pass_all_filter": True}}},
            [],
        ),
    ]:
        assert read(raw, view, filter=filter_) == expected, filter_
    responses = raw.read_rows({"authorized_view_name": view, "request_stats_view": "REQUEST_STATS_FULL"})
    stats = [r.request_stats for r in responses if r.request_stats][0].full_read_stats_view
    assert stats.read_iteration_stats.cells_seen_count == 4


def test_writes_outside_of_a_view_are_refused_and_change_nothing(raw, view, filled):
    inside = lambda key, *mutations: raw.mutate_row(
        {"authorized_view_name": view, "row_key": key, "mutations": list(mutations)}
    )
    inside(b"a3", set_cell("f", b"open"), set_cell("f", b"pre-new"))
    add = {"family_name": "sum", "column_qualifier": {"raw_value": b"n"}, "timestamp": {"raw_timestamp_micros": 0}, "input": {"int_value": 5}}
    inside(b"a3", {"add_to_cell": add})
    inside(b"a3", {"delete_from_column": {"family_name": "f", "column_qualifier": b"pre-new"}})
    inside(b"a3", {"delete_from_family": {"family_name": "sum"}})
    before = read(raw, view), list(raw.read_rows(table_name=filled))
    for key, mutation in [
        (b"b1", set_cell("f", b"open")),
        (b"a1", set_cell("f", b"secret")),
        (b"a1", set_cell("g", b"q")),
        (b"a1", set_cell("none", b"q")),
        (b"a1", {"delete_from_column": {"family_name": "f", "column_qualifier": b"secret"}}),
        (b"a1", {"delete_from_family": {"family_name": "f"}}),
        (b"a1", {"delete_from_row": {}}),
    ]:
        # One mutation that is allowed does not make the other one so.
        with pytest.raises(exceptions.PermissionDenied, match=DENIED):
            inside(key, set_cell("f", b"open"), mutation)
    assert (read(raw, view), list(raw.read_rows(table_name=filled))) == before


def test_every_other_call_is_confined_to_the_view(raw, view):
    entries = [
        {"row_key": b"a1", "mutations": [set_cell("f", b"open", b"bulk")]},
        {"row_key": b"b1", "mutations": [set_cell("f", b"open", b"bulk")]},
    ]
    (response,) = raw.mutate_rows({"authorized_view_name": view, "entries": entries})
    assert [entry.status.code for entry in response.entries] == [0, 7]
    check = lambda key, qualifier, mutation: raw.check_and_mutate_row(
        {
            "authorized_view_name": view,
            "row_key": key,
            "predicate_filter": {"column_qualifier_regex_filter": qualifier},
            "true_mutations": [mutation],
        }
    ).predicate_matched
    assert check(b"a1", b"open", set_cell("f", b"open"))
    assert not check(b"a1", b"secret", set_cell("f", b"open")), "it cannot be tested for"
    for key, mutation in [(b"a1", set_cell("g", b"q")), (b"b1", set_cell("f", b"open"))]:
        with pytest.raises(exceptions.PermissionDenied, match=DENIED):
            check(key, b"open", mutation)
    append = lambda key, family, qualifier: raw.read_modify_write_row(
        {
            "authorized_view_name": view,
            "row_key": key,
            "rules": [{"family_name": family, "column_qualifier": qualifier, "append_value": b"+"}],
        }
    )
    assert append(b"a1", "f", b"pre-x").row.families[0].columns[0].cells[0].value == b"v+"
    for target in [(b"b1", "f", b"open"), (b"a1", "f", b"secret"), (b"a1", "g", b"q")]:
        with pytest.raises(exceptions.PermissionDenied, match=DENIED):
            append(*target)


def test_samples_do_not_show_keys_outside_of_the_view(tables, raw, table_id):
    request = {
        "parent": PARENT,
        "table_id": table_id,
        "table": {"column_families": {"f": {}}},
        "initial_splits": [{"key": key} for key in (b"a", b"b1", b"b2", b"c")],
    }
    table = tables.create_table(request).name
    view = create_view(tables, table, subset={"row_prefixes": [b"b"], "family_subsets": {"f": {"qualifier_prefixes": [b""]}}}).result().name
    sampled = [sample.row_key for sample in raw.sample_row_keys({"authorized_view_name": view})]
    assert sampled == [b"b1", b"b2", b""]


def test_views_are_administered(tables, filled):
    operation = create_view(tables, filled, "one", deletion_protection=True)
    view = operation.result()
    assert operation.metadata.original_request.authorized_view_id == "one"
    assert view.etag and view.deletion_protection
    create_view(tables, filled, "two").result()
    with pytest.raises(exceptions.AlreadyExists, match="already exists"):
        create_view(tables, filled, "two")
    listed = list(tables.list_authorized_views(parent=filled))
    assert [found.name.rsplit("/", 1)[1] for found in listed] == ["one", "two"]
    assert all(not found.etag for found in listed), "names only, by default"
    request = admin.ListAuthorizedViewsRequest(parent=filled, page_size=1, view="FULL")
    pages = list(tables.list_authorized_views(request).pages)
    assert [len(page.authorized_views) for page in pages] == [1, 1]
    assert pages[0].authorized_views[0] == view == tables.get_authorized_view(name=view.name)
    update = lambda paths, **fields: tables.update_authorized_view(
        authorized_view=admin.AuthorizedView(name=view.name, **fields), update_mask=mask(*paths)
    )
    with pytest.raises(exceptions.Aborted, match="etag"):
        update(["deletion_protection"], etag="stale")
    with pytest.raises(exceptions.InvalidArgument, match="update_mask"):
        update([])
    with pytest.raises(exceptions.InvalidArgument, match="update_mask"):
        update(["name"])
    with pytest.raises(exceptions.FailedPrecondition, match="deletion protection"):
        tables.delete_authorized_view(name=view.name)
    with pytest.raises(exceptions.FailedPrecondition, match="deletion protection"):
        tables.delete_table(name=filled)
    changed = update(["deletion_protection"], etag=view.etag).result()
    assert not changed.deletion_protection and changed.etag != view.etag
    assert changed.subset_view == view.subset_view
    with pytest.raises(exceptions.Aborted, match="etag"):
        tables.delete_authorized_view({"name": view.name, "etag": view.etag})
    tables.delete_authorized_view({"name": view.name, "etag": changed.etag})
    with pytest.raises(exceptions.NotFound, match="one"):
        tables.get_authorized_view(name=view.name)


def test_a_view_belongs_to_its_table_over_kills_drops_and_undeletes(tmp_path):
    server = Server("--data", str(tmp_path))
    with admin_clients(server.address) as clients:
        create = lambda: clients.tables.create_table(
            parent=PARENT, table_id="t", table=admin.Table(column_families={"f": {}})
        ).name
        table = create()
        view = create_view(clients.tables, table).result()
        clients.tables.delete_table(name=table)
    server.kill()
    server = Server("--data", str(tmp_path))
    with admin_clients(server.address) as clients:
        tables = clients.tables
        create = lambda: tables.create_table(
            parent=PARENT, table_id="t", table=admin.Table(column_families={"f": {}})
        ).name
        create()
        assert list(tables.list_authorized_views(parent=table)) == []
        with pytest.raises(exceptions.NotFound, match="/v"):
            tables.get_authorized_view(name=view.name)
        tables.delete_table(name=table)
        # The last one deleted has no view; the one before has.
        tables.undelete_table(name=table).result()
        assert list(tables.list_authorized_views(parent=table)) == []
    assert server.terminate() == 0


def test_a_request_names_a_table_or_one_view(raw, view, filled):
    both = {"table_name": filled, "authorized_view_name": view}
    with pytest.raises(exceptions.InvalidArgument, match="Exactly one"):
        list(raw.read_rows(both))
    with pytest.raises(exceptions.NotFound, match="none"):
        read(raw, f"{filled}/authorizedViews/none")
    with pytest.raises(exceptions.InvalidArgument, match="expected in the form"):
        read(raw, "v")
    with pytest.raises(exceptions.MethodNotImplemented, match="Materialized"):
        list(raw.read_rows({"materialized_view_name": "m"}))
