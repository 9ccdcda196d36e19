"""Errors that clients receive: the code, and the texts that clients and their
tests compare."""

import pytest
from google.api_core import exceptions
from google.cloud.bigtable_admin_v2 import types as admin
from google.cloud.bigtable_v2 import types as data
from google.protobuf import duration_pb2

from conftest import PARENT, name

INVALID = exceptions.InvalidArgument
NOT_FOUND = exceptions.NotFound


def set_cell(**changes):
    cell = {"family_name": "f", "column_qualifier": b"q", "value": b"v", **changes}
    return {"set_cell": cell}


def delete_cells(**changes):
    return {"delete_from_column": {"family_name": "f", "column_qualifier": b"q", **changes}}


def times(start, end):
    return {"time_range": {"start_timestamp_micros": start, "end_timestamp_micros": end}}


MUTATIONS = {
    "none": ([], INVALID, "No mutations provided"),
    "unset": ([{}], INVALID, "No mutation set"),
    "family": ([set_cell(family_name="x")], NOT_FOUND, "Requested column family not found"),
    "family of a delete": (
        [{"delete_from_family": {"family_name": "x"}}],
        NOT_FOUND,
        "Requested column family not found",
    ),
    "granularity": (
        [set_cell(timestamp_micros=1001)],
        INVALID,
        "Timestamp granularity mismatch. Expected a multiple of 1000",
    ),
    "negative time": ([set_cell(timestamp_micros=-2)], INVALID, "negative"),
    "qualifier": (
        [set_cell(column_qualifier=b"q" * (16384 + 1))],
        INVALID,
        "Column qualifier of 16385 bytes exceeds the limit of 16384",
    ),
    "times": ([delete_cells(**times(2000, 2000))], INVALID, "must be less than"),
    "times granularity": ([delete_cells(**times(1, 2000))], INVALID, "granularity mismatch"),
    "index of the mutation": ([set_cell(), set_cell(family_name="x")], NOT_FOUND, "element #1"),
    "too many": (
        [{"delete_from_row": {}}] * 100_001,
        INVALID,
        "Too many mutations: 100001 provided; limit 100000",
    ),
}


@pytest.mark.parametrize("case", MUTATIONS)
def test_an_invalid_mutation_is_rejected_and_writes_nothing(raw, classic, case):
    mutations, error, message = MUTATIONS[case]
    table = name(classic.table_id)
    with pytest.raises(error, match=message):
        raw.mutate_row(table_name=table, row_key=b"r", mutations=mutations)
    entries = [{"row_key": b"good", "mutations": [set_cell()]}]
    entries.append({"row_key": b"r", "mutations": mutations})
    if case == "too many":
        with pytest.raises(error, match="Too many mutations: 100002"):
            list(raw.mutate_rows(table_name=table, entries=entries))
        assert classic.read_row(b"good") is None
    else:
        responses = raw.mutate_rows(table_name=table, entries=entries)
        statuses = {
            entry.index: entry.status for response in responses for entry in response.entries
        }
        assert statuses[0].code == 0 and statuses[1].code == error.grpc_status_code.value[0]
        assert message in statuses[1].message
        assert classic.read_row(b"good") is not None
    assert classic.read_row(b"r") is None


@pytest.mark.parametrize(
    ("key", "message"), [(b"", "Row keys must be non-empty"), (b"k" * 4097, "limit of 4096")]
)
def test_an_invalid_row_key_is_rejected(raw, classic, key, message):
    table = name(classic.table_id)
    rule = {"family_name": "f", "column_qualifier": b"q", "append_value": b"v"}
    for attempt in (
        lambda: raw.mutate_row(table_name=table, row_key=key, mutations=[set_cell()]),
        lambda: list(raw.read_rows({"table_name": table, "rows": {"row_keys": [key]}})),
        lambda: raw.check_and_mutate_row(
            {"table_name": table, "row_key": key, "true_mutations": [set_cell()]}
        ),
        lambda: raw.read_modify_write_row(table_name=table, row_key=key, rules=[rule]),
    ):
        with pytest.raises(INVALID, match=message):
            attempt()
    [response] = raw.mutate_rows(
        table_name=table, entries=[{"row_key": key, "mutations": [set_cell()]}]
    )
    assert response.entries[0].status.code == 3 and message in response.entries[0].status.message


def read(**fields):
    return lambda raw, table: list(raw.read_rows({"table_name": table, **fields}))


def row_range(**ends):
    return read(rows={"row_ranges": [ends]})


