"""Every filter, on one small table, with the cells that it must return."""

import datetime

import pytest
from google.api_core import exceptions
from google.cloud.bigtable.data import ReadRowsQuery, RowMutationEntry, SetCell
from google.cloud.bigtable.data import row_filters as f
from google.cloud.bigtable_v2 import types as data

from conftest import INSTANCE, PARENT, cells, name

# row -> cells as formatted by `cells`: family:qualifier@millis=value.
ROWS = {
    "apple": ["f:a@3=3", "f:a@2=2", "f:a@1=1", "f:b@1=x", "g:a@5=y"],
    "bean": ["f:b@1=x", "g:a@1=\x00\xff"],
    "cherry": ["g:zz@1=long value"],
}
EVERYTHING = dict(ROWS)


def time(millis):
    return datetime.datetime.fromtimestamp(millis / 1000, datetime.timezone.utc)


@pytest.fixture(scope="module")
def filled(data_client, tables):
    table_id = "filtered"
    families = {"f": {}, "g": {}}
    tables.create_table(
        parent=PARENT, table_id=table_id, table={"column_families": families}
    )
    with data_client.get_table(INSTANCE, table_id) as table:
        entries = []
        for key, shown in ROWS.items():
            mutations = []
            for cell in shown:
                column, rest = cell.split("@", 1)
                family, qualifier = column.split(":")
                millis, value = rest.split("=")
                mutations.append(
                    SetCell(
                        family,
                        qualifier,
                        value.encode("latin-1"),
                        timestamp_micros=int(millis) * 1000,
                    )
                )
            entries.append(RowMutationEntry(key, mutations))
        table.bulk_mutate_rows(entries)
        yield table


def chain(*filters):
    return f.RowFilterChain(filters=list(filters))


def union(*filters):
    return f.RowFilterUnion(filters=list(filters))


def stripped(rows):
    return {
        key: [cell.split("=")[0] + "=" for cell in cells] for key, cells in rows.items()
    }


NEWEST = {
    "apple": ["f:a@3=3", "f:b@1=x", "g:a@5=y"],
    "bean": ROWS["bean"],
    "cherry": ROWS["cherry"],
}
X = {"apple": ["f:b@1=x"], "bean": ["f:b@1=x"]}

