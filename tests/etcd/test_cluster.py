"""Tests the Python client etcd3 against three members, with certificates on
every connection and users. Needs openssl to create the certificates."""

import os
import shutil
import socket
import subprocess

import etcd3
import grpc
import pytest

from server import Server

NAMES = ["a", "b", "c"]
WAIT_SECONDS = 30


class Member(Server):
    """A running `stele metastore serve`."""

    def __init__(self, *flags):
        command = [os.environ["STELE_BIN"], "metastore", "serve", *flags]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Returns an authority, and a certificate for localhost with its key."""
    if not shutil.which("openssl"):
        pytest.skip("openssl not found")
    directory = tmp_path_factory.mktemp("certificates")
    path = {name: str(directory / name) for name in ["ca", "ca-key", "cert", "key", "request", "names"]}
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *curve, "-subj", "/CN=authority", "-keyout", path["ca-key"], "-out", path["ca"])
    openssl("req", *curve, "-subj", "/CN=member", "-keyout", path["key"], "-out", path["request"])
    with open(path["names"], "w") as names:
        names.write("subjectAltName=DNS:localhost\n")
    openssl(
        "x509", "-req", "-in", path["request"], "-CA", path["ca"], "-CAkey", path["ca-key"],
        "-CAcreateserial", "-extfile", path["names"], "-out", path["cert"],
    )  # fmt: skip
    os.chmod(path["key"], 0o600)
    return path


@pytest.fixture(scope="module")
def ports(files, tmp_path_factory):
    """Starts three members. Returns their ports for clients."""
    directory = tmp_path_factory.mktemp("members")
    members = ",".join(f"{name}=https://localhost:{free_port()}" for name in NAMES)
    ports = [free_port() for _ in NAMES]
    running = [
        Member(
            "--name", name, "--data-dir", str(directory / name), "--initial-cluster", members,
            "--listen-client-urls", f"https://localhost:{port}",
            "--cert-file", files["cert"], "--key-file", files["key"], "--trusted-ca-file", files["ca"],
            "--peer-cert-file", files["cert"], "--peer-key-file", files["key"],
            "--peer-trusted-ca-file", files["ca"],
        )
        for name, port in zip(NAMES, ports)
    ]  # fmt: skip
    for member in running:
        assert member.process.stdout.readline(), "the member is not ready"
    yield ports
    for member in running:
        assert member.terminate() == 0


@pytest.fixture(scope="module")
def connect(files, ports):
    """Returns a function that connects to a member."""

    def connect(port, **user):
        return etcd3.client(
            host="localhost", port=port, timeout=WAIT_SECONDS, ca_cert=files["ca"],
            cert_cert=files["cert"], cert_key=files["key"], **user,
        )  # fmt: skip

    return connect


def call(client, method, **fields):
    """Calls a method of Auth, which the client has no functions for."""
    name = method if method.startswith("Auth") else f"Auth{method}"
    message = getattr(etcd3.etcdrpc, f"{name}Request")(**fields)
    stub = etcd3.etcdrpc.AuthStub(client.channel)
    return getattr(stub, method)(message, WAIT_SECONDS)


def test_keys_written_at_one_member_are_read_at_all_with_users(connect, ports):
    with connect(ports[0]) as client:
        call(client, "UserAdd", name="root", password="toor")
        call(client, "UserGrantRole", user="root", role="root")
        call(client, "AuthEnable")
    root = {"user": "root", "password": "toor"}
    for number, port in enumerate(ports):
        with connect(port, **root) as client:
            client.put(f"/k{number}", str(number))
    for port in ports:
        with connect(port, **root) as client:
            assert [value for value, _ in client.get_prefix("/k")] == [b"0", b"1", b"2"]
        with connect(port) as client:
            with pytest.raises(grpc.RpcError) as refused:
                client.get("/k0")
            assert refused.value.details() == "etcdserver: user name is empty"
