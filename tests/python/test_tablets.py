"""Tablets split and join under load, and Google's clients do not notice it."""

import json
import os
import random
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.cloud.bigtable.data import ReadRowsQuery, RowMutationEntry, SetCell
from google.cloud.bigtable.data.read_modify_write_rules import IncrementRule

from conftest import INSTANCE, PROJECT, name
from tablets import TabletAdmin

ROWS = [f"row-{number:04}".encode() for number in range(400)]
CHANGES = 1000


class Load:
    """What the clients do until the tablets have changed often enough, and what they
    have been promised. Each client has its own rows, so it knows their contents."""

    def __init__(self, classic, table):
        self.classic, self.table = classic, table
        self.done = threading.Event()
        self.written = {}
        self.added = {}

    def write(self, rows, seed):
        """Writes single rows and bulks, with both clients in turn."""
        chosen, number = random.Random(seed), 0
        while not self.done.is_set():
            number += 1
            value = f"{seed}-{number}".encode()
            some = chosen.sample(rows, chosen.randint(1, 8))
            if number % 3 == 0:
                entries = [RowMutationEntry(row, SetCell("f", b"q", value)) for row in some]
                self.table.bulk_mutate_rows(entries)
            elif number % 3 == 1:
                some = some[:1]
                self.table.mutate_row(some[0], SetCell("f", b"q", value))
            else:
                some = some[:1]
                row = self.classic.direct_row(some[0])
                row.set_cell("f", b"q", value)
                assert row.commit().code == 0
            self.written.update(dict.fromkeys(some, value))
            read = self.table.read_row(some[0])
            assert read.get_cells("f", b"q")[0].value == value
        return number

    def add(self, rows, seed):
        """Increments counters, which no client retries."""
        chosen, number = random.Random(seed), 0
        while not self.done.is_set():
            number += 1
            row = chosen.choice(rows)
            self.added[row] = self.added.get(row, 0) + 1
            after = self.table.read_modify_write_row(row, IncrementRule("g", b"n"))
            count = int.from_bytes(after.get_cells("g", b"n")[0].value, "big")
            assert count == self.added[row], row
        return number

    def scan(self, _rows, seed):
        """Reads all rows, or a part from a random row on."""
        chosen, number = random.Random(seed), 0
        while not self.done.is_set():
            number += 1
            start = chosen.randrange(len(ROWS)) if number % 2 else 0
            keys = [row.row_key for row in self.classic.read_rows(start_key=ROWS[start])]
            assert keys == ROWS[start:], "each row once and in order"
        return number

    def sample(self, _rows, _seed):
        """Reads where tablets meet."""
        number = 0
        while not self.done.is_set():
            number += 1
            samples = self.table.sample_row_keys()
            keys = [key for key, _ in samples]
            offsets = [offset for _, offset in samples]
            assert keys.pop() == b"" and offsets == sorted(offsets)
            assert keys == sorted(set(keys)), "they ascend"
        return number


def change_tablets(admin):
    """Splits and joins tablets at random rows. Returns the rows where they meet."""
    chosen, meet = random.Random(18), set()
    for number in range(CHANGES):
        if number % 200 == 100:
            admin.compact()
        if meet and chosen.random() < 0.45:
            row = chosen.choice(sorted(meet))
            admin.join(row)
            meet.remove(row)
        else:
            row = chosen.choice(ROWS) + chosen.choice([b"", b"\x00", b"-x"])
            assert admin.split(row) == (row not in meet)
            meet.add(row)
    return meet


def tablets(server, table_id):
    """Returns the tablets as the command line shows them."""
    command = [os.environ["STELE_BIN"], "table", "tablets", table_id, "--json"]
    flags = ["--endpoint", server.address, "--project", PROJECT, "--instance", INSTANCE]
    shown = subprocess.run(command + flags, check=True, capture_output=True)
    return json.loads(shown.stdout)["tablets"]


def test_a_thousand_splits_and_joins_are_not_noticed(server, channel, classic, table):
    first = [RowMutationEntry(row, SetCell("f", b"first", b"x" * 200)) for row in ROWS]
    table.bulk_mutate_rows(first)
    admin = TabletAdmin(channel, name(classic.table_id))
    admin.compact()
    load = Load(classic, table)
    work = [load.write, load.write, load.add, load.add, load.scan, load.sample]
    with ThreadPoolExecutor(len(work)) as threads:
        shares = [ROWS[at :: len(work)] for at in range(len(work))]
        running = [threads.submit(do, shares[at], at) for at, do in enumerate(work)]
        try:
            meet = change_tablets(admin)
        finally:
            load.done.set()
        counts = [one.result(timeout=60) for one in running]
    assert min(counts) > 5, counts
    rows = {row.row_key: row for row in table.read_rows(ReadRowsQuery())}
    assert list(rows) == ROWS
    for row, value in load.written.items():
        assert rows[row].get_cells("f", b"q")[0].value == value, row
    for row, count in load.added.items():
        value = rows[row].get_cells("g", b"n")[0].value
        assert int.from_bytes(value, "big") == count, row
    starts = [tablet.get("start_row") for tablet in tablets(server, classic.table_id)]
    assert len(starts) == len(meet) + 1
    for row in sorted(meet):
        admin.join(row)
    assert len(tablets(server, classic.table_id)) == 1
    assert [row.row_key for row in classic.read_rows()] == ROWS


@pytest.mark.parametrize(
    "table, row, code",
    [
        ("no-such-table", b"r", grpc.StatusCode.NOT_FOUND),
        (None, b"no tablet begins here", grpc.StatusCode.INVALID_ARGUMENT),
        (None, b"", grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_a_join_that_is_not_possible_is_refused(channel, classic, table, row, code):
    admin = TabletAdmin(channel, name(table or classic.table_id))
    with pytest.raises(grpc.RpcError) as refused:
        admin.join(row)
    assert refused.value.code() == code
