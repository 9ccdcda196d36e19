"""Tests the metastore with the Python client etcd3. Its generated messages are
too old for the native protobuf library, so run the tests with
PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python."""

import hashlib
import io
import threading

import etcd3
import grpc
import pytest

from server import Server

WAIT_SECONDS = 20


@pytest.fixture(scope="session")
def server():
    server = Server("--ephemeral", "--metastore-port", "0")
    yield server
    assert server.terminate() == 0


@pytest.fixture
def client(server):
    host, port = server.ready["metastore"].rsplit(":", 1)
    with etcd3.client(host=host, port=int(port), timeout=WAIT_SECONDS) as client:
        for _, meta in list(client.get_all(keys_only=True)):
            client.delete(meta.key)
        yield client


def test_keys_are_put_read_and_deleted(client):
    client.put("/a", "1")
    client.put("/b", "2")
    value, meta = client.get("/a")
    assert (value, meta.key, meta.version) == (b"1", b"/a", 1)
    assert client.get("/none") == (None, None)
    previous = client.put("/a", "3", prev_kv=True).prev_kv
    assert previous.value == b"1"
    assert [value for value, _ in client.get_prefix("/", sort_order="descend")] == [b"2", b"3"]
    assert [meta.key for _, meta in client.get_all(keys_only=True)] == [b"/a", b"/b"]
    assert client.delete("/a") and not client.delete("/a")
    assert client.delete_prefix("/").deleted == 1


def test_a_key_is_replaced_only_if_it_is_as_expected(client):
    assert client.put_if_not_exists("/k", "1")
    assert not client.put_if_not_exists("/k", "2")
    assert client.replace("/k", "1", "2")
    assert not client.replace("/k", "1", "3")
    assert client.get("/k")[0] == b"2"


def test_a_transaction_takes_one_of_two_branches(client):
    client.put("/k", "x")
    done, answers = client.transaction(
        compare=[client.transactions.value("/k") == "x", client.transactions.version("/k") > 0],
        success=[client.transactions.put("/k", "y"), client.transactions.get("/k")],
        failure=[client.transactions.delete("/k")],
    )
    assert done and answers[1][0][0] == b"y"
    done, _ = client.transaction(
        compare=[client.transactions.create("/k") == 0],
        success=[client.transactions.delete("/k")],
        failure=[client.transactions.put("/k", "z")],
    )
    assert not done and client.get("/k")[0] == b"z"


def test_keys_are_deleted_with_their_lease(client):
    lease = client.lease(600)
    client.put("/leased", "v", lease=lease)
    assert lease.granted_ttl == 600 and lease.keys == [b"/leased"]
    assert 0 < lease.remaining_ttl <= 600
    assert lease.refresh()[0].TTL == 600
    lease.revoke()
    assert client.get("/leased") == (None, None)
    with pytest.raises(grpc.RpcError) as rejected:
        client.put("/leased", "v", lease=lease.id)
    assert rejected.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_watcher_receives_past_and_then_new_events(client):
    first = client.put("/w/a", "1").header.revision
    client.delete("/w/a")
    events, cancel = client.watch_prefix("/w/", start_revision=first, prev_kv=True)
    timer = threading.Timer(WAIT_SECONDS, cancel)
    timer.start()
    received = [next(events), next(events)]
    client.put("/w/b", "2")
    received.append(next(events))
    timer.cancel()
    cancel()
    shown = [(type(event).__name__, event.key, event.value) for event in received]
    assert shown == [
        ("PutEvent", b"/w/a", b"1"),
        ("DeleteEvent", b"/w/a", b""),
        ("PutEvent", b"/w/b", b"2"),
    ]
    assert received[1].prev_value == b"1"


def test_a_watcher_of_compacted_history_is_cancelled(client):
    old = client.put("/k", "1").header.revision
    new = client.put("/k", "2").header.revision
    client.compact(new)
    events, cancel = client.watch("/k", start_revision=old)
    timer = threading.Timer(WAIT_SECONDS, cancel)
    timer.start()
    with pytest.raises(etcd3.exceptions.RevisionCompactedError) as rejected:
        next(events)
    timer.cancel()
    assert rejected.value.compacted_revision == new


def test_a_lock_is_acquired_and_released(client):
    for _ in range(2):
        with client.lock("one", ttl=60) as lock:
            assert lock.is_acquired()
            assert client.get(lock.key)[1].lease_id == lock.lease.id
        assert not lock.is_acquired()


def test_the_member_reports_its_status(client, server):
    status = client.status()
    assert status.version.startswith("3.") and status.db_size > 0
    members = list(client.members)
    assert [member.client_urls[0] for member in members] == [f"http://{server.ready['metastore']}"]
    assert status.leader.id == members[0].id
    assert client.hash() != 0
    client.defragment()
    assert list(client.list_alarms()) == []


def test_a_snapshot_ends_with_its_checksum(client):
    client.put("/s", "x" * 100_000)
    written = io.BytesIO()
    client.snapshot(written)
    snapshot = written.getvalue()
    assert snapshot.startswith(b"SteleMS1") and b"x" * 100_000 in snapshot
    assert hashlib.sha256(snapshot[:-32]).digest() == snapshot[-32:]
