"""The asynchronous data client."""

import asyncio

import pytest
from google.api_core import exceptions
from google.cloud.bigtable.data import (
    BigtableDataClientAsync,
    MutationsExceptionGroup,
    ReadRowsQuery,
    RowMutationEntry,
    SetCell,
)
from google.cloud.bigtable.data.read_modify_write_rules import IncrementRule

from conftest import INSTANCE, PROJECT, cells


def entry(key, value=b"v", family="f"):
    return RowMutationEntry(key, SetCell(family, "q", value, timestamp_micros=1000))


def run(table_id, steps):
    """Runs `steps` with the table in a new event loop."""

    async def main():
        async with BigtableDataClientAsync(project=PROJECT) as client:
            async with client.get_table(INSTANCE, table_id) as table:
                return await steps(client, table)

    return asyncio.run(main())


def test_rows_are_written_and_read_concurrently(classic):
    async def steps(_, table):
        numbers = range(200)
        writes = (
            table.mutate_row(f"{number:03}", SetCell("f", "q", str(number), timestamp_micros=1000))
            for number in numbers
        )
        await asyncio.gather(*writes)
        rows = await asyncio.gather(*(table.read_row(f"{number:03}") for number in numbers))
        assert [cells(row) for row in rows] == [[f"f:q@1={number}"] for number in numbers]

    run(classic.table_id, steps)


def test_concurrent_increments_are_all_counted(classic):
    async def steps(_, table):
        rows = await asyncio.gather(
            *(table.read_modify_write_row("r", IncrementRule("f", "n", 1)) for _ in range(100))
        )
        assert sorted(int(row[0]) for row in rows) == list(range(1, 101))

    run(classic.table_id, steps)


def test_a_cancelled_stream_ends_on_the_server(classic, server):
    async def steps(_, table):
        value = b"x" * 100_000
        for start in range(0, 400, 40):
            entries = [entry(f"{number:03}", value) for number in range(start, start + 40)]
            await table.bulk_mutate_rows(entries)
        for _ in range(10):
            stream = await table.read_rows_stream(ReadRowsQuery())
            async for row in stream:
                assert row.row_key == b"000"
                break
            await stream.aclose()
        # Everything else still works, on the same connection.
        assert await table.row_exists("399")

    run(classic.table_id, steps)


def test_the_batcher_reports_failed_entries_and_writes_the_others(classic):
    async def steps(_, table):
        with pytest.raises(MutationsExceptionGroup) as raised:
            async with table.mutations_batcher(flush_limit_mutation_count=10) as batcher:
                for number in range(100):
                    family = "missing" if number == 50 else "f"
                    await batcher.append(entry(f"{number:02}", family=family))
        assert len(raised.value.exceptions) == 1
        rows = await table.read_rows(ReadRowsQuery())
        assert len(rows) == 99

    run(classic.table_id, steps)


def test_sql_is_unimplemented(classic):
    async def steps(client, _):
        with pytest.raises(exceptions.MethodNotImplemented):
            await client.execute_query("SELECT 1", INSTANCE)

    run(classic.table_id, steps)
