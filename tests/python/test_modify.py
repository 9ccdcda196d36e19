"""Increments, appends, aggregates and conditional writes with the data client."""

import pytest
from google.api_core import exceptions
from google.cloud.bigtable.data import (
    AddToCell,
    DeleteAllFromFamily,
    DeleteAllFromRow,
    DeleteRangeFromColumn,
    SetCell,
)
from google.cloud.bigtable.data.read_modify_write_rules import (
    AppendValueRule,
    IncrementRule,
)
from google.cloud.bigtable.data.row_filters import CellsRowLimitFilter, ValueRegexFilter
from google.cloud.bigtable_v2 import types as data

from conftest import cells, name

INT64_MAX = 2**63 - 1


def number(value):
    return value.to_bytes(8, "big", signed=True)


@pytest.mark.parametrize(
    ("start", "by", "end"),
    [
        (0, 1, 1),
        (5, -7, -2),
        (INT64_MAX, 1, -INT64_MAX - 1),
        (-INT64_MAX - 1, -1, INT64_MAX),
        (INT64_MAX, INT64_MAX, -2),
    ],
)
def test_increments_wrap_around(table, start, by, end):
    table.mutate_row("r", SetCell("f", "n", number(start)))
    row = table.read_modify_write_row("r", IncrementRule("f", "n", by))
    assert row[0].value == number(end) and int(row[0]) == end
    assert table.read_row("r", row_filter=CellsRowLimitFilter(1))[0].value == number(end)


def test_a_missing_cell_counts_as_zero_and_as_empty(table):
    rules = [IncrementRule("f", "n", 3), AppendValueRule("g", "s", b"a")]
    row = table.read_modify_write_row("r", rules)
    assert [cell.value for cell in row] == [number(3), b"a"]


def test_rules_see_what_earlier_rules_did(table):
    rules = [
        AppendValueRule("f", "n", number(40)),
        IncrementRule("f", "n", 2),
        AppendValueRule("f", "s", b"a"),
        AppendValueRule("f", "s", b"b"),
    ]
    row = table.read_modify_write_row("r", rules)
    assert [(cell.qualifier, cell.value) for cell in row] == [(b"n", number(42)), (b"s", b"ab")]


def test_the_response_contains_the_changed_columns_in_read_order(table):
    table.mutate_row("r", SetCell("f", "untouched", b"v"))
    rules = [AppendValueRule("g", "b", b"1"), AppendValueRule("f", "z", b"2")]
    rules += [AppendValueRule("f", "a", b"3")]
    row = table.read_modify_write_row("r", rules)
    assert [(cell.family, cell.qualifier) for cell in row] == [("f", b"a"), ("f", b"z"), ("g", b"b")]


def test_an_empty_append_creates_an_empty_cell(table):
    table.read_modify_write_row("r", AppendValueRule("f", "s", b""))
    assert [cell.value for cell in table.read_row("r")] == [b""]


def test_older_versions_remain_and_timestamps_do_not_decrease(table):
    future = 4_000_000_000_000_000
    table.mutate_row("r", SetCell("f", "s", b"old", timestamp_micros=1000))
    table.read_modify_write_row("r", AppendValueRule("f", "s", b"+"))
    assert [cell.value for cell in table.read_row("r")] == [b"old+", b"old"]
    table.mutate_row("r", SetCell("f", "s", b"new", timestamp_micros=future))
    table.read_modify_write_row("r", AppendValueRule("f", "s", b"+"))
    row = table.read_row("r")
    assert (row[0].value, row[0].timestamp_micros) == (b"new+", future)
    assert len(list(row)) == 3


def test_a_cell_of_other_than_8_bytes_is_not_incremented(table):
    table.mutate_row("r", SetCell("f", "n", b"short", timestamp_micros=1000))
    with pytest.raises(exceptions.FailedPrecondition, match="64-bit values"):
        table.read_modify_write_row(
            "r", [AppendValueRule("f", "s", b"left out"), IncrementRule("f", "n", 1)]
        )
    assert cells(table.read_row("r")) == ["f:n@1=short"]


