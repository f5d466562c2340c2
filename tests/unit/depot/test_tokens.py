"""The token endpoint: the rights of each caller. No caller can read another namespace's models."""

from __future__ import annotations

import asyncio
import logging
import random
from base64 import b64encode
from typing import Any

import aiohttp
import pytest

from slipway.depot.credentials.signing import Access
from slipway.depot.handlers.tokens import granted, scope_of
from slipway.depot.http.reviews import Caller, reviewed
from slipway.depot.storage.publishers import WRITE
from slipway.kube.objects import NAMESPACE
from slipway.serving.wire.depot_token import Claim, sign

from .conftest import KEY, NOW, SYSTEM, depot_client, knows
from .test_signing import read

POD = "system:serviceaccount:team:default"
JWT = "aaaa.bbbb.cccc"
BEARER = {"Authorization": f"Bearer {JWT}"}
TEAM, THE_SYSTEM, NODE = Caller(POD, "team"), Caller("c", SYSTEM), Caller("pull:team", "team")


def basic(password: bytes | str) -> dict[str, str]:
    text = password.encode() if isinstance(password, str) else password
    return {"Authorization": f"Basic {b64encode(b'name:' + text).decode()}"}


def access_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return read(answer["token"])[1]["access"]


@pytest.mark.parametrize(
    ("caller", "scope", "actions"),
    [
        (TEAM, "repository:namespaced/team/a/1:pull,push,delete", ("pull",)),
        (TEAM, "repository:namespaced/team/a/1:push,delete", ()),
        (TEAM, "repository:namespaced/team/a/1:pull,pull", ("pull",)),
        (TEAM, "repository:cluster/a/1:pull,push,delete", ("pull",)),
        (TEAM, "repository:cluster/a/1:push", ()),
        (TEAM, "repository:namespaced/other/a/1:pull", ()),
        (TEAM, "repository:namespaced/team-2/a/1:pull", ()),
        (TEAM, "repository:namespaced/team:pull", ()),
        (TEAM, "repository:namespaced/team/../other/a/1:pull", ()),
        (TEAM, "repository:namespaced/team//a:pull", ()),
        (TEAM, "repository:namespaced/team/a/1\nx:pull", ()),
        (TEAM, "repository:namespaced/team/A/1:pull", ()),
        (TEAM, f"repository:namespaced/team/{'a' * 255}:pull", ()),
        (TEAM, "repository:namespaced/team/a/1:*", ()),
        (TEAM, "repository(plugin):namespaced/team/a/1:pull", ()),
        (TEAM, "registry:catalog:*", ()),
        (TEAM, "repository", ()),
        (TEAM, "::", ()),
        (TEAM, "", ()),
        (NODE, "repository:namespaced/team/a/1:pull,push,delete", ("pull",)),
        (NODE, "repository:cluster/a/1:pull,push", ("pull",)),
        (NODE, "repository:namespaced/other/a/1:pull", ()),
        (NODE, "registry:catalog:*", ()),
        (Caller("pull:", ""), "repository:namespaced/team/a/1:pull", ()),
        (THE_SYSTEM, "repository:namespaced/team/a/1:pull,push,delete", ()),
        (THE_SYSTEM, "repository:anything/else:push", ()),
        (THE_SYSTEM, "repository:cluster/a/1:pull,push", ("pull",)),
        (THE_SYSTEM, "registry:catalog:*", ()),
    ],
)
def test_rights(caller: Caller, scope: str, actions: tuple[str, ...]):
    kind, _unused, rest = scope.partition(":")
    expected = (Access(kind, rest.rpartition(":")[0], actions),) if actions else ()
    assert granted(caller, [scope_of(scope)]) == expected


def test_a_publisher_writes_into_its_repository_alone():
    scopes = ["repository:namespaced/team/a/1:pull,push", "repository:namespaced/team/b/2:push", "registry:catalog:*"]
    writable = {"namespaced/team/a/1": WRITE, "catalog": frozenset("*")}
    access = granted(TEAM, map(scope_of, scopes), writable)
    assert access == (Access("repository", "namespaced/team/a/1", ("pull", "push")),)


def test_every_scope_is_judged_alone():
    scopes = [
        "repository:namespaced/team/a/1:pull",
        "repository:namespaced/other/b/2:pull",
        "repository:cluster/c/3:pull",
    ]
    assert [one.name for one in granted(TEAM, map(scope_of, scopes))] == ["namespaced/team/a/1", "cluster/c/3"]


