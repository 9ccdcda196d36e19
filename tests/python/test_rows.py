"""Writing and reading rows with the classic client."""

import datetime

import pytest
from google.api_core import exceptions
from google.cloud.bigtable import row_filters
from google.cloud.bigtable.row_set import RowSet

EPOCH = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)


def at(millis):
    return EPOCH + datetime.timedelta(milliseconds=millis)


def put(table, key, value=b"v", family="f", qualifier=b"q", millis=None):
    row = table.direct_row(key)
    row.set_cell(family, qualifier, value, None if millis is None else at(millis))
    row.commit()


def keys(table, **options):
    return [row.row_key.decode() for row in table.read_rows(**options)]


@pytest.fixture
def ten(classic):
    """Rows r0 to r9."""
    rows = []
    for number in range(10):
        row = classic.direct_row(f"r{number}".encode())
        row.set_cell("f", b"q", str(number).encode())
        rows.append(row)
    assert all(status.code == 0 for status in classic.mutate_rows(rows))
    return classic


def test_a_row_is_written_and_read_back(classic):
    row = classic.direct_row(b"\x00\xffkey")
    row.set_cell("f", b"", b"empty qualifier", at(5))
    row.set_cell("f", b"\xff\x00", b"\x00\xff", at(5))
    row.set_cell("g", b"n", 258, at(7))
    assert row.commit().code == 0
    read = classic.read_row(b"\x00\xffkey")
    assert read.cell_value("f", b"") == b"empty qualifier"
    assert read.cell_value("f", b"\xff\x00") == b"\x00\xff"
    assert read.cell_value("g", b"n") == (258).to_bytes(8, "big")
    assert read.cells["g"][b"n"][0].timestamp == at(7)
    assert classic.read_row(b"missing") is None


def test_versions_are_returned_newest_first(classic):
    for millis in (20, 10, 30):
        put(classic, b"r", str(millis).encode(), millis=millis)
    assert list(classic.read_row(b"r").cell_values("f", b"q")) == [
        (str(millis).encode(), millis * 1000) for millis in (30, 20, 10)
    ]
    put(classic, b"r", b"replaced", millis=20)
    assert [value for value, _ in classic.read_row(b"r").cell_values("f", b"q")] == [
        b"30",
        b"replaced",
        b"10",
    ]


def test_deletes_remove_cells_columns_families_and_rows(classic):
    for millis in (1, 2, 3):
        put(classic, b"r", b"v", millis=millis)
    put(classic, b"r", qualifier=b"other")
    put(classic, b"r", family="g")
    row = classic.direct_row(b"r")
    row.delete_cell("f", b"q", row_filters.TimestampRange(start=at(2), end=at(3)))
    row.commit()
    times = [cell.timestamp for cell in classic.read_row(b"r").find_cells("f", b"q")]
    assert times == [at(3), at(1)]
    row = classic.direct_row(b"r")
    row.delete_cell("f", b"q")
    row.commit()
    assert list(classic.read_row(b"r").cells["f"]) == [b"other"]
    row = classic.direct_row(b"r")
    row.delete_cells("g", row.ALL_COLUMNS)
    row.commit()
    assert list(classic.read_row(b"r").cells) == ["f"]
    row = classic.direct_row(b"r")
    row.delete()
    row.commit()
    assert classic.read_row(b"r") is None
    put(classic, b"r", b"older than the delete", millis=1)
    assert classic.read_row(b"r").cell_value("f", b"q") == b"older than the delete"


def test_row_sets_are_a_sorted_union(ten):
    rows = RowSet()
    for key in (b"r7", b"r2", b"r2", b"missing"):
        rows.add_row_key(key)
    rows.add_row_range_from_keys(b"r1", b"r3")
    rows.add_row_range_from_keys(b"r5", b"r6", start_inclusive=False, end_inclusive=True)
    assert keys(ten, row_set=rows) == ["r1", "r2", "r6", "r7"]
    prefix = RowSet()
    prefix.add_row_range_with_prefix("r")
    assert len(keys(ten, row_set=prefix)) == 10


def test_keys_and_limits_bound_a_read(ten):
    assert keys(ten, start_key=b"r3", end_key=b"r5") == ["r3", "r4"]
    assert keys(ten, start_key=b"r3", end_key=b"r5", end_inclusive=True)[-1] == "r5"
    assert keys(ten, limit=3) == ["r0", "r1", "r2"]
    assert keys(ten, start_key=b"r8", limit=100) == ["r8", "r9"]
    assert keys(ten) == [f"r{number}" for number in range(10)]


def test_limits_count_rows_after_the_filter(ten):
    last_three = row_filters.ValueRegexFilter(b"[789]")
    assert keys(ten, filter_=last_three, limit=2) == ["r7", "r8"]


def test_bulk_writes_report_errors_per_row(classic):
    good, bad, late = (classic.direct_row(key) for key in (b"good", b"bad", b"late"))
    good.set_cell("f", b"q", b"v")
    bad.set_cell("f", b"q", b"left out")
    bad.set_cell("missing", b"q", b"v")
    late.set_cell("g", b"q", b"v")
    statuses = classic.mutate_rows([good, bad, late])
    assert [status.code for status in statuses] == [0, 5, 0]
    assert "Requested column family not found" in statuses[1].message
    assert keys(classic) == ["good", "late"], "the bad row was not written"


def test_the_batcher_writes_everything(classic):
    with classic.mutations_batcher(flush_count=100) as batcher:
        for number in range(1000):
            row = classic.direct_row(f"{number:04}".encode())
            row.set_cell("f", b"q", b"v")
            batcher.mutate(row)
    assert len(keys(classic)) == 1000


def test_a_conditional_row_applies_one_of_two_lists(classic):
    put(classic, b"r", b"yes")
    matches = row_filters.ValueRegexFilter(b"yes")
    row = classic.conditional_row(b"r", matches)
    row.set_cell("g", b"then", b"1", state=True)
    row.set_cell("g", b"else", b"1", state=False)
    assert row.commit() is True
    row = classic.conditional_row(b"absent", matches)
    row.set_cell("g", b"then", b"1", state=True)
    row.set_cell("g", b"else", b"1", state=False)
    assert row.commit() is False
    assert list(classic.read_row(b"r").cells["g"]) == [b"then"]
    assert list(classic.read_row(b"absent").cells["g"]) == [b"else"]


def test_append_rows_increment_and_append(classic):
    row = classic.append_row(b"r")
    row.increment_cell_value("f", b"n", 5)
    row.append_cell_value("f", b"s", b"a")
    row.commit()
    row.increment_cell_value("f", b"n", -7)
    row.append_cell_value("f", b"s", b"b")
    result = row.commit()
    assert result["f"][b"n"][0][0] == (-2).to_bytes(8, "big", signed=True)
    assert result["f"][b"s"][0][0] == b"ab"
    read = classic.read_row(b"r")
    assert read.cell_value("f", b"s") == b"ab"


def test_a_write_to_a_missing_table_is_not_found(instance):
    table = instance.table("never-made")
    row = table.direct_row(b"r")
    row.set_cell("f", b"q", b"v")
    status = row.commit()
    assert status.code == 5 and "never-made" in status.message
    with pytest.raises(exceptions.NotFound, match="never-made"):
        list(table.read_rows())
