"""The controller's key is created once, is stored in one Secret, and stays the same for every leader."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode

import pytest

from slipway.controller.loaders import signing
from slipway.controller.loaders.signing import signing_key
from slipway.kube.api.errors import ForbiddenError
from slipway.kube.objects import SECRET

from ..kube.conftest import hang_up, refuse

PATH = SECRET.path("system", signing.NAME)


async def test_the_first_that_leads_makes_it_and_the_next_one_has_the_same(client, server) -> None:
    first = await signing_key(client, "system")
    secret = server.objects[PATH]
    assert secret["immutable"] is True
    assert b64decode(secret["data"]["ed25519"]) == first.seed
    version = secret["metadata"]["resourceVersion"]
    assert (await signing_key(client, "system")).public == first.public
    assert server.objects[PATH]["metadata"]["resourceVersion"] == version


async def test_two_that_start_at_once_agree(client, server) -> None:
    keys = await asyncio.gather(*(signing_key(client, "system") for _one in range(5)))
    assert len({key.public for key in keys}) == 1


@pytest.mark.parametrize("data", [None, {}, {"ed25519": "%%"}, {"ed25519": b64encode(b"short").decode()}])
async def test_a_secret_without_a_key_is_reported_without_its_content(client, server, data) -> None:
    await server.put(PATH, kind="Secret", apiVersion="v1", data=data)
    with pytest.raises(ValueError, match=f"system/{signing.NAME} holds no Ed25519 key.*Delete it") as caught:
        await signing_key(client, "system")
    assert "short" not in str(caught.value)


async def test_trouble_that_passes_is_waited_out(client, server, monkeypatch) -> None:
    monkeypatch.setattr(signing, "RETRY_SECONDS", 0.01)
    server.fault("GET", signing.NAME, refuse(500, "InternalError"), times=2)
    server.fault("POST", "/secrets", hang_up)
    key = await signing_key(client, "system")
    assert b64decode(server.objects[PATH]["data"]["ed25519"]) == key.seed


@pytest.mark.parametrize(("method", "text"), [("GET", signing.NAME), ("POST", "/secrets")])
async def test_a_right_that_is_missing_ends_it(client, server, method, text) -> None:
    server.fault(method, text, refuse(403, "Forbidden", "may not"), times=1)
    with pytest.raises(ForbiddenError, match="may not"):
        await signing_key(client, "system")
    assert PATH not in server.objects
