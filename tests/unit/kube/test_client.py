"""The client's requests, responses and errors."""

from __future__ import annotations

import asyncio
import pathlib

import aiohttp
import msgspec
import pytest
from aiohttp import web

from slipway.kube.api import client as client_module
from slipway.kube.api.client import Client
from slipway.kube.api.errors import (
    ConflictError,
    ConnectionFailedError,
    ForbiddenError,
    GoneError,
    InvalidObjectError,
    NotFoundError,
    NotLeaderError,
    RequestTimeoutError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
    error_from_body,
)
from slipway.kube.objects import DEPLOYMENT, NAMESPACE, POD, Key

from .conftest import PATIENCE

PODS = "/api/v1/namespaces/default/pods"


def test_paths_follow_the_kind():
    assert POD.path("a", "b", "status") == "/api/v1/namespaces/a/pods/b/status"
    assert DEPLOYMENT.path() == "/apis/apps/v1/deployments"
    assert NAMESPACE.path("ignored", "a") == "/api/v1/namespaces/a"


async def test_reads_writes_and_deletes_an_object(server, client):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": "a"}, "spec": {"x": 1}}
    created = await client.create(POD, pod)
    assert (await client.get(POD, Key("default", "a")))["metadata"]["uid"] == created["metadata"]["uid"]
    applied = await client.apply(POD, {**pod, "spec": {"x": 2}}, field_manager="m")
    assert applied["spec"] == {"x": 2}
    assert server.log[-1].query == {"fieldManager": "m", "force": "true"}
    with pytest.raises(ConflictError):
        await client.delete(POD, Key("default", "a"), resource_version="1")
    await client.delete(POD, Key("default", "a"), uid=created["metadata"]["uid"])
    with pytest.raises(NotFoundError):
        await client.get(POD, Key("default", "a"))


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", InvalidObjectError),
        (403, "Forbidden", ForbiddenError),
        (409, "Conflict", ConflictError),
        (410, "Gone", GoneError),
        (422, "Invalid", InvalidObjectError),
        (429, "TooManyRequests", TooManyRequestsError),
        (500, "InternalError", ServerError),
        (503, "ServiceUnavailable", ServerError),
    ],
)
async def test_an_http_status_is_a_typed_error(server, client, script, code, reason, error):
    causes = [{"field": "spec.x", "message": "bad"}]
    server.fault("GET", PODS, script.refuse(code, reason, "the message", {"Retry-After": "7"}, causes=causes))
    with pytest.raises(error) as caught:
        await client.get(POD, Key("default", "a"))
    failure = caught.value
    assert (failure.status, failure.reason, failure.message, failure.retry_after) == (code, reason, "the message", 7.0)
    assert failure.causes == (("spec.x", "bad"),)


@pytest.mark.parametrize(
    ("status", "reason"), [(404, "NotFound"), (409, "Conflict"), (410, "Gone"), (422, "Invalid"), (500, "ServerError")]
)
def test_an_answer_without_a_reason_has_that_of_its_status(status, reason):
    assert error_from_body(status, b"").reason == reason


def test_an_object_that_the_server_cannot_read_is_invalid_however_it_says_that():
    message = (
        "failed to convert new object (models/a; apps/v1, Kind=Deployment) to proper version: quantities must match"
    )
    body = msgspec.json.encode({"kind": "Status", "code": 500, "reason": "InternalError", "message": message})
    error = error_from_body(500, body)
    assert isinstance(error, InvalidObjectError)
    assert (error.reason, error.message) == ("Invalid", message)


async def test_a_page_of_a_proxy_is_quoted(server, client):
    async def page(_unused):
        return web.Response(status=502, text="<html>bad gateway</html>")

    server.fault("GET", PODS, page)
    with pytest.raises(ServerError, match="HTTP 502: <html>bad gateway"):
        await client.get(POD, Key("default", "a"))


async def test_a_broken_connection_and_a_silent_server_are_distinguished(server, client, script, monkeypatch):
    server.fault("PATCH", PODS, script.hang_up)
    with pytest.raises(ConnectionFailedError):
        await client.merge_patch(POD, Key("default", "a"), {})
    monkeypatch.setattr(client_module, "_REQUEST_LIMIT", aiohttp.ClientTimeout(total=0.2))
    server.fault("PATCH", PODS, script.stream(hold=5))
    with pytest.raises(RequestTimeoutError):
        await client.merge_patch(POD, Key("default", "a"), {})


