"""Fixtures: one server for all tests, and a new table for each test."""

import itertools
import os

import grpc
import pytest
from google.cloud import bigtable
from google.cloud.bigtable import column_family
from google.cloud.bigtable.data import BigtableDataClient
from google.cloud.bigtable_admin_v2 import types as admin
from google.cloud.bigtable_v2 import BigtableClient
from google.cloud.bigtable_v2.services.bigtable.transports import BigtableGrpcTransport

from server import Server, admin_clients

PROJECT = "p"
INSTANCE = "clients"
PARENT = f"projects/{PROJECT}/instances/{INSTANCE}"

numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server():
    """An in-memory server, to which BIGTABLE_EMULATOR_HOST points."""
    server = Server("--ephemeral")
    os.environ["BIGTABLE_EMULATOR_HOST"] = server.address
    yield server
    # The server must exit cleanly whatever the tests did.
    assert server.terminate() == 0


@pytest.fixture
def table_id():
    return f"table-{next(numbers)}"


@pytest.fixture(scope="session")
def instance(server):
    """The instance in the classic client."""
    return bigtable.Client(project=PROJECT, admin=True).instance(INSTANCE)


@pytest.fixture(scope="session")
def data_client(server):
    with BigtableDataClient(project=PROJECT) as client:
        yield client


@pytest.fixture(scope="session")
def channel(server):
    with grpc.insecure_channel(server.address) as channel:
        yield channel


@pytest.fixture(scope="session")
def raw(channel):
    """The generated data client, which sends requests unchanged and does not retry."""
    return BigtableClient(transport=BigtableGrpcTransport(channel=channel))


@pytest.fixture(scope="session")
def admins(server):
    """All generated admin clients."""
    with admin_clients(server.address) as clients:
        yield clients


@pytest.fixture(scope="session")
def tables(admins):
    """The generated table admin client."""
    return admins.tables


@pytest.fixture(scope="session")
def instances(admins):
    return admins.instances


@pytest.fixture(scope="session")
def operations(admins):
    return admins.operations


@pytest.fixture
def classic(instance, table_id):
    """A table with families `f` and `g`, in the classic client."""
    table = instance.table(table_id)
    keep_all = column_family.MaxVersionsGCRule(1000)
    table.create(column_families={"f": keep_all, "g": keep_all})
    return table


@pytest.fixture
def table(data_client, classic):
    """The same table in the data client."""
    with data_client.get_table(INSTANCE, classic.table_id) as table:
        yield table


def aggregate(kind):
    """Returns a family whose cells are aggregated with `kind`: sum, min or max."""
    return admin.ColumnFamily(
        value_type={"aggregate_type": {"input_type": {"int64_type": {}}, kind: {}}}
    )


@pytest.fixture
def aggregates(data_client, tables, table_id):
    """A table whose families `sum`, `min` and `max` are aggregates."""
    families = {kind: aggregate(kind) for kind in ("sum", "min", "max")}
    families["plain"] = admin.ColumnFamily()
    tables.create_table(
        parent=PARENT, table_id=table_id, table=admin.Table(column_families=families)
    )
    with data_client.get_table(INSTANCE, table_id) as table:
        yield table


def name(table_id):
    return f"{PARENT}/tables/{table_id}"


def cells(row):
    """Returns the cells of a row, each as `family:qualifier@millis=value#label`."""
    if row is None:
        return None
    shown = []
    for cell in row:
        qualifier, value = (
            part.decode("latin-1") for part in (cell.qualifier, cell.value)
        )
        labels = "".join(f"#{label}" for label in cell.labels)
        millis = cell.timestamp_micros // 1000
        shown.append(f"{cell.family}:{qualifier}@{millis}={value}{labels}")
    return shown
