"""Where AWS credentials come from, in the order of AWS's own libraries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from slipway.loader.errors import LoadError, PassingError
from slipway.loader.sources import identity
from slipway.loader.sources.identity import Identity, lookup
from slipway.loader.sources.signature import Credentials

from .conftest import Service

LATER = "2099-01-01T00:00:00Z"
DOCUMENT = {"AccessKeyId": "A", "SecretAccessKey": "S", "Token": "T", "Expiration": LATER}
FOUND = Credentials("A", "S", "T", datetime(2099, 1, 1, tzinfo=UTC))
XML = (
    '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Result><Credentials>'
    "<AccessKeyId>A</AccessKeyId><SecretAccessKey>S</SecretAccessKey><SessionToken>T</SessionToken>"
    f"<Expiration>{LATER}</Expiration></Credentials></Result></AssumeRoleWithWebIdentityResponse>"
)


@pytest.fixture
def cloud(start: Callable[[web.Application], Service]) -> Service:
    async def role(request: web.Request) -> web.Response:
        form = await request.post()
        if form["RoleArn"] != "arn:role" or form["WebIdentityToken"] != "jwt":
            raise web.HTTPForbidden
        return web.Response(text=XML, content_type="text/xml")

    async def container(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "pod-token":
            raise web.HTTPUnauthorized
        return web.json_response(DOCUMENT)

    async def machine(request: web.Request) -> web.Response:
        if request.method == "PUT":
            return web.Response(text="session")
        if request.headers.get("X-aws-ec2-metadata-token") != "session":
            raise web.HTTPUnauthorized
        return web.json_response(DOCUMENT) if request.path.endswith("/node-role") else web.Response(text="node-role\n")

    app = web.Application()
    app.router.add_post("/", role)
    app.router.add_get("/pod", container)
    app.router.add_route("*", "/latest/{path:.*}", machine)
    return start(app)


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text("jwt\n")
    return str(path)


def test_keys_of_the_environment_come_first(token: str) -> None:
    env = {"AWS_ACCESS_KEY_ID": "K", "AWS_SECRET_ACCESS_KEY": "S", "AWS_SESSION_TOKEN": "T"}
    assert lookup({**env, "AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn"}, "r")() == Credentials(
        "K", "S", "T"
    )


def test_a_service_account_takes_its_role(cloud: Service, token: str) -> None:
    env = {"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn:role", "AWS_ENDPOINT_URL_STS": cloud.url}
    assert lookup(env, "r")() == FOUND
    with pytest.raises(LoadError, match="does not give the role arn:other to this service account"):
        lookup({**env, "AWS_ROLE_ARN": "arn:other"}, "r")()
    with pytest.raises(LoadError, match="cannot be read: No such file"):
        lookup({**env, "AWS_WEB_IDENTITY_TOKEN_FILE": "/none"}, "r")()


def test_a_pod_identity_is_asked_with_its_token(cloud: Service, tmp_path: Path) -> None:
    env = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{cloud.url}/pod"}
    (tmp_path / "pod").write_text("pod-token")
    assert lookup({**env, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "pod")}, "r")() == FOUND
    assert lookup({**env, "AWS_CONTAINER_AUTHORIZATION_TOKEN": "pod-token"}, "r")() == FOUND
    with pytest.raises(PassingError, match="the pod's identity agent answers 401"):
        lookup(env, "r")()


def test_a_machine_gives_its_role(cloud: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "MACHINE", cloud.url)
    assert lookup({}, "r")() == FOUND
    monkeypatch.setattr(identity, "MACHINE", "http://127.0.0.1:9")
    assert lookup({}, "r")() is None
    assert lookup({"AWS_EC2_METADATA_DISABLED": "true"}, "r")() is None


@pytest.mark.parametrize(("left", "lookups"), [(timedelta(hours=1), 1), (timedelta(minutes=4), 3)])
def test_credentials_are_renewed_before_they_end(left: timedelta, lookups: int) -> None:
    asked = 0

    def find() -> Credentials:
        nonlocal asked
        asked += 1
        return Credentials("A", "S", "T", datetime.now(UTC) + left)

    known = Identity(find)
    assert [known() is not None for _unused in range(3)] == [True] * 3
    assert asked == lookups