async def test_a_pod_gets_a_token_for_its_namespace(server, tokens, metrics, signer):
    knows(server, POD, "slipway-depot")
    query = [
        ("service", "slipway-registry"),
        ("scope", "repository:namespaced/team/a/1:pull,push"),
        ("scope", "repository:cluster/b/2:pull repository:namespaced/other/c/3:pull"),
    ]
    async with depot_client(metrics, tokens) as visitor:
        answer = await visitor.get("/token", params=query, headers=BEARER)
        reply = await answer.json()
    assert answer.status == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert reply.keys() == {"token", "access_token", "expires_in", "issued_at"}
    assert (reply["access_token"], reply["expires_in"], reply["issued_at"]) == (
        reply["token"],
        300,
        "2027-01-15T08:00:00Z",
    )
    header, claims = read(reply["token"])
    assert (header["kid"], claims["sub"], claims["iat"]) == (signer.public["kid"], POD, NOW)
    assert claims["access"] == [
        {"type": "repository", "name": "namespaced/team/a/1", "actions": ["pull"]},
        {"type": "repository", "name": "cluster/b/2", "actions": ["pull"]},
    ]


async def test_the_token_is_reviewed_for_the_depots_audience_only(server, tokens, metrics):
    seen = []

    async def look(request: Any) -> Any:
        seen.append(await request.json())
        raise asyncio.CancelledError

    server.fault("POST", "tokenreviews", look)
    async with depot_client(metrics, tokens) as visitor:
        answer = await visitor.get("/token", headers=BEARER)
    assert answer.status == 503
    assert seen[0]["spec"] == {"token": JWT, "audiences": ["slipway-depot"]}


@pytest.mark.parametrize(
    ("username", "audiences", "authenticated"),
    [
        (POD, ["slipway-depot"], False),
        (POD, [], True),
        (POD, ["https://kubernetes.default.svc"], True),
        ("system:node:one", ["slipway-depot"], True),
        ("kubernetes-admin", ["slipway-depot"], True),
        ("", ["slipway-depot"], True),
    ],
)
async def test_tokens_without_a_service_account_for_this_audience_are_rejected(
    server, tokens, metrics, username, audiences, authenticated
):
    knows(server, username, *audiences, authenticated=authenticated)
    async with depot_client(metrics, tokens) as visitor:
        answer = await visitor.get("/token", headers=BEARER)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == 'Basic realm="slipway-depot"'


@pytest.mark.parametrize(
    "status",
    [None, [], 3, {"user": 5}, {"authenticated": "yes"}, {"audiences": [None]}, {"user": {"extra": [1]}}],
)
def test_an_invalid_review_names_no_caller(status: Any):
    with pytest.raises(Exception, match="not a valid service account token") as refused:
        reviewed({"status": status}, "slipway-depot")
    assert refused.value.status == 401


async def test_a_cluster_that_does_not_answer_is_503(server, tokens, metrics, script):
    server.fault("POST", "tokenreviews", script.refuse(500, "InternalError"))
    async with depot_client(metrics, tokens) as visitor:
        answer = await visitor.get("/token", headers=BEARER)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "5")


def pull_password(**changes: Any) -> str:
    claim = {"use": "pull", "namespace": "team", "uid": "uid-team", "expires": int(NOW) + 60}
    return sign(KEY, Claim(**{**claim, **changes}))


async def put_namespace(server: Any, uid: str = "uid-team") -> None:
    await server.put(NAMESPACE.path("", "team"), metadata={"name": "team", "uid": uid})


@pytest.mark.parametrize(
    ("changes", "uid"),
    [
        ({}, "uid-again"),
        ({}, ""),
        ({"uid": ""}, "uid-team"),
        ({"expires": 0}, "uid-team"),
        ({"uid": "", "expires": 0}, "uid-team"),
        ({"expires": int(NOW)}, "uid-team"),
        ({"namespace": "other"}, "uid-team"),
    ],
    ids=["created again", "deleted", "no uid", "no end", "an older controller's", "expired", "another's"],
)
async def test_a_password_that_is_not_for_the_namespace_as_it_is_now_is_401(server, tokens, metrics, changes, uid):
    if uid:
        await put_namespace(server, uid)
    async with depot_client(metrics, tokens) as visitor:
        answer = await visitor.get("/token", headers=basic(pull_password(**changes)))
    assert answer.status == 401


async def test_a_forged_password_costs_the_api_server_nothing(server, tokens, metrics):
    forged = sign(bytes(32), Claim(use="pull", namespace="team", uid="uid-team", expires=int(NOW) + 60))
    async with depot_client(metrics, tokens) as visitor:
        assert (await visitor.get("/token", headers=basic(forged))).status == 401
    assert server.log == []


async def test_a_nodes_password_pulls_for_its_namespace(server, tokens, metrics):
    await put_namespace(server)
    password = pull_password()
    scope = "repository:namespaced/team/a/1:pull,push"
    async with depot_client(metrics, tokens) as visitor:
        answer = await visitor.get("/token", params={"scope": scope}, headers=basic(password))
        reply = await answer.json()
    assert access_of(reply) == [{"type": "repository", "name": "namespaced/team/a/1", "actions": ["pull"]}]