CASES = {
    "pass all": (f.PassAllFilter(True), EVERYTHING),
    "block all": (f.BlockAllFilter(True), {}),
    "row key": (f.RowKeyRegexFilter(b"b.*"), {"bean": ROWS["bean"]}),
    "row key is matched whole": (f.RowKeyRegexFilter(b"ea"), {}),
    "row key alternatives": (
        f.RowKeyRegexFilter(b"bean|che.*"),
        {"bean": ROWS["bean"], "cherry": ROWS["cherry"]},
    ),
    "family": (
        f.FamilyNameRegexFilter("g"),
        {"apple": ["g:a@5=y"], "bean": ["g:a@1=\x00\xff"], "cherry": ROWS["cherry"]},
    ),
    "unknown family": (f.FamilyNameRegexFilter("none"), {}),
    "qualifier": (f.ColumnQualifierRegexFilter(b"z+"), {"cherry": ROWS["cherry"]}),
    "qualifier is matched whole": (f.ColumnQualifierRegexFilter(b"z"), {}),
    "value": (f.ValueRegexFilter(b"x"), X),
    "value in bytes": (f.ValueRegexFilter(rb"\x00\C"), {"bean": ["g:a@1=\x00\xff"]}),
    "literal value": (f.LiteralValueFilter(b"\x00\xff"), {"bean": ["g:a@1=\x00\xff"]}),
    "literal metacharacters": (f.LiteralValueFilter(b"long.value"), {}),
    "column range": (
        f.ColumnRangeFilter("f", start_qualifier=b"a", end_qualifier=b"b"),
        {"apple": ROWS["apple"][:4], "bean": ["f:b@1=x"]},
    ),
    "column range, open ends": (
        f.ColumnRangeFilter(
            "f",
            start_qualifier=b"a",
            end_qualifier=b"c",
            inclusive_start=False,
            inclusive_end=False,
        ),
        X,
    ),
    "column range of a family": (f.ColumnRangeFilter("g"), {
        "apple": ["g:a@5=y"], "bean": ["g:a@1=\x00\xff"], "cherry": ROWS["cherry"],
    }),
    "value range": (
        f.ValueRangeFilter(start_value=b"2", end_value=b"3"),
        {"apple": ["f:a@3=3", "f:a@2=2"]},
    ),
    "value range, open ends": (
        f.ValueRangeFilter(
            start_value=b"2", end_value=b"x", inclusive_start=False, inclusive_end=False
        ),
        {"apple": ["f:a@3=3"], "cherry": ROWS["cherry"]},
    ),
    "time range": (
        f.TimestampRangeFilter(start=time(2), end=time(5)),
        {"apple": ["f:a@3=3", "f:a@2=2"]},
    ),
    "time range without end": (f.TimestampRangeFilter(start=time(5)), {"apple": ["g:a@5=y"]}),
    "cells per column": (f.CellsColumnLimitFilter(1), NEWEST),
    "cells per row": (
        f.CellsRowLimitFilter(2),
        {"apple": ROWS["apple"][:2], "bean": ROWS["bean"], "cherry": ROWS["cherry"]},
    ),
    "cells offset": (
        f.CellsRowOffsetFilter(1),
        {"apple": ROWS["apple"][1:], "bean": ROWS["bean"][1:]},
    ),
    "strip": (f.StripValueTransformerFilter(True), stripped(ROWS)),
    "label": (
        chain(f.ValueRegexFilter(b"x"), f.ApplyLabelFilter("mark-1")),
        {key: ["f:b@1=x#mark-1"] for key in X},
    ),
    "bitmask": (f.ValueBitmaskFilter(b"\x00\x0f"), {"bean": ["g:a@1=\x00\xff"]}),
    "chain": (
        chain(f.FamilyNameRegexFilter("f"), f.CellsRowOffsetFilter(2), f.CellsRowLimitFilter(1)),
        {"apple": ["f:a@1=1"]},
    ),
    "interleave keeps duplicates": (
        union(f.ValueRegexFilter(b"x"), f.ColumnQualifierRegexFilter(b"b")),
        {"apple": ["f:b@1=x"] * 2, "bean": ["f:b@1=x"] * 2},
    ),
    "interleave in row order": (
        union(f.FamilyNameRegexFilter("g"), f.CellsRowLimitFilter(1)),
        {
            "apple": ["f:a@3=3", "g:a@5=y"],
            "bean": ["f:b@1=x", "g:a@1=\x00\xff"],
            "cherry": ROWS["cherry"] * 2,
        },
    ),
    "labels in branches": (
        union(
            chain(f.ValueRegexFilter(b"x"), f.ApplyLabelFilter("one")),
            chain(f.ValueRegexFilter(b"y"), f.ApplyLabelFilter("two")),
        ),
        {"apple": ["f:b@1=x#one", "g:a@5=y#two"], "bean": ["f:b@1=x#one"]},
    ),
    "condition": (
        f.ConditionalRowFilter(
            f.ValueRegexFilter(b"y"), f.CellsRowLimitFilter(1), f.StripValueTransformerFilter(True)
        ),
        {
            "apple": ["f:a@3=3"],
            "bean": stripped(ROWS)["bean"],
            "cherry": stripped(ROWS)["cherry"],
        },
    ),
    "condition without else": (
        f.ConditionalRowFilter(f.ValueRegexFilter(b"y"), f.CellsRowLimitFilter(1)),
        {"apple": ["f:a@3=3"]},
    ),
    "sink": (
        chain(
            f.FamilyNameRegexFilter("f"),
            union(f.SinkFilter(True), f.PassAllFilter(True)),
            f.BlockAllFilter(True),
        ),
        {"apple": ROWS["apple"][:4], "bean": ["f:b@1=x"]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_filter_returns_the_expected_cells(filled, case):
    row_filter, expected = CASES[case]
    rows = filled.read_rows(ReadRowsQuery(row_filter=row_filter))
    assert {row.row_key.decode(): cells(row) for row in rows} == expected


@pytest.mark.parametrize("case", CASES)
def test_a_filter_returns_the_same_cells_from_rows_read_one_by_one(filled, case):
    row_filter, expected = CASES[case]
    rows = {key: filled.read_row(key, row_filter=row_filter) for key in ROWS}
    assert {key: cells(row) for key, row in rows.items() if row is not None} == expected


@pytest.mark.parametrize("case", CASES)
def test_a_row_exists_if_the_filter_returns_a_cell(filled, case):
    row_filter, expected = CASES[case]
    matched = filled.check_and_mutate_row(
        "apple",
        row_filter,
        # The row is unchanged whether it matches or not.
        true_case_mutations=SetCell("f", "b", b"x", timestamp_micros=1000),
    )
    assert matched == ("apple" in expected)


def test_a_sample_contains_whole_rows(filled):
    rows = filled.read_rows(ReadRowsQuery(row_filter=f.RowSampleFilter(0.5)))
    for row in rows:
        assert cells(row) == ROWS[row.row_key.decode()]


def deep(levels):
    row_filter = {"pass_all_filter": True}
    for _ in range(levels):
        row_filter = {"chain": {"filters": [row_filter, {"pass_all_filter": True}]}}
    return row_filter


INVALID = {
    "pass_all_filter": {"pass_all_filter": False},
    "block_all_filter": {"block_all_filter": False},
    "strip_value_transformer": {"strip_value_transformer": False},
    "row_key_regex_filter": {"row_key_regex_filter": b"("},
    "value_regex_filter": {"value_regex_filter": b"(?=look)"},
    "column_qualifier_regex_filter": {"column_qualifier_regex_filter": rb"(a)\1"},
    "family_name_regex_filter": {"family_name_regex_filter": "a:b"},
    "row_sample_filter": {"row_sample_filter": 1.0},
    "cells_per_row_limit_filter": {"cells_per_row_limit_filter": 0},
    "cells_per_column_limit_filter": {"cells_per_column_limit_filter": -1},
    "cells_per_row_offset_filter": {"cells_per_row_offset_filter": -1},
    "apply_label_transformer": {"apply_label_transformer": "Not A Label"},
    "column_range_filter": {
        "column_range_filter": {
            "family_name": "f",
            "start_qualifier_closed": b"b",
            "end_qualifier_closed": b"a",
        }
    },
    "value_range_filter": {
        "value_range_filter": {"start_value_closed": b"b", "end_value_closed": b"a"}
    },
    "chain": {"chain": {"filters": [{"pass_all_filter": True}]}},
    "interleave": {"interleave": {"filters": []}},
    "condition": {"condition": {}},
    "sink": {
        "condition": {"predicate_filter": {"pass_all_filter": True}, "true_filter": {"sink": True}}
    },
    "exceeds maximum size of 20480 bytes": {"value_regex_filter": b"x" * 20481},
    "deeper": deep(21),
}


@pytest.mark.parametrize("message", INVALID)
def test_an_invalid_filter_is_rejected_before_any_row_is_read(raw, tables, message):
    table_id = "empty-and-filtered"
    try:
        tables.create_table(parent=PARENT, table_id=table_id, table={})
    except exceptions.AlreadyExists:
        pass
    request = data.ReadRowsRequest(table_name=name(table_id), filter=INVALID[message])
    with pytest.raises(exceptions.InvalidArgument, match=message):
        list(raw.read_rows(request=request))
