"""Google's client with credentials, over TLS, against a server that checks callers. Each
client runs in a process of its own, because grpc reads its trusted roots once."""

import datetime
import ipaddress
import os
import subprocess
import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from server import Server

POLICY = """
[[binding]]
role = "bigtable.admin"
members = ["user:ada"]

[[binding]]
role = "bigtable.reader"
members = ["serviceAccount:ci@stele"]
resource = "projects/p/instances/i"
"""

# Arguments: how to authenticate, its file, the server, what to do.
CLIENT = """
import sys
from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import GoogleAPICallError
from google.auth.credentials import AnonymousCredentials
from google.cloud.bigtable import Client
from google.cloud.bigtable.data import BigtableDataClient, SetCell
from google.oauth2 import service_account
from google.oauth2.credentials import Credentials

kind, file, server, action = sys.argv[1:]
options = ClientOptions(api_endpoint=server)
if kind == "key":
    credentials = service_account.Credentials.from_service_account_file(file)
elif kind == "token":
    credentials = Credentials(token=open(file).read().strip())
else:
    credentials = AnonymousCredentials()
try:
    if action == "create":
        client = Client("p", credentials, admin=True, client_options=options,
                        admin_client_options=options)
        client.instance("i").table("t").create(column_families={"f": None})
    else:
        with BigtableDataClient(project="p", credentials=credentials, client_options=options) as client:
            table = client.get_table("i", "t")
            if action == "write":
                table.mutate_row("r", SetCell("f", b"q", b"v"), operation_timeout=20)
            else:
                row = table.read_row("r", operation_timeout=20)
                assert row.cells[0].value == b"v", row
    print("OK")
except GoogleAPICallError as error:
    print(error.grpc_status_code.name)
"""


def save(path, text):
    path.write_bytes(text)
    path.chmod(0o600)
    return str(path)


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """A server with TLS, a token of ada and a key of a service account."""
    dir = tmp_path_factory.mktemp("auth")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    cert_file = save(dir / "cert.pem", certificate.public_bytes(pem))
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key_file = save(dir / "key.pem", private)
    identities = dir / "identities"
    token = save(dir / "token", stele(identities, "token", "create", "user:ada"))
    account = save(dir / "ci.json", stele(identities, "key", "create", "ci"))
    (identities / "policy.toml").write_text(POLICY)
    server = Server(
        "--ephemeral", "--auth-dir", str(identities), "--tls-cert", cert_file, "--tls-key", key_file
    )
    yield Checked(server, cert_file, {"token": token, "key": account, "none": ""}, identities)
    assert server.terminate() == 0


def stele(identities, *command):
    ran = subprocess.run(
        [os.environ["STELE_BIN"], "auth", *command, "--auth-dir", str(identities)],
        stdout=subprocess.PIPE,
        check=True,
    )
    return ran.stdout


class Checked:
    def __init__(self, server, roots, files, identities):
        self.server, self.roots, self.files, self.identities = server, roots, files, identities

    def client(self, kind, action, file=None):
        port = self.server.address.rsplit(":", 1)[1]
        environment = {**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": self.roots}
        environment.pop("BIGTABLE_EMULATOR_HOST", None)
        ran = subprocess.run(
            [sys.executable, "-c", CLIENT, kind, file or self.files[kind], f"localhost:{port}", action],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
        )
        return ran.stdout.strip()


def test_a_token_and_a_service_account_key_are_enough_and_roles_decide(checked):
    assert checked.client("token", "create") == "OK"
    assert checked.client("token", "write") == "OK"
    assert checked.client("key", "read") == "OK"
    assert checked.client("key", "write") == "PERMISSION_DENIED"
    assert checked.client("none", "read") == "UNAUTHENTICATED"


def test_a_key_of_another_server_is_refused(checked, tmp_path):
    foreign = save(tmp_path / "foreign.json", stele(tmp_path / "other", "key", "create", "ci"))
    assert checked.client("key", "read", foreign) == "UNAUTHENTICATED"
