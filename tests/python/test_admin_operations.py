"""Operations that persist, deletion protection, and tables that come back."""

import pytest
from google.api_core import exceptions
from google.cloud.bigtable_admin_v2 import types as admin
from google.longrunning import operations_pb2
from google.protobuf import field_mask_pb2

from conftest import PARENT, name
from server import Server, admin_clients


def protect(tables, table, value):
    return tables.update_table(
        table=admin.Table(name=table, deletion_protection=value),
        update_mask=field_mask_pb2.FieldMask(paths=["deletion_protection"]),
    )


def test_protection_is_switched_by_an_operation_that_clients_wait_for(tables, classic):
    table = name(classic.table_id)
    operation = protect(tables, table, True)
    assert operation.done() and operation.result().deletion_protection
    assert operation.metadata.name == table
    with pytest.raises(exceptions.FailedPrecondition, match="deletion protection"):
        tables.delete_table(name=table)
    with pytest.raises(exceptions.FailedPrecondition):
        tables.modify_column_families(
            name=table, modifications=[{"id": "f", "drop": True}]
        )
    assert not protect(tables, table, False).result().deletion_protection
    tables.delete_table(name=table)


@pytest.mark.parametrize(
    "paths, error",
    [
        ([], exceptions.InvalidArgument),
        (["*"], exceptions.InvalidArgument),
        (["granularity"], exceptions.InvalidArgument),
        (["column_families"], exceptions.MethodNotImplemented),
        (["row_key_schema"], exceptions.MethodNotImplemented),
        (["change_stream_config.retention_period"], exceptions.MethodNotImplemented),
    ],
)
def test_other_updates_of_tables_are_refused_by_name(tables, classic, paths, error):
    with pytest.raises(error, match="update_mask"):
        tables.update_table(
            table=admin.Table(name=name(classic.table_id)),
            update_mask=field_mask_pb2.FieldMask(paths=paths),
        )


def test_operations_are_found_listed_waited_for_and_forgotten(tables, operations, classic):
    table = name(classic.table_id)
    names = [protect(tables, table, value).operation.name for value in (True, False)]
    assert len(set(names)) == 2
    for found in names:
        assert operations.get_operation(found).done
        waited = operations.wait_operation(
            operations_pb2.WaitOperationRequest(name=found)
        )
        assert waited.name == found
        operations.cancel_operation(found)
    assert [found.name for found in operations.list_operations(f"operations/{table}", "")] == names
    operations.delete_operation(names[0])
    for call in (operations.get_operation, operations.delete_operation, operations.cancel_operation):
        with pytest.raises(exceptions.NotFound, match="Operation not found"):
            call(names[0])
    assert [found.name for found in operations.list_operations(f"operations/{table}", "")] == names[1:]


def test_a_deleted_table_comes_back_unless_its_name_is_taken(tmp_path):
    server = Server("--data", str(tmp_path))
    with admin_clients(server.address) as clients:
        tables, operations = clients.tables, clients.operations
        parent = "projects/p/instances/undelete"
        table = f"{parent}/tables/t"
        create = lambda family: tables.create_table(
            parent=parent,
            table_id="t",
            table=admin.Table(column_families={family: admin.ColumnFamily()}),
        )
        create("first")
        tables.delete_table(name=table)
        create("second")
        with pytest.raises(exceptions.AlreadyExists, match="already exists"):
            tables.undelete_table(name=table)
        tables.delete_table(name=table)
        operation = tables.undelete_table(name=table)
        assert set(operation.result().column_families) == {"second"}
        recorded = operation.operation.name
        tables.delete_table(name=table)
        tables.undelete_table(name=table).result()
        with pytest.raises(exceptions.NotFound, match="never"):
            tables.undelete_table(name=f"{parent}/tables/never")
        with pytest.raises(exceptions.InvalidArgument, match="expected in the form"):
            tables.undelete_table(name="t")
        # Tables and operations survive a kill at once after their acknowledgement.
        protect(tables, table, True).result()
    server.kill()
    server = Server("--data", str(tmp_path))
    with admin_clients(server.address) as clients:
        assert clients.tables.get_table(name=table).deletion_protection
        assert clients.operations.get_operation(recorded).done
    assert server.terminate() == 0
