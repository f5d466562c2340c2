"""A job of the example for AWX, run as AWX runs it: the credential's variables, no kubeconfig, no root, no home."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import selectors
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests import awx_job
from tests.awx_job import Credential, Job

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests/unit/plugins"))

import krypton_models  # noqa: E402
import kubeai_models  # noqa: E402
from fake_api import FakeApi, Object  # noqa: E402

TOKEN = "of-a-service-account"
HUB_TOKEN = "hf_of_the_job"
ANSWERS: dict[str, Any] = {
    "models_catalogue": "qwen2-500m-cpu\n",
    "models_namespace": "models",
    "models_state": "present",
    "models_wait": "true",
    "models_wait_timeout": "60",
    # Not of the survey, but as --extra-vars gives it.
    "models_create_namespaces": "false",
    "models_list": [{"name": "tiny", "spec": krypton_models.SPEC}],
}

pytestmark = pytest.mark.plays


@pytest.fixture
def api() -> Iterator[FakeApi]:
    def answer(server: FakeApi, resource: Object) -> None:
        ready = kubeai_models.READY if resource["apiVersion"].startswith("kubeai") else krypton_models.READY
        krypton_models.becomes(others=ready)(server, resource)

    server = FakeApi()
    server.controller = answer
    yield server
    server.stop()


@pytest.fixture
def credential(api: FakeApi, tmp_path: Path) -> Iterator[Credential]:
    """Of the API, behind TLS by a certificate that only its authority's makes trusted."""
    key, certificate = _certificate()
    (tmp_path / "server.pem").write_bytes(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = ("127.0.0.1", int(api.url.rpartition(":")[2]))
        threading.Thread(target=_serve, args=(listening, context, place), daemon=True).start()
        port = listening.getsockname()[1]
        yield Credential(f"https://127.0.0.1:{port}", TOKEN, certificate.decode())


def _certificate() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, plain), certificate.public_bytes(encoding)


def _serve(listening: socket.socket, context: ssl.SSLContext, place: tuple[str, int]) -> None:
    while True:
        try:
            taken, _address = listening.accept()
        except OSError:
            return
        threading.Thread(target=_carry, args=(taken, context, place), daemon=True).start()


def _carry(taken: socket.socket, context: ssl.SSLContext, place: tuple[str, int]) -> None:
    """Carries bytes between a client that speaks TLS and a server that does not."""
    try:
        with (
            context.wrap_socket(taken, server_side=True) as outside,
            socket.create_connection(place) as inside,
            # Not select(), which fails if a process has more than 1,024 open files.
            selectors.DefaultSelector() as both,
        ):
            both.register(outside, selectors.EVENT_READ)
            both.register(inside, selectors.EVENT_READ)
            while True:
                ready = [outside] if outside.pending() else [key.fileobj for key, _events in both.select()]
                for source in ready:
                    data = source.recv(65536)
                    if not data:
                        return
                    (inside if source is outside else outside).sendall(data)
    except OSError:
        return


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("ansible_runner")
    if not awx_job.CORE.exists():
        pytest.skip("needs the collection kubernetes.core")
    job_folder = tmp_path_factory.mktemp("awx")
    awx_job.release(job_folder)
    return job_folder


def run(folder: Path, credential: Credential, *flags: str, **answers: Any) -> Job:
    return awx_job.run(folder, "models.yml", ANSWERS | answers, credential, *flags)


def test_a_job_registers_models_and_hands_them_on(folder: Path, api: FakeApi, credential: Credential) -> None:
    job = run(folder, credential)

    assert job.status == 0, job.output
    outcome = {
        model["name"]: (model["api"], model["namespace"], model["ready"]) for model in job.artifacts["slipway_models"]
    }
    assert outcome == {"qwen2-500m-cpu": ("kubeai", "models", True), "tiny": ("krypton", "models", True)}
    assert {call.headers["Authorization"] for call in api.calls} == {f"Bearer {TOKEN}"}
    assert TOKEN not in job.output
    if os.getuid() == 0:
        assert (job.user, job.strays) == (awx_job.user_of(folder), [])

    again = run(folder, credential)
    assert (again.status, again.changed) == (0, 0)

    checked = run(folder, credential, "--check", "--diff", models_catalogue="", models_list=[])
    assert (checked.status, checked.changed) == (0, 0)


def test_a_wrong_authority_is_rejected_and_reported(folder: Path, credential: Credential) -> None:
    _key, other = _certificate()
    job = run(folder, Credential(credential.host, TOKEN, other.decode()))

    assert job.status != 0
    assert "certificate" in job.output.lower()
    assert TOKEN not in job.output


def test_without_an_authority_a_job_runs_as_awx_has_it(folder: Path, api: FakeApi, credential: Credential) -> None:
    job = run(folder, Credential(credential.host, TOKEN, ""), models_catalogue="")

    assert job.status == 0, job.output
    assert list(api.objects) == ["/apis/krypton.ai/v1alpha1/namespaces/models/models/tiny"]