async def test_a_rotated_token_is_read_again_after_401(server, client, script, tmp_path: pathlib.Path, monkeypatch):
    await server.put(f"{PODS}/a")
    seen = []

    async def check(request):
        seen.append(request.headers["Authorization"])
        if seen[-1] != "Bearer second":
            return await script.refuse(401, "Unauthorized")(request)
        server.faults.clear()
        return await server.handle(request)

    client._credentials._read -= 2
    (tmp_path / "token").write_text("second")
    server.fault("GET", PODS, check, times=9)
    assert (await client.get(POD, Key("default", "a")))["metadata"]["name"] == "a"
    assert seen == ["Bearer first", "Bearer second"]


async def test_the_environment_names_a_proxy_but_for_the_hosts_that_it_excepts(client, monkeypatch):
    credentials = client._credentials
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "other")
    assert credentials.proxy == "http://proxy:3128"
    monkeypatch.setenv("no_proxy", "127.0.0.1,other")
    assert credentials.proxy is None
    credentials.configuration.proxy = "http://configured:3128"
    assert credentials.proxy == "http://configured:3128"


async def test_credentials_that_stay_bad_are_unauthorized(server, client, script):
    server.fault("GET", PODS, script.refuse(401, "Unauthorized"), times=9)
    with pytest.raises(UnauthorizedError):
        await client.get(POD, Key("default", "a"))
    assert len(server.log) == 2


async def test_a_fenced_client_reads_but_does_not_write(server, client):
    await server.put(f"{PODS}/a")
    fenced = client.fenced(lambda: False)
    await fenced.get(POD, Key("default", "a"))
    with pytest.raises(NotLeaderError):
        await fenced.delete(POD, Key("default", "a"))
    assert not server.writes


async def test_lists_come_in_pages_that_say_what_their_items_are(server, client):
    server.page = 2
    for number in range(5):
        await server.put(f"{PODS}/{number}")
    pages = [page async for page in client.pages(POD)]
    assert [len(page.items) for page in pages] == [2, 2, 1]
    assert {(item["apiVersion"], item["kind"]) for page in pages for item in page.items} == {("v1", "Pod")}


async def test_requests_are_counted_by_code_and_method(server, client, metrics):
    with pytest.raises(NotFoundError):
        await client.get(POD, Key("default", "a"))
    assert b'rest_client_requests_total{code="404",method="GET"} 1.0' in metrics.text()


async def test_a_large_object_arrives_whole_in_a_watch(server, client, script):
    large = {"metadata": {"name": "a", "resourceVersion": "5"}, "data": "x" * 3_000_000}
    server.fault("GET", "watch", script.stream(script.event("ADDED", large)))
    events = [event async for event in client.watch(POD, since="1")]
    assert [(event.type, len(event.object["data"])) for event in events] == [("ADDED", 3_000_000)]


async def test_closing_a_watch_early_frees_its_connection(server, client, eventually):
    await server.put(f"{PODS}/a")
    stream = client.watch(POD, since="1")
    assert (await anext(stream)).type == "ADDED"
    await stream.aclose()
    await eventually(lambda: not client._session.connector._acquired)


async def test_watches_of_many_namespaces_leave_connections_for_requests(
    server, kubeconfig, metrics, start, eventually
):
    """Each watch keeps one for itself, and the official client has a hundred of them."""
    client = await Client.connect(kubeconfig, metrics=metrics, further_connections=110)

    async def watch(namespace):
        async for _unused in client.watch(POD, since="1", namespace=namespace):
            pass

    watching = [start(watch(f"team-{number}")) for number in range(110)]
    try:
        await eventually(lambda: len(server.following) == 110)
        await server.put("/api/v1/namespaces/team-1/pods/x")
        pod = await asyncio.wait_for(client.get(POD, Key("team-1", "x")), PATIENCE)
        assert pod["metadata"]["name"] == "x"
    finally:
        for task in watching:
            task.cancel()
        await client.close()
