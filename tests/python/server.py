"""A server process for the tests, on free ports. The readiness line that it
prints contains its addresses."""

import contextlib
import json
import os
import subprocess
import types

import grpc
from google.api_core import operations_v1
from google.cloud.bigtable_admin_v2 import (
    BaseBigtableTableAdminClient,
    BigtableInstanceAdminClient,
)
from google.cloud.bigtable_admin_v2.services.bigtable_instance_admin.transports import (
    BigtableInstanceAdminGrpcTransport,
)
from google.cloud.bigtable_admin_v2.services.bigtable_table_admin.transports import (
    BigtableTableAdminGrpcTransport,
)
from google.cloud.bigtable_v2 import BigtableClient
from google.cloud.bigtable_v2.services.bigtable.transports import BigtableGrpcTransport
from google.longrunning import operations_pb2_grpc


class Server:
    """A running `stele serve`. STELE_BIN is the path of the binary."""

    def __init__(self, *flags):
        binary = os.environ["STELE_BIN"]
        command = [binary, "serve", "--grpc-port", "0", "--http-port", "0", "--metastore-port", "off", *flags]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"no readiness line: {' '.join(command)}")
        self.ready = json.loads(line)

    @property
    def address(self):
        return self.ready["grpc"]

    @property
    def http(self):
        return f"http://{self.ready['http']}"

    def terminate(self):
        """Sends SIGTERM and returns the exit code."""
        self.process.terminate()
        return self._wait()

    def kill(self):
        self.process.kill()
        return self._wait()

    def _wait(self):
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        return code


@contextlib.contextmanager
def admin_clients(address):
    """The generated admin clients of a server."""
    with grpc.insecure_channel(address) as channel:
        operations = operations_v1.OperationsClient(channel)
        # The client has no call for it.
        stub = operations_pb2_grpc.OperationsStub(channel)
        operations.wait_operation = stub.WaitOperation
        tables = BaseBigtableTableAdminClient(
            transport=BigtableTableAdminGrpcTransport(channel=channel)
        )
        # Its public form waits for an operation that follows in Google's service.
        tables.restore_table = tables._restore_table
        yield types.SimpleNamespace(
            channel=channel,
            tables=tables,
            instances=BigtableInstanceAdminClient(
                transport=BigtableInstanceAdminGrpcTransport(channel=channel)
            ),
            operations=operations,
        )


@contextlib.contextmanager
def data_client(address):
    """The generated data client of a server."""
    with grpc.insecure_channel(address) as channel:
        yield BigtableClient(transport=BigtableGrpcTransport(channel=channel))
