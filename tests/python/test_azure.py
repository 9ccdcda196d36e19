"""A server whose files are in Azure Blob Storage, here its emulator Azurite.
`tests/install-azurite` installs it, and STELE_AZURITE is the program. Without it the tests
are skipped; `scripts/test --long` runs them."""

import base64
import datetime
import hashlib
import hmac
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from conftest import INSTANCE, PROJECT
from server import Server
from test_object_store import ROWS, VALUE_BYTES, Client

CONTAINER = "stele"
# The account that is built into Azurite; the key is public.
ACCOUNT = "devstoreaccount1"
KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def request(method, url, body=None, headers={}):
    sent = urllib.request.Request(url, body, headers, method=method)
    with urllib.request.urlopen(sent, timeout=60) as response:
        return response.read()


class Azurite:
    """A running emulator with an empty container."""

    def __init__(self, program, dir):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        flags = ["--silent", "--skipApiVersionCheck", "--location", str(dir)]
        flags += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
        self.process = subprocess.Popen(
            [program, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        while not self.answers():
            assert self.process.poll() is None, "Azurite has ended"
            time.sleep(0.1)
        self.variables = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"{self.url}/{ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
        }
        self.create_container()

    def answers(self):
        try:
            request("GET", self.url)
        except urllib.error.HTTPError:
            return True
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    def create_container(self):
        """Sends a request that is signed as Azure demands."""
        now = datetime.datetime.now(datetime.timezone.utc)
        headers = {
            "x-ms-date": now.strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "x-ms-version": "2021-08-06",
        }
        lines = ["PUT", *[""] * 11, *[f"{name}:{value}" for name, value in headers.items()]]
        lines += [f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}", "restype:container"]
        key = base64.b64decode(KEY)
        signature = hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).digest()
        signed = base64.b64encode(signature).decode()
        headers |= {"authorization": f"SharedKey {ACCOUNT}:{signed}", "content-length": "0"}
        url = f"{self.url}/{ACCOUNT}/{CONTAINER}?restype=container"
        request("PUT", url, None, headers)

    def stop(self):
        self.process.kill()
        self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    program = os.environ.get("STELE_AZURITE")
    if not program:
        pytest.skip("STELE_AZURITE is not set: run tests/install-azurite")
    emulator = Azurite(program, tmp_path_factory.mktemp("azurite"))
    before = {name: os.environ.get(name) for name in emulator.variables}
    os.environ.update(emulator.variables)
    yield emulator
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    emulator.stop()


def start(dir, prefix, cache="cache"):
    return Server(
        *("--data", str(dir / "data"), "--store", f"az://{CONTAINER}/{prefix}"),
        *("--cache", str(dir / cache), "--cache-size", "64MiB"),
        # Little memory, so that flushes happen.
        *("--memory", "32MiB"),
    )


def stele(server, *command):
    """Runs a command against the server, and returns what it prints."""
    flags = ["--endpoint", server.address, "--project", PROJECT, "--instance", INSTANCE]
    shown = subprocess.run([os.environ["STELE_BIN"], *command, *flags], capture_output=True)
    assert shown.returncode == 0, shown.stderr.decode()
    return shown.stdout


def collected(server):
    return json.loads(stele(server, "table", "gc", "--json"))["deleted"]


def test_rows_are_in_the_store_and_come_back_after_a_crash(store, tmp_path):
    server = start(tmp_path, "crash")
    with Client(server) as client:
        client.create_table()
        client.write(range(ROWS))
        client.check(range(ROWS))
    server.kill()
    assert not list((tmp_path / "data").rglob("*.frag")), "no file is in the data directory"
    # With a new cache, every byte that was flushed comes from the store.
    server = start(tmp_path, "crash", "another")
    with Client(server) as client:
        client.check(range(ROWS))
        # Unused files are listed and deleted, the others are kept.
        stele(server, "table", "compact", "objects")
        assert collected(server) == 0, "the inputs of the compaction are marked in one round"
        assert collected(server) > 0, "and deleted in the next"
        client.check(range(ROWS))
    metrics = request("GET", f"{server.http}/metrics").decode()
    received = metrics.split("\nstele_objects_received_bytes_total ")[1].split("\n")[0]
    assert float(received) > ROWS * VALUE_BYTES / 4, "most of the data came from the store"
    assert server.terminate() == 0


def test_the_prefix_of_another_server_is_refused(store, tmp_path):
    first = start(tmp_path / "first", "owned")
    with pytest.raises(RuntimeError):
        start(tmp_path / "second", "owned")
    assert first.terminate() == 0
