"""Large cells, large rows, and message sizes that every client accepts."""

import os

import grpc
import pytest
from google.api_core import exceptions
from google.cloud.bigtable.data import ReadRowsQuery, RowMutationEntry, SetCell
from google.cloud.bigtable_v2 import BigtableClient
from google.cloud.bigtable_v2 import types as data
from google.cloud.bigtable_v2.services.bigtable.transports import BigtableGrpcTransport

from conftest import name

MIB = 1 << 20

# The client needs many seconds for each 100 MiB, and times out on a busy machine.
slow = pytest.mark.skipif(
    "STELE_LONG" not in os.environ, reason="scripts/test --long sends cells of 100 MiB"
)


def pattern(size, seed=0):
    """Returns bytes in which all blocks differ, so that misplaced ones are noticed."""
    return b"".join(
        (seed + block).to_bytes(8, "big") * 128 for block in range(-(-size // 1024))
    )[:size]


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, MIB, 5_000_000, 10 * MIB])
def test_a_large_cell_is_read_back_unchanged(table, size):
    value = pattern(size)
    table.mutate_row("r", SetCell("f", "q", value))
    [cell] = table.read_row("r")
    assert cell.value == value


def test_messages_stay_within_the_default_limit_of_clients(server, table):
    """The Go client in emulator mode rejects messages of more than 4 MiB."""
    table.mutate_row("r", SetCell("f", "a", pattern(5_000_000)))
    table.bulk_mutate_rows([
        RowMutationEntry(f"s{number}", SetCell("f", "q", pattern(82_000, number)))
        for number in range(40)
    ])
    limited = grpc.insecure_channel(
        server.address, options=[("grpc.max_receive_message_length", 4 * MIB)]
    )
    with limited:
        client = BigtableClient(transport=BigtableGrpcTransport(channel=limited))
        sizes, pieces = [], 0
        for response in client.read_rows(table_name=name(table.table_id)):
            sizes.append(data.ReadRowsResponse.pb(response).ByteSize())
            pieces += sum(chunk.value_size > 0 for chunk in response.chunks)
    assert max(sizes) <= 2 * MIB and pieces >= 4


def test_a_thousand_rows_of_82_kb_are_scanned(table):
    for start in range(0, 1000, 100):
        table.bulk_mutate_rows([
            RowMutationEntry(f"{number:04}", SetCell("f", "q", pattern(82_000, number)))
            for number in range(start, start + 100)
        ])
    count = 0
    for row in table.read_rows_stream(ReadRowsQuery(), operation_timeout=60):
        assert row[0].value == pattern(82_000, int(row.row_key))
        count += 1
    assert count == 1000


@slow
def test_two_cells_of_100_mib_are_one_row(channel, table):
    """Writes the cells one by one and reads the whole row."""
    size = 100 * MIB
    for number, qualifier in enumerate(("a", "b")):
        table.mutate_row(
            "r",
            SetCell("f", qualifier, pattern(size, number), timestamp_micros=1000),
            operation_timeout=60,
        )
    row = table.read_row("r", operation_timeout=60)
    assert [cell.value == pattern(size, number) for number, cell in enumerate(row)] == [True, True]
    with pytest.raises(exceptions.InvalidArgument, match="exceeds the limit"):
        table.mutate_row("r", SetCell("f", "q", bytes(size + 1)), operation_timeout=60)


@slow
def test_a_row_of_more_than_256_mib_is_not_read_whole(table, raw):
    value = pattern(90 * MIB)
    for qualifier in ("a", "b", "c"):
        table.mutate_row("large", SetCell("f", qualifier, value), operation_timeout=60)
    table.mutate_row("small", SetCell("f", "q", b"v"))
    with pytest.raises(exceptions.FailedPrecondition, match="exceeds the limit of 256MiB"):
        table.read_row("large", operation_timeout=60)
    request = data.ReadRowsRequest(
        table_name=name(table.table_id), filter={"strip_value_transformer": True}
    )
    chunks = [chunk for response in raw.read_rows(request) for chunk in response.chunks]
    assert [chunk.qualifier for chunk in chunks] == [b"a", b"b", b"c", b"q"]
