"""A server whose files are in an object store, here moto's S3: Google's client does not
notice, a lost cache loses nothing, and files of other servers are not touched."""

import json
import logging
import os
import random
import subprocess
import threading

import boto3
import grpc
import pytest
from google.cloud.bigtable_admin_v2 import BaseBigtableTableAdminClient
from google.cloud.bigtable_admin_v2 import types as admin
from google.cloud.bigtable_admin_v2.services.bigtable_table_admin.transports import (
    BigtableTableAdminGrpcTransport,
)
from google.cloud.bigtable_v2 import BigtableClient
from google.cloud.bigtable_v2 import types as data
from google.cloud.bigtable_v2.services.bigtable.transports import BigtableGrpcTransport
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from conftest import PARENT
from server import Server

BUCKET = "stele"
TABLE = f"{PARENT}/tables/objects"
ROWS = 600
VALUE_BYTES = 100_000


class AtomicWrites:
    """moto checks the condition of a PUT and stores the object in two steps. Two threads can
    therefore create one object, and the server refuses such a store. One lock around each
    write makes it a store that keeps its promises, like S3."""

    def __init__(self, app):
        self.app = app
        self.lock = threading.Lock()

    def __call__(self, environ, start_response):
        if environ["REQUEST_METHOD"] not in ("PUT", "POST"):
            return self.app(environ, start_response)
        with self.lock:
            return self.app(environ, start_response)


@pytest.fixture(scope="module")
def s3():
    """moto's S3 with an empty bucket; the environment points to it."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    app = AtomicWrites(DomainDispatcherApplication(create_backend_app))
    moto = make_server("127.0.0.1", 0, app, threaded=True)
    serving = threading.Thread(target=moto.serve_forever)
    serving.start()
    host, port = moto.server_address[:2]
    variables = {
        "AWS_ENDPOINT": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    client = boto3.client("s3", endpoint_url=variables["AWS_ENDPOINT"], region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    yield client
    client.close()
    moto.shutdown()
    serving.join()
    moto.server_close()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


def start(dir, prefix, cache="cache"):
    return Server(
        *("--data", str(dir / "data"), "--store", f"s3://{BUCKET}/{prefix}"),
        *("--cache", str(dir / cache), "--cache-size", "64MiB"),
        # Little memory, so that flushes happen.
        *("--memory", "32MiB"),
    )


def value(row):
    """Random bytes, so that compression does not keep them out of the store."""
    return random.Random(row).randbytes(VALUE_BYTES)


def key(row):
    return f"row-{row:05}".encode()


class Client:
    def __init__(self, server):
        self.channel = grpc.insecure_channel(server.address)
        self.data = BigtableClient(transport=BigtableGrpcTransport(channel=self.channel))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def create_table(self):
        tables = BaseBigtableTableAdminClient(
            transport=BigtableTableAdminGrpcTransport(channel=self.channel)
        )
        families = {"f": admin.ColumnFamily(gc_rule=admin.GcRule(max_num_versions=1))}
        table = admin.Table(column_families=families)
        tables.create_table(
            request={"parent": PARENT, "table_id": TABLE.rsplit("/")[-1], "table": table}
        )

    def write(self, rows):
        for row in rows:
            cell = data.Mutation.SetCell(
                family_name="f", column_qualifier=b"q", timestamp_micros=1000, value=value(row)
            )
            self.data.mutate_row(
                table_name=TABLE, row_key=key(row), mutations=[data.Mutation(set_cell=cell)]
            )

    def check(self, rows):
        """Reads all rows; large values come in several chunks."""
        found, current, parts = {}, None, []
        for response in self.data.read_rows(table_name=TABLE):
            for chunk in response.chunks:
                current = bytes(chunk.row_key) or current
                parts.append(bytes(chunk.value))
                if chunk.commit_row:
                    found[current], parts = b"".join(parts), []
        assert sorted(found) == [key(row) for row in rows]
        for row in rows:
            assert found[key(row)] == value(row)


def fragments(s3, prefix):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/frag/")
    return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", [])}


def test_files_are_in_the_store_and_come_back_after_a_crash(s3, tmp_path):
    server = start(tmp_path, "crash")
    with Client(server) as client:
        client.create_table()
        client.write(range(ROWS))
        client.check(range(ROWS))
    server.kill()
    stored = fragments(s3, "crash")
    assert sum(stored.values()) > ROWS * VALUE_BYTES / 4, "most of the data was flushed"
    assert not list((tmp_path / "data").rglob("*.frag")), "no file is in the data directory"
    # With the cache of before, and with a new one.
    for cache in ["cache", "another"]:
        server = start(tmp_path, "crash", cache)
        with Client(server) as client:
            client.check(range(ROWS))
        assert server.terminate() == 0


def test_the_prefix_of_another_server_is_refused(s3, tmp_path):
    first = start(tmp_path / "first", "owned")
    with pytest.raises(RuntimeError):
        start(tmp_path / "second", "owned")
    assert first.terminate() == 0
    again = start(tmp_path / "first", "owned")
    assert again.terminate() == 0


def test_unused_files_are_collected_and_used_ones_stay(s3, tmp_path):
    server = start(tmp_path, "collect")

    def collect(*flags):
        command = [os.environ["STELE_BIN"], "table", "gc", "--json", "--endpoint", server.address]
        shown = subprocess.run([*command, *flags], check=True, capture_output=True)
        return json.loads(shown.stdout)

    with Client(server) as client:
        client.create_table()
        client.write(range(ROWS))
        unused = "collect/frag/07/0-7"
        assert unused not in fragments(s3, "collect")
        s3.put_object(Bucket=BUCKET, Key=unused, Body=b"left by a crash")
        for _ in range(3):
            assert collect("--dry-run")["deleted"] == 0
        assert unused in fragments(s3, "collect")
        # Marked in one round, deleted in the next.
        collect()
        collect()
        assert unused not in fragments(s3, "collect")
        client.check(range(ROWS))
    assert server.terminate() == 0


def test_a_bucket_that_does_not_exist_is_refused(s3, tmp_path):
    with pytest.raises(RuntimeError):
        Server("--data", str(tmp_path), "--store", "s3://missing/prefix", "--cache-size", "64MiB")
