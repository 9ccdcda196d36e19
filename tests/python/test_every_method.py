"""Every method of the three services and of operations, as Google's client knows them,
answers: none hangs, panics, or fails with INTERNAL or UNKNOWN, whatever the request."""

import contextlib
import random
import re
import sys

import grpc
import pytest
from google.api_core import exceptions
from google.cloud.bigtable_admin_v2.services.bigtable_instance_admin.transports import (
    BigtableInstanceAdminGrpcTransport,
)
from google.cloud.bigtable_admin_v2.services.bigtable_table_admin.transports import (
    BigtableTableAdminGrpcTransport,
)
from google.cloud.bigtable_v2.services.bigtable.transports import BigtableGrpcTransport
from google.longrunning import operations_pb2
from google.protobuf.descriptor import FieldDescriptor as Field

DATA = "google.bigtable.v2.Bigtable"
OPERATIONS = "google.longrunning.Operations"
INSTANCE = "projects/walk/instances/walk-a"
NAMES = [
    "projects/walk",
    INSTANCE,
    "projects/walk/instances/-",
    f"{INSTANCE}/clusters/walk-a-c1",
    f"{INSTANCE}/clusters/-",
    f"{INSTANCE}/clusters/walk-a-c1/backups/b",
    f"{INSTANCE}/tables/t",
    f"{INSTANCE}/tables/t/authorizedViews/v",
    f"{INSTANCE}/appProfiles/default",
    "projects/walk/locations/zone",
    f"operations/{INSTANCE}/operations/1",
    "walk-b",
    "t",
    "f",
    "default",
    "display_name",
    "*",
    "",
    "x" * 300,
    "\u00e9\u0000/",
]
# Answered with UNIMPLEMENTED and a sentence.
UNSUPPORTED = re.compile(
    "Snapshot|IamPolicy|IamPermissions|SchemaBundle|LogicalView|MaterializedView|MemoryLayer"
    "|HotTablets|ChangeStream|PrepareQuery|ExecuteQuery|^Open"
)
NEVER = {
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS,
}


def methods():
    """Returns the path and the request type of each method."""
    found = {}
    for transport in (
        BigtableTableAdminGrpcTransport,
        BigtableInstanceAdminGrpcTransport,
        BigtableGrpcTransport,
    ):
        module = sys.modules[transport.__module__]
        with open(module.__file__) as source:
            calls = re.findall(
                r'"/(google[\w./]+)",\s*request_serializer=(\w+)\.(\w+)\.', source.read()
            )
        for path, types, name in calls:
            kind = getattr(getattr(module, types), name)
            found[path] = kind.pb() if hasattr(kind, "pb") else kind
    service = operations_pb2.DESCRIPTOR.services_by_name["Operations"]
    for method in service.methods:
        name = method.input_type.name
        found[f"{OPERATIONS}/{method.name}"] = getattr(operations_pb2, name)
    # Newer than the client; the request is not known.
    for name in ("GetClientConfiguration", "OpenTable", "OpenAuthorizedView", "OpenMaterializedView"):
        found[f"{DATA}/{name}"] = None
    return found


METHODS = methods()


def value(field, random, depth):
    if field.type == Field.TYPE_STRING:
        return random.choice(NAMES)
    if field.type == Field.TYPE_BYTES:
        return random.choice([b"", b"a", b"\xff" * 20])
    if field.type == Field.TYPE_BOOL:
        return random.random() < 0.5
    if field.type == Field.TYPE_ENUM:
        return random.choice([*field.enum_type.values_by_number, 99])
    if field.type in (Field.TYPE_FLOAT, Field.TYPE_DOUBLE):
        return random.choice([0.0, 0.5, -1.0])
    if field.type in (Field.TYPE_UINT32, Field.TYPE_UINT64):
        return random.choice([0, 1, 2**31])
    return random.choice([0, 1, 3, -1, 1000, 2**31 - 1])


def fill(message, random, depth=0):
    """Sets some fields of a message to values that are sometimes valid."""
    for field in message.DESCRIPTOR.fields:
        if random.random() < (0.3 if depth == 0 else 0.5) or depth > 4:
            continue
        if field.is_repeated and field.message_type and field.message_type.GetOptions().map_entry:
            of = field.message_type.fields_by_name["value"]
            key = value(field.message_type.fields_by_name["key"], random, depth)
            if of.message_type:
                fill(getattr(message, field.name)[key], random, depth + 1)
            else:
                getattr(message, field.name)[key] = value(of, random, depth)
        elif field.is_repeated and field.message_type:
            for _ in range(random.randint(0, 2)):
                fill(getattr(message, field.name).add(), random, depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).append(value(field, random, depth))
        elif field.message_type:
            getattr(message, field.name).SetInParent()
            fill(getattr(message, field.name), random, depth + 1)
        else:
            setattr(message, field.name, value(field, random, depth))
    return message


def status(channel, path, request):
    """Returns the code and text of a call, whatever kind of response the method has."""
    call = channel.unary_stream(f"/{path}")(request, timeout=30)
    try:
        for _ in call:
            pass
    except grpc.RpcError:
        pass
    return call.code(), call.details()


def test_the_client_knows_the_methods_of_all_services():
    services = {}
    for path in METHODS:
        services.setdefault(path.split("/")[0].rsplit(".", 1)[1], []).append(path)
    counts = {service: len(paths) for service, paths in services.items()}
    # More than that is new in the API: decide what to answer, and raise the number.
    assert counts == {
        "BigtableTableAdmin": 35,
        "BigtableInstanceAdmin": 34,
        "Bigtable": 15,
        "Operations": 5,
    }


@pytest.mark.parametrize("path", METHODS)
def test_any_request_is_answered(channel, tables, path):
    method = path.split("/")[1]
    seeded = random.Random(path)
    with contextlib.suppress(exceptions.AlreadyExists):
        tables.create_table(parent=INSTANCE, table_id="t", table={"column_families": {"f": {}}})
    requests = [b"", b"\x0a\x7f", b"\x0f"]
    if METHODS[path]:
        kind = METHODS[path] if isinstance(METHODS[path], type) else type(METHODS[path])
        requests += [fill(kind(), seeded).SerializeToString() for _ in range(12)]
    for request in requests:
        code, text = status(channel, path, request)
        assert code not in NEVER, f"{code}: {text}: {request}"
        if UNSUPPORTED.search(method):
            assert code == grpc.StatusCode.UNIMPLEMENTED
            assert text == f"{method} is not supported"
        else:
            assert text != f"{method} is not supported"


def test_the_server_is_well_afterwards(channel):
    code, _ = status(channel, f"{DATA}/PingAndWarm", b"\x0a" + bytes([len(INSTANCE)]) + INSTANCE.encode())
    assert code == grpc.StatusCode.OK


def test_sessions_are_declined(channel):
    """The configuration says that no request should use a session, and not to ask again."""
    request = b"\x0a" + bytes([len(INSTANCE)]) + INSTANCE.encode()
    (answer,) = channel.unary_stream(f"/{DATA}/GetClientConfiguration")(request)
    # session_configuration (2) is there and empty; stop_polling (3) is true.
    assert answer == b"\x12\x00\x18\x01"
    code, _ = status(channel, f"{DATA}/GetClientConfiguration", b"")
    assert code == grpc.StatusCode.INVALID_ARGUMENT