CALLS = {
    "no entries": (
        lambda raw, table: list(raw.mutate_rows(table_name=table, entries=[])),
        INVALID,
        "No mutations provided",
    ),
    "no rules": (
        lambda raw, table: raw.read_modify_write_row(table_name=table, row_key=b"r", rules=[]),
        INVALID,
        "No rules provided",
    ),
    "empty range": (
        row_range(start_key_closed=b"k", end_key_open=b"k"),
        INVALID,
        "Error in field 'row_ranges' : Error in element #0 : start_key must be less than end_key",
    ),
    "backward range": (
        row_range(start_key_closed=b"l", end_key_closed=b"k"),
        INVALID,
        "start_key must be less than end_key",
    ),
    "range without a row": (
        row_range(start_key_open=b"k", end_key_open=b"k\0"),
        INVALID,
        "start_key must be less than end_key",
    ),
    "negative limit": (read(rows_limit=-1), INVALID, "rows_limit"),
    "table and view": (
        read(authorized_view_name="projects/p/instances/i/tables/t/authorizedViews/v"),
        INVALID,
        "Exactly one of table name and view name",
    ),
    "malformed name": (
        lambda raw, table: list(raw.read_rows(table_name="nonsense")),
        INVALID,
        "expected in the form",
    ),
    "malformed instance": (
        lambda raw, table: raw.ping_and_warm(name="nonsense"),
        INVALID,
        "expected in the form",
    ),
    "missing table": (
        lambda raw, table: list(raw.read_rows(table_name=f"{PARENT}/tables/missing")),
        NOT_FOUND,
        f"{PARENT}/tables/missing",
    ),
    "unknown family in rules": (
        lambda raw, table: raw.read_modify_write_row(
            table_name=table,
            row_key=b"r",
            rules=[{"family_name": "x", "column_qualifier": b"q", "append_value": b"v"}],
        ),
        NOT_FOUND,
        "Requested column family not found",
    ),
    "SQL": (
        lambda raw, table: raw.prepare_query({"instance_name": PARENT, "query": "SELECT 1"}),
        exceptions.MethodNotImplemented,
        "",
    ),
    "change streams": (
        lambda raw, table: list(
            raw.generate_initial_change_stream_partitions({"table_name": table})
        ),
        exceptions.MethodNotImplemented,
        "",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_the_error_of_an_invalid_call_names_the_mistake(raw, classic, case):
    call, error, message = CALLS[case]
    with pytest.raises(error) as raised:
        call(raw, name(classic.table_id))
    assert message in raised.value.message


def test_a_range_of_one_key_is_one_row(raw, classic):
    row = classic.direct_row(b"k")
    row.set_cell("f", b"q", b"v")
    row.commit()
    both = {"start_key_closed": b"k", "end_key_closed": b"k"}
    [response] = row_range(**both)(raw, name(classic.table_id))
    assert len(response.chunks) == 1


def created(**table):
    return lambda tables: tables.create_table(
        {"parent": PARENT, "table_id": "refused", "table": table}
    )


def with_rule(**rule):
    return created(column_families={"f": {"gc_rule": rule}})


def deep_rule():
    rule = {"max_num_versions": 1}
    for _ in range(40):
        rule = {"union": {"rules": [rule]}}
    return rule


ADMIN = {
    "table id": (
        lambda tables: tables.create_table(parent=PARENT, table_id="a b", table={}),
        INVALID,
        "table_id",
    ),
    "long table id": (
        lambda tables: tables.create_table(parent=PARENT, table_id="t" * 51, table={}),
        INVALID,
        "at most 50",
    ),
    "table with a name": (created(name="given"), INVALID, "name"),
    "family name": (created(column_families={"a:b": {}}), INVALID, "a:b"),
    "no versions": (with_rule(max_num_versions=0), INVALID, "max_num_versions"),
    "short age": (with_rule(max_age=duration_pb2.Duration(nanos=1)), INVALID, "max_age"),
    "large rule": (
        with_rule(union={"rules": [{"max_num_versions": 1000}] * 200}),
        INVALID,
        "exceeds the limit of 500",
    ),
    "deep rule": (with_rule(**deep_rule()), INVALID, "nests deeper"),
    "no modifications": (
        lambda tables: tables.modify_column_families(name=f"{PARENT}/tables/x", modifications=[]),
        NOT_FOUND,
        "tables/x",
    ),
    "empty prefix": (
        lambda tables: tables.drop_row_range(
            admin.DropRowRangeRequest(name=f"{PARENT}/tables/errors", row_key_prefix=b"")
        ),
        INVALID,
        "row_key_prefix",
    ),
    "nothing to drop": (
        lambda tables: tables.drop_row_range(
            admin.DropRowRangeRequest(name=f"{PARENT}/tables/errors")
        ),
        INVALID,
        "target",
    ),
    "request over 4 MiB": (created(name="x" * (4 << 20)), exceptions.OutOfRange, "too large"),
    "snapshots": (
        lambda tables: tables.snapshot_table(
            admin.SnapshotTableRequest(name=f"{PARENT}/tables/errors", cluster="c", snapshot_id="s")
        ),
        exceptions.MethodNotImplemented,
        "",
    ),
}


@pytest.fixture(scope="module")
def errors_table(tables):
    tables.create_table(parent=PARENT, table_id="errors", table={})


@pytest.mark.parametrize("case", ADMIN)
def test_the_error_of_an_invalid_admin_call_names_the_mistake(tables, errors_table, case):
    call, error, message = ADMIN[case]
    with pytest.raises(error) as raised:
        call(tables)
    assert message in raised.value.message
    with pytest.raises(NOT_FOUND):
        tables.get_table(name=f"{PARENT}/tables/refused")
