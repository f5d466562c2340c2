"""Which clients trust the machine's public authorities. Other tests do not read these authorities."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipway.depot.storage.registry import Registry
from slipway.weights.sources import catalogs

from .certificates import Authority
from .depot.conftest import settings_with
from .plugins.importable import make_importable

make_importable()

from ansible_collections.slipway.inference.plugins.module_utils import _depot, _http  # noqa: E402
from ansible_collections.slipway.inference.plugins.module_utils._kubeconfig import Pem  # noqa: E402
from ansible_collections.slipway.inference.plugins.module_utils._settings import Settings  # noqa: E402


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One item each time that the public authorities are read."""
    read: list[Any] = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda _context, purpose: read.append(purpose))
    return read


async def trust_of_catalog(pem: str) -> None:
    await catalogs._trust(pem)


async def trust_of_uploads(pem: str) -> None:
    _depot.Endpoint("https://depot.example.com/models/tiny", "token", pem)._connection()


async def trust_of_modules(pem: str) -> None:
    _http.tls_context(Settings(authority=Pem(data=pem.encode())))


@pytest.mark.parametrize("connect", [trust_of_catalog, trust_of_uploads, trust_of_modules])
@pytest.mark.parametrize(("pem", "number"), [("", 1), (Authority().pem, 0)], ids=["public", "own"])
async def test_public_authorities_are_trusted_only_without_another(
    reads: list[Any], connect: Callable[[str], Any], pem: str, number: int
) -> None:
    await connect(pem)

    assert reads == [ssl.Purpose.SERVER_AUTH] * number


async def test_the_depot_also_trusts_a_registry_with_a_public_certificate(reads: list[Any], tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(Authority().pem)
    no_signer: Any = None

    registry = Registry.connect(settings_with(registryCa=str(tmp_path / "ca.crt")), no_signer)
    await registry.close()

    assert reads == [ssl.Purpose.SERVER_AUTH]