async def test_a_service_accounts_token_may_be_the_password(server, tokens, metrics):
    knows(server, POD, "slipway-depot")
    async with depot_client(metrics, tokens) as visitor:
        answer = await visitor.get(
            "/token", params={"scope": "repository:namespaced/team/a/1:pull"}, headers=basic(JWT)
        )
        assert access_of(await answer.json())[0]["actions"] == ["pull"]


BAD = {
    "nothing": {},
    "no scheme": {"Authorization": JWT},
    "no token": {"Authorization": "Bearer "},
    "not a JWT": {"Authorization": "Bearer abc"},
    "too long": {"Authorization": f"Bearer {'a' * 7990}.b.cccccccccc"},
    "not base64": {"Authorization": "Basic !!!"},
    "not text": basic(b"\xff\xfe"),
    "no password": basic(""),
    "forged": basic(sign(bytes(32), Claim(use="pull", namespace="team"))),
    "for an upload": basic(sign(KEY, Claim(use="upload", namespace="team"))),
    "expired": basic(sign(KEY, Claim(use="pull", namespace="team", expires=int(NOW)))),
}


@pytest.mark.parametrize("headers", BAD.values(), ids=BAD.keys())
async def test_bad_credentials_are_401_and_shown_nowhere(server, tokens, metrics, headers, caplog):
    caplog.set_level(logging.DEBUG)
    async with depot_client(metrics, tokens) as visitor:
        answer = await visitor.get("/token", headers=headers)
        text = await answer.text()
    assert answer.status == 401
    assert server.log == []
    shown = headers.get("Authorization", "").rpartition(" ")[2]
    assert not shown or (shown not in text and shown not in caplog.text)


@pytest.mark.parametrize(
    ("query", "status"),
    [({"service": "other"}, 400), ([("scope", "a:b:c")] * 17, 400), ({"scope": " ".join(["a:b:c"] * 17)}, 400)],
)
async def test_a_query_that_makes_no_sense_is_refused(tokens, metrics, query, status):
    async with depot_client(metrics, tokens) as visitor:
        answer = await visitor.get("/token", params=query, headers=BEARER)
    assert answer.status == status


async def test_post_is_answered_with_the_methods_that_there_are(tokens, metrics):
    async with depot_client(metrics, tokens) as visitor:
        answer = await visitor.post("/token", data={"grant_type": "password"})
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")


async def test_fuzzed_requests_are_answered_below_500(server, tokens, metrics):
    knows(server, POD, "slipway-depot")
    chance = random.Random(7)
    letters = "abz:/,.*-_ %&=\t\u00e9\U0001f600"
    async with depot_client(metrics, tokens) as visitor:
        for _unused in range(300):
            scope = "".join(chance.choices(letters, k=chance.randrange(40)))
            shown = "".join(chance.choices("ab.=/+ :", k=chance.randrange(40)))
            headers = {"Authorization": f"{chance.choice(['Bearer', 'Basic', 'x', ''])} {shown}".strip() or "x"}
            answer = await visitor.get("/token", params={"scope": scope}, headers=headers)
            assert answer.status < 500


async def test_more_requests_than_there_may_be_are_turned_away(server, tokens, metrics):
    reached, go = asyncio.Event(), asyncio.Event()

    async def hold(_request: Any) -> Any:
        reached.set()
        await go.wait()
        raise asyncio.CancelledError

    server.fault("POST", "tokenreviews", hold)
    async with depot_client(metrics, tokens, at_once=1) as visitor:
        first = asyncio.create_task(visitor.get("/token", headers=BEARER))
        await reached.wait()
        answer = await visitor.get("/token")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        go.set()
        await first
        assert (await visitor.get("/token")).status == 401
    assert b'slipway_depot_answers_total{code="401",door="token"} 1.0' in metrics.text()


async def test_an_address_gets_at_most_half_of_the_requests(server, tokens, metrics, eventually):
    reached, go = list[str](), asyncio.Event()

    async def hold(_request: Any) -> Any:
        reached.append("")
        await go.wait()
        raise asyncio.CancelledError

    server.fault("POST", "tokenreviews", hold, times=10**9)
    async with depot_client(metrics, tokens, at_once=4) as visitor:
        tasks = [asyncio.create_task(visitor.get("/token", headers=BEARER)) for _unused in range(2)]
        await eventually(lambda: len(reached) == 2)
        answer = await visitor.get("/token", headers=BEARER)
        assert (answer.status, await answer.text()) == (503, "too many requests of this address are being answered\n")
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with aiohttp.ClientSession(connector=connector) as other:
            url = visitor.make_url("/token")
            async with other.get(url) as answer:
                assert answer.status == 401
        go.set()
        await asyncio.gather(*tasks)
