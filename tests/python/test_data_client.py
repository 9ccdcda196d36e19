"""The data client: queries, shards, bulk writes, and permanent errors that are
not retried."""

import pytest
from google.api_core import exceptions
from google.cloud.bigtable.data import (
    DeleteAllFromRow,
    MutationsExceptionGroup,
    ReadRowsQuery,
    RowMutationEntry,
    RowRange,
    SetCell,
)
from google.cloud.bigtable.data.row_filters import ValueRegexFilter
from google.cloud.bigtable_v2 import types as data

from conftest import INSTANCE, PARENT, cells, name


def entry(key, value=b"v", family="f"):
    return RowMutationEntry(key, SetCell(family, "q", value, timestamp_micros=1000))


def keys(rows):
    return [row.row_key.decode() for row in rows]


@pytest.fixture
def hundred(table):
    table.bulk_mutate_rows([entry(f"r{number:02}") for number in range(100)])
    return table


def test_a_missing_row_reads_as_none(table):
    assert table.read_row("r") is None and not table.row_exists("r")
    table.mutate_row("r", SetCell("f", "q", b"v", timestamp_micros=5000))
    assert cells(table.read_row("r")) == ["f:q@5=v"] and table.row_exists("r")
    assert table.read_row("r", row_filter=ValueRegexFilter(b"other")) is None
    table.mutate_row("r", DeleteAllFromRow())
    assert table.read_row("r") is None


def test_queries_have_keys_ranges_and_limits(hundred):
    query = ReadRowsQuery(
        row_keys=["r50", "r01", "r50", "none"],
        row_ranges=[RowRange("r10", "r13"), RowRange("r12", "r14", False, True)],
    )
    found = ["r01", "r10", "r11", "r12", "r13", "r14", "r50"]
    assert keys(hundred.read_rows(query)) == found
    query.limit = 3
    assert keys(hundred.read_rows(query)) == found[:3]
    assert keys(hundred.read_rows(ReadRowsQuery(row_ranges=RowRange("r97")))) == ["r97", "r98", "r99"]
    assert len(hundred.read_rows(ReadRowsQuery())) == 100


def test_a_stream_can_be_abandoned(hundred):
    stream = hundred.read_rows_stream(ReadRowsQuery())
    assert next(stream).row_key == b"r00"
    stream.close()
    assert hundred.row_exists("r99")


def test_shards_of_a_query_cover_all_its_rows(data_client, tables, table_id):
    splits = [{"key": f"r{number}0".encode()} for number in range(1, 10)]
    tables.create_table(
        request={
            "parent": PARENT,
            "table_id": table_id,
            "table": {"column_families": {"f": {}}},
            "initial_splits": splits,
        }
    )
    with data_client.get_table(INSTANCE, table_id) as table:
        table.bulk_mutate_rows([entry(f"r{number:02}") for number in range(100)])
        samples = table.sample_row_keys()
        shards = ReadRowsQuery().shard(samples)
        assert len(shards) == 10
        assert keys(table.read_rows_sharded(shards)) == [f"r{number:02}" for number in range(100)]


def test_rows_descend_when_a_read_is_reversed(raw, hundred):
    request = data.ReadRowsRequest(
        table_name=name(hundred.table_id),
        reversed=True,
        rows_limit=3,
        rows={"row_ranges": [{"start_key_closed": b"r10", "end_key_open": b"r20"}]},
    )
    chunks = [chunk for response in raw.read_rows(request) for chunk in response.chunks]
    assert [chunk.row_key for chunk in chunks] == [b"r19", b"r18", b"r17"]


def test_requested_statistics_are_in_the_last_message(raw, hundred):
    request = data.ReadRowsRequest(
        table_name=name(hundred.table_id),
        filter={"row_key_regex_filter": b"r.7"},
        request_stats_view=data.ReadRowsRequest.RequestStatsView.REQUEST_STATS_FULL,
    )
    *_, last = raw.read_rows(request)
    stats = last.request_stats.full_read_stats_view.read_iteration_stats
    assert (stats.rows_seen_count, stats.rows_returned_count) == (100, 10)
    assert (stats.cells_seen_count, stats.cells_returned_count) == (100, 10)
    request.rows = {"row_keys": [b"none"]}
    [only] = raw.read_rows(request)
    assert not only.chunks and "request_stats" in only


def test_bulk_errors_name_the_entries_and_are_not_retried(table):
    entries = [entry("a"), entry("b", family="missing"), entry("c")]
    with pytest.raises(MutationsExceptionGroup) as raised:
        table.bulk_mutate_rows(entries, operation_timeout=60)
    [failed] = raised.value.exceptions
    assert failed.index == 1 and isinstance(failed.__cause__, exceptions.NotFound)
    assert keys(table.read_rows(ReadRowsQuery())) == ["a", "c"]


def test_the_batcher_flushes_when_closed(table):
    with table.mutations_batcher(flush_limit_mutation_count=50) as batcher:
        for number in range(500):
            batcher.append(entry(f"{number:03}"))
    assert len(table.read_rows(ReadRowsQuery())) == 500


# A call that is retried fails only at its own timeout, with another exception.
@pytest.mark.parametrize(
    "attempt",
    [
        lambda table: table.read_rows(ReadRowsQuery(), operation_timeout=60),
        lambda table: table.read_row("r", operation_timeout=60),
        lambda table: table.mutate_row("r", SetCell("f", "q", b"", 0), operation_timeout=60),
        lambda table: table.sample_row_keys(operation_timeout=60),
    ],
)
def test_a_missing_table_fails_without_retries(data_client, attempt):
    with data_client.get_table(INSTANCE, "never-made") as table:
        with pytest.raises(exceptions.NotFound, match="never-made"):
            attempt(table)


def test_sql_is_unimplemented_and_views_have_to_be_created(data_client, hundred, tables):
    with pytest.raises(exceptions.MethodNotImplemented):
        data_client.execute_query("SELECT 1", INSTANCE)
    with data_client.get_authorized_view(INSTANCE, hundred.table_id, "view") as view:
        with pytest.raises(exceptions.NotFound, match="view"):
            view.read_row("r00")
        subset = {"row_prefixes": [b"r0"], "family_subsets": {"f": {"qualifier_prefixes": [b""]}}}
        tables.create_authorized_view(
            parent=hundred.table_name,
            authorized_view_id="view",
            authorized_view={"subset_view": subset},
        )
        assert view.read_row("r00") is not None and view.read_row("r10") is None
