"""Where AWS credentials come from, in the order of AWS's own libraries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from minio.credentials.credentials import Credentials

from slipway.artifacts.locations.address_policy import AddressPolicy
from slipway.loader.transport.errors import LoadError, TransientError
from slipway.loader.transport.identity import find
from slipway.loader.transport.source import Access

from .conftest import Service

LATER = "2099-01-01T00:00:00Z"
NODE = Access(node_identity=True)
ROLE_CREDENTIALS = Credentials("A", "S", "T", datetime(2099, 1, 1, tzinfo=UTC))
XML = (
    '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
    "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>S</SecretAccessKey>"
    f"<SessionToken>T</SessionToken><Expiration>{LATER}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
    "</AssumeRoleWithWebIdentityResponse>"
)


@pytest.fixture
def cloud(start: Callable[[web.Application], Service]) -> Service:
    async def role(request: web.Request) -> web.Response:
        if request.query["RoleArn"] != "arn:role" or request.query["WebIdentityToken"] != "jwt":
            raise web.HTTPForbidden
        return web.Response(text=XML, content_type="text/xml")

    async def container(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "pod-token":
            raise web.HTTPUnauthorized
        return web.json_response(document(LATER))

    async def machine(request: web.Request) -> web.Response:
        if request.method == "PUT":
            return web.Response(text="session")
        if request.headers.get("X-aws-ec2-metadata-token") != "session":
            raise web.HTTPUnauthorized
        named = request.path.endswith("/node-role")
        return web.json_response(document(LATER)) if named else web.Response(text="node-role\n")

    app = web.Application()
    app.router.add_post("/", role)
    app.router.add_get("/pod", container)
    app.router.add_route("*", "/latest/{path:.*}", machine)
    return start(app)


def document(expires: str) -> dict[str, str]:
    return {"AccessKeyId": "A", "SecretAccessKey": "S", "Token": "T", "Expiration": expires}


@pytest.fixture
def find_credentials(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Credentials | None]:
    """Finds credentials in an environment, which the library reads too."""

    def find_in(access: Access = NODE, **env: str) -> Credentials | None:
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            provider = find(env, "eu-west-1", access)
            return provider.retrieve() if provider else None

    return find_in


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text("jwt")
    return str(path)


Find = Callable[..., Credentials | None]


def test_keys_of_the_environment_come_first(find_credentials: Find, token: str) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "K", "AWS_SECRET_ACCESS_KEY": "S", "AWS_SESSION_TOKEN": "T"}
    role = {"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn"}
    assert find_credentials(**keys, **role) == Credentials("K", "S", "T")


def test_a_service_account_takes_its_role(find_credentials: Find, cloud: Service, token: str) -> None:
    env = {"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn:role", "AWS_ENDPOINT_URL_STS": cloud.url}
    assert find_credentials(**env) == ROLE_CREDENTIALS
    with pytest.raises(LoadError, match="does not let this service account assume the role arn:other") as caught:
        find_credentials(**env | {"AWS_ROLE_ARN": "arn:other"})
    assert caught.value.__suppress_context__  # the address has the token in it
    with pytest.raises(LoadError, match="cannot read the token /none: No such file"):
        find_credentials(**env | {"AWS_WEB_IDENTITY_TOKEN_FILE": "/none"})
    with pytest.raises(TransientError, match=r"127\.0\.0\.1:9 cannot be reached: connection refused"):
        find_credentials(**env | {"AWS_ENDPOINT_URL_STS": "http://127.0.0.1:9"})


def test_a_pod_identity_is_asked_with_its_token(find_credentials: Find, cloud: Service, tmp_path: Path) -> None:
    env = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{cloud.url}/pod"}
    (tmp_path / "pod").write_text("pod-token")
    assert find_credentials(**env, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(tmp_path / "pod")) == ROLE_CREDENTIALS
    assert find_credentials(**env, AWS_CONTAINER_AUTHORIZATION_TOKEN="pod-token") == ROLE_CREDENTIALS
    with pytest.raises(TransientError, match="the pod's identity agent returned no credentials"):
        find_credentials(**env)


def test_a_machine_gives_its_role(
    find_credentials: Find, cloud: Service, start: Callable[[web.Application], Service]
) -> None:
    gone = start(web.Application())
    assert find_credentials(AWS_EC2_METADATA_SERVICE_ENDPOINT=cloud.url) == ROLE_CREDENTIALS
    assert find_credentials(AWS_EC2_METADATA_SERVICE_ENDPOINT="http://127.0.0.1:9") is None
    assert find_credentials(AWS_EC2_METADATA_SERVICE_ENDPOINT=gone.url) is None
    assert find_credentials(AWS_EC2_METADATA_DISABLED="true") is None


@pytest.mark.parametrize(("remaining", "requested"), [(timedelta(hours=1), 1), (timedelta(seconds=5), 3)])
def test_credentials_are_renewed_before_they_end(cloud: Service, remaining: timedelta, requested: int) -> None:
    async def soon(request: web.Request) -> web.Response | None:
        if not request.path.endswith("/node-role"):
            return None
        return web.json_response(document((datetime.now(UTC) + remaining).strftime("%Y-%m-%dT%H:%M:%SZ")))

    cloud.interfere = soon
    provider = find({"AWS_EC2_METADATA_SERVICE_ENDPOINT": cloud.url}, "r", NODE)
    assert provider is not None
    for _unused in range(2):
        provider.retrieve()
    assert len([seen for seen in cloud.seen if seen.path.endswith("/node-role")]) == requested


OWN = Access(node_identity=False)


def test_the_nodes_role_is_not_asked_for_unless_the_operator_lets_it(find_credentials: Find, cloud: Service) -> None:
    env = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": cloud.url}
    assert find_credentials(OWN, **env) is None
    assert cloud.seen == []
    assert find_credentials(NODE, **env) == ROLE_CREDENTIALS


def test_a_pods_own_identity_needs_no_node(find_credentials: Find, cloud: Service, token: str) -> None:
    role = {"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn:role", "AWS_ENDPOINT_URL_STS": cloud.url}
    assert find_credentials(OWN, **role) == ROLE_CREDENTIALS
    agent = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{cloud.url}/pod", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "pod-token"}
    assert find_credentials(OWN, **agent) == ROLE_CREDENTIALS
    assert find_credentials(Access(AddressPolicy()), **agent) == ROLE_CREDENTIALS, (
        "its agent is no place that a spec chose"
    )


@pytest.mark.parametrize("host", ["169.254.169.254", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "2852039166"])
@pytest.mark.parametrize("access", [OWN, Access(AddressPolicy(("169.254.0.0/16", "fd00::/8")))])
def test_the_metadata_service_is_not_accepted_as_the_agent_of_a_pod(
    find_credentials: Find, monkeypatch: pytest.MonkeyPatch, host: str, access: Access, tmp_path: Path
) -> None:
    """Its older version answers a plain GET with the node's credentials in the agents' form."""
    connected: list[object] = []
    monkeypatch.setattr("socket.socket.connect", lambda _socket, address: connected.append(address))
    (tmp_path / "pod").write_text("pod-token")
    env = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{host}/latest/meta-data/iam/security-credentials/node",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "pod"),
    }
    with pytest.raises(LoadError, match=r"^SourceNotAllowed: .* is (link-local|a private address)"):
        find_credentials(access, **env)
    assert connected == []


def test_a_tenants_token_service_is_asked_only_where_the_guard_lets_it(
    find_credentials: Find, cloud: Service, token: str
) -> None:
    env = {"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn:role", "AWS_ENDPOINT_URL_STS": cloud.url}
    with pytest.raises(LoadError, match="SourceNotAllowed"):
        find_credentials(Access(AddressPolicy()), **env)
    assert cloud.seen == []
