"""``slipway depot keys``: everything is made once, stays, and is renewed in time; TLS works with what it makes."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from base64 import b64decode, b64encode
from datetime import UTC, timedelta
from typing import Any

import pytest
from cryptography import x509

from slipway.depot import main
from slipway.depot.credentials import signing
from slipway.depot.credentials.certificates import Pair, authority, fault, server
from slipway.depot.credentials.keys import CONFIG_MAPS, SECRETS, Names, ensure
from slipway.kube.api.errors import ForbiddenError

NOW = dt.datetime(2026, 1, 1, tzinfo=UTC)
NAMES = Names(namespace="slipway-system", registry=("registry.example.com", "192.0.2.7"))
SECRET_PATH = "/api/v1/namespaces/slipway-system/secrets/"
CONFIG_MAP_PATH = "/api/v1/namespaces/slipway-system/configmaps/"
ALL = [f"Secret {name}" for name in SECRETS] + [f"ConfigMap {name}" for name in CONFIG_MAPS]


def secret(api: Any, name: str) -> dict[str, bytes]:
    return {field: b64decode(text) for field, text in api.objects[SECRET_PATH + name]["data"].items()}


def text(api: Any, name: str, field: str) -> str:
    return api.objects[CONFIG_MAP_PATH + name]["data"][field]


def pair(api: Any, name: str) -> Pair:
    data = secret(api, name)
    return Pair(data["tls.crt"], data["tls.key"])


def names_in(pem: bytes) -> set[str]:
    names = x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(one.value) for one in names}


async def test_everything_is_made_once(server, client):
    assert sorted(await ensure(client, NAMES, NOW)) == sorted(ALL)
    assert len(server.writes) == len(ALL)
    assert await ensure(client, NAMES, NOW + timedelta(days=200)) == []
    assert len(server.writes) == len(ALL)
    assert {obj["type"] for path, obj in server.objects.items() if path.endswith("-tls")} == {"kubernetes.io/tls"}
    assert len(secret(server, "slipway-depot-key")["hmac"]) == 32


async def test_the_mounted_keys_and_certificates_match_each_other(server, client):
    await ensure(client, NAMES, NOW)
    assert text(server, "slipway-depot-ca", "ca.crt").encode() == pair(server, "slipway-depot-ca").certificate
    assert text(server, "slipway-registry-keys", "jwks.json") == signing.key_set(
        secret(server, "slipway-depot-token")["token.key"]
    )
    assert names_in(pair(server, "slipway-registry-tls").certificate) == {
        "slipway-registry",
        "slipway-registry.slipway-system",
        "slipway-registry.slipway-system.svc",
        "slipway-registry.slipway-system.svc.cluster.local",
        "registry.example.com",
        "192.0.2.7",
    }
    assert "slipway-depot.slipway-system.svc" in names_in(pair(server, "slipway-depot-tls").certificate)


async def test_only_the_certificates_are_renewed_when_they_end_within_90_days(server, client):
    await ensure(client, NAMES, NOW)
    before = {name: secret(server, name) for name in SECRETS}
    late = NOW + timedelta(days=276)
    assert await ensure(client, NAMES, late) == ["Secret slipway-registry-tls", "Secret slipway-depot-tls"]
    assert {name for name in SECRETS if secret(server, name) != before[name]} == {
        "slipway-registry-tls",
        "slipway-depot-tls",
    }
    ends = x509.load_pem_x509_certificate(pair(server, "slipway-depot-tls").certificate).not_valid_after_utc
    assert ends == late + timedelta(days=365)


async def test_another_name_gives_another_certificate_for_that_server_alone(server, client):
    await ensure(client, NAMES, NOW)
    further = Names(namespace="slipway-system", registry=NAMES.registry, depot=("depot.example.com",))
    assert await ensure(client, further, NOW) == ["Secret slipway-depot-tls"]
    assert "depot.example.com" in names_in(pair(server, "slipway-depot-tls").certificate)


@pytest.mark.parametrize("data", [{}, {"tls.crt": "", "tls.key": ""}, {"tls.crt": "AAAA", "tls.key": "AAAA"}])
async def test_a_broken_certificate_is_recreated(server, client, data):
    await ensure(client, NAMES, NOW)
    await server.put(f"{SECRET_PATH}slipway-depot-tls", data=data, type="kubernetes.io/tls")
    assert await ensure(client, NAMES, NOW) == ["Secret slipway-depot-tls"]
    assert server.objects[f"{SECRET_PATH}slipway-depot-tls"]["type"] == "kubernetes.io/tls"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("slipway-depot-ca", {"tls.crt": "AAAA", "tls.key": "AAAA"}),
        ("slipway-depot-token", {"token.key": "U0VDUkVU"}),
        ("slipway-depot-key", {"hmac": "U0VDUkVU"}),
        ("slipway-depot-key", {"hmac": "!"}),
        ("slipway-depot-key", {"other": "U0VDUkVU"}),
    ],
)
async def test_a_broken_key_is_not_replaced_and_not_shown(server, client, name, data):
    await ensure(client, NAMES, NOW)
    await server.put(SECRET_PATH + name, data=data)
    with pytest.raises(ValueError, match=f"the Secret {name}: .*[Dd]elete it") as refused:
        await ensure(client, NAMES, NOW)
    assert "SECRET" not in str(refused.value)
    assert server.objects[SECRET_PATH + name]["data"] == data


async def test_a_broken_config_map_is_called_one(server, client):
    await ensure(client, NAMES, NOW)
    await server.put(f"{CONFIG_MAP_PATH}slipway-depot-ca", data={"ca.crt": None})
    with pytest.raises(ValueError, match=r"the ConfigMap slipway-depot-ca: it cannot be read\. Delete it"):
        await ensure(client, NAMES, NOW)


async def test_the_published_key_follows_the_secret(server, client):
    await ensure(client, NAMES, NOW)
    other = signing.generate_key()
    await server.put(f"{SECRET_PATH}slipway-depot-token", data={"token.key": b64encode(other).decode()})
    assert await ensure(client, NAMES, NOW) == ["ConfigMap slipway-registry-keys"]
    assert text(server, "slipway-registry-keys", "jwks.json") == signing.key_set(other)


async def test_two_that_run_at_once_agree(server, client):
    await asyncio.gather(*[ensure(client, NAMES, NOW) for _unused in range(4)])
    assert await ensure(client, NAMES, NOW) == []
    assert server.conflicts


async def test_rights_that_are_missing_are_reported(server, client, script):
    server.fault("GET", "secrets", script.refuse(403, "Forbidden", "secrets is forbidden"))
    with pytest.raises(ForbiddenError, match="secrets is forbidden"):
        await ensure(client, NAMES, NOW)


def test_the_command_prints_what_it_wrote(kubeconfig, monkeypatch, capsys):
    async def written(_client: Any, names: Names, _now: Any) -> list[str]:
        assert names == Names(namespace="ns", cluster_domain="c.test", registry=("a", "b"))
        return ["Secret one", "ConfigMap two"]

    monkeypatch.setattr(main, "ensure", written)
    command = [
        "keys",
        "--namespace",
        "ns",
        "--cluster-domain",
        "c.test",
        "--registry-name",
        "a",
        "--registry-name",
        "b",
    ]
    assert main.main([*command, "--kubeconfig", kubeconfig]) == 0
    assert capsys.readouterr().out == "Secret one\nConfigMap two\n"


def test_the_command_reports_the_error(kubeconfig, monkeypatch, capsys):
    async def broken(*_unused: Any) -> list[str]:
        raise ValueError("the Secret x: gone")

    monkeypatch.setattr(main, "ensure", broken)
    assert main.main(["keys", "--namespace", "ns", "--kubeconfig", kubeconfig]) == 1
    assert capsys.readouterr().err == "slipway depot: the Secret x: gone\n"


def test_a_new_authority_continues_the_old_one():
    first = authority(NOW, None)
    assert authority(NOW + timedelta(days=3650 - 731), first) is first
    late = NOW + timedelta(days=3650 - 729)
    second = authority(late, first)
    assert second.key == first.key
    assert second.certificate != first.certificate
    assert fault(server(first, ["a.test"], late), second, ["a.test"], late) == ""
    assert fault(server(second, ["a.test"], late), first, ["a.test"], late) == ""


def test_a_strangers_certificate_is_not_kept():
    ours, theirs = authority(NOW, None), authority(NOW, None)
    assert fault(server(theirs, ["a.test"], NOW), ours, ["a.test"], NOW) == "it is signed by another CA"


async def test_a_client_with_the_authority_takes_the_servers_certificate(tmp_path):
    now = dt.datetime.now(UTC)
    issuer = authority(now, None)
    server_pair = server(issuer, ["localhost", "127.0.0.1"], now)
    (tmp_path / "tls.crt").write_bytes(server_pair.certificate)
    (tmp_path / "tls.key").write_bytes(server_pair.key)
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    listening = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=ours)
    port = listening.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context(cadata=issuer.certificate.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        for host in ("localhost", "127.0.0.1"):
            _reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=host)
            writer.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="other.test")
    finally:
        listening.close()