def test_additions_are_aggregated(aggregates):
    for value in (5, -3, 40):
        for family in ("sum", "min", "max"):
            aggregates.mutate_row("r", AddToCell(family, "n", value, timestamp_micros=0))
    row = aggregates.read_row("r")
    values = {cell.family: int.from_bytes(cell.value, "big", signed=True) for cell in row}
    assert values == {"max": 40, "min": -3, "sum": 42}


def test_states_are_merged(raw, aggregates):
    column = {
        "family_name": "sum",
        "column_qualifier": {"raw_value": b"n"},
        "timestamp": {"raw_timestamp_micros": 0},
    }
    raw.mutate_row(
        table_name=name(aggregates.table_id),
        row_key=b"r",
        mutations=[
            {"add_to_cell": {**column, "input": {"int_value": 1}}},
            {"add_to_cell": {**column, "input": {"int_value": 2}}},
            {"merge_to_cell": {**column, "input": {"raw_value": number(100)}}},
        ],
    )
    [cell] = aggregates.read_row("r")
    assert cell.value == number(103) and cell.timestamp_micros == 0


def test_mutations_must_match_the_type_of_the_family(aggregates):
    with pytest.raises(exceptions.InvalidArgument, match="sum is an aggregate"):
        aggregates.mutate_row("r", SetCell("sum", "n", b"v"))
    with pytest.raises(exceptions.InvalidArgument, match="plain is not an aggregate"):
        aggregates.mutate_row("r", AddToCell("plain", "n", 1, timestamp_micros=0))
    with pytest.raises(exceptions.InvalidArgument, match="aggregate"):
        aggregates.read_modify_write_row("r", IncrementRule("sum", "n", 1))
    assert aggregates.read_row("r") is None


def test_a_check_chooses_one_of_two_lists(table):
    table.mutate_row("r", SetCell("f", "q", b"yes", timestamp_micros=1000))
    ways = {
        "true_case_mutations": [SetCell("g", "then", b"", timestamp_micros=0)],
        "false_case_mutations": [SetCell("g", "else", b"", timestamp_micros=0)],
    }
    assert table.check_and_mutate_row("r", ValueRegexFilter(b"yes"), **ways) is True
    assert table.check_and_mutate_row("other", None, **ways) is False
    assert table.check_and_mutate_row("other", None, **ways) is True
    assert cells(table.read_row("r")) == ["f:q@1=yes", "g:then@0="]
    assert cells(table.read_row("other")) == ["g:else@0=", "g:then@0="]


def test_one_of_the_two_lists_may_be_empty_but_not_both(table, raw):
    only_then = {"true_case_mutations": SetCell("f", "q", b"v")}
    assert table.check_and_mutate_row("absent", None, **only_then) is False
    assert table.read_row("absent") is None
    with pytest.raises(exceptions.InvalidArgument, match="No mutations provided"):
        raw.check_and_mutate_row(
            request=data.CheckAndMutateRowRequest(table_name=name(table.table_id), row_key=b"r")
        )


def test_an_invalid_mutation_is_rejected_in_either_list(table):
    with pytest.raises(exceptions.NotFound, match="Requested column family not found"):
        table.check_and_mutate_row(
            "r",
            None,
            true_case_mutations=SetCell("missing", "q", b"v"),
            false_case_mutations=SetCell("f", "q", b"v"),
        )
    assert table.read_row("r") is None


def test_mutations_of_a_row_are_applied_in_order(table):
    table.mutate_row(
        "r",
        [
            SetCell("f", "a", b"1", timestamp_micros=1000),
            SetCell("g", "a", b"1", timestamp_micros=1000),
            DeleteAllFromRow(),
            SetCell("f", "a", b"2", timestamp_micros=2000),
            SetCell("f", "a", b"3", timestamp_micros=3000),
            SetCell("f", "b", b"4", timestamp_micros=1000),
            DeleteRangeFromColumn("f", b"a", 2000, 3000),
            SetCell("g", "b", b"5", timestamp_micros=1000),
            DeleteAllFromFamily("g"),
            SetCell("g", "c", b"6", timestamp_micros=1000),
        ],
    )
    assert cells(table.read_row("r")) == ["f:a@3=3", "f:b@1=4", "g:c@1=6"]
