"""Publishers: only the Job of a model that is being published may push, and only into that model's repository."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from slipway.depot.http.reviews import MOST_OF_ONE
from slipway.depot.storage.publishers import NO_RIGHTS, REMOVE, WRITE, Place, parse_repository, rights
from slipway.serving.wire.publishers import is_pod_of, job_name
from slipway.serving.wire.repositories import repository

from .conftest import CLUSTER_THING, SYSTEM, THING, depot_client, knows
from .test_signing import read
from .test_tokens import BEARER, POD

UID, OTHER = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"
PUBLISHING = {"phase": "Publishing"}
READY = {"phase": "Ready", "artifact": {"digest": "sha256:1", "sizeBytes": 1}}


def pod_of(name: str = "tiny", uid: str = UID, what: str = "publish", attempt: int = 1) -> str:
    """Named as Kubernetes does it."""
    return f"{job_name(name, uid, what, attempt)}-"[:58] + "x7k2p"


def model(status: Any = None, record: str = '{"attempt":1,"percent":3}', **metadata: Any) -> dict[str, Any]:
    given = {"name": "tiny", "namespace": "team", "uid": UID, "annotations": {"slipway.inference/publication": record}}
    return {"metadata": given | metadata, "status": PUBLISHING if status is None else status}


GOING = {"deletionTimestamp": "2027-01-15T08:00:00Z"}


@pytest.mark.parametrize(
    ("observed", "pod", "expected"),
    [
        (model(), pod_of(), WRITE),
        (model(record='{"attempt":7}'), pod_of(attempt=7), WRITE),
        (model(), pod_of(attempt=2), NO_RIGHTS),
        (model(), pod_of(uid=OTHER), NO_RIGHTS),
        (model(), pod_of(what="unpublish", attempt=0), NO_RIGHTS),
        (model(), "x7k2p", NO_RIGHTS),
        (model(), "tiny-publish-0123456789-x7k2p", NO_RIGHTS),
        (model(), pod_of() + "-more", NO_RIGHTS),
        (model(), pod_of()[:-5], NO_RIGHTS),
        (model({}), pod_of(), NO_RIGHTS),
        (model({"phase": "Pending"}), pod_of(), NO_RIGHTS),
        (model({"phase": "Failed"}), pod_of(), NO_RIGHTS),
        (model({"phase": "WaitForUpload"}), pod_of(), NO_RIGHTS),
        (model(PUBLISHING | {"artifact": {"sizeBytes": 5}}), pod_of(), WRITE),
        (model(READY), pod_of(), NO_RIGHTS),
        (model(PUBLISHING | {"artifact": "odd"}), pod_of(), NO_RIGHTS),
        (model(READY | PUBLISHING), pod_of(), NO_RIGHTS),
        (model("odd"), pod_of(), NO_RIGHTS),
        (model(record="[" * 5000), pod_of(), NO_RIGHTS),
        (model(record='{"attempt":-1}'), pod_of(attempt=-1), NO_RIGHTS),
        (model(**GOING), pod_of(), NO_RIGHTS),
        (model(READY, **GOING), pod_of(what="unpublish", attempt=0), REMOVE),
        (model(**GOING), pod_of(uid=OTHER, what="unpublish", attempt=0), NO_RIGHTS),
    ],
)
def test_rights(observed: dict[str, Any], pod: str, expected: frozenset[str]):
    assert rights(observed, pod) == expected


@pytest.mark.parametrize("name", ["a", "a" * 30, "a" * 63, "a.b-" * 20, "a" * 253])
def test_the_pods_of_a_job_have_its_name_however_long_it_is(name: str):
    job = job_name(name, UID, "publish", 1)
    assert is_pod_of(pod_of(name), job)
    assert not is_pod_of(pod_of(name, OTHER), job)


def test_jobs_keep_the_names_that_they_had():
    """A Job of an earlier release goes on."""
    assert job_name("tiny", "u", "publish", 1) == "tiny-publish-fc6ec8660a"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("namespaced/team/tiny/u", Place("team", "tiny", "u")),
        ("cluster/tiny/u", Place("", "tiny", "u")),
        ("namespaced/team/tiny", None),
        ("namespaced/team/tiny/u/more", None),
        ("cluster/tiny", None),
        ("other/team/tiny/u", None),
        ("", None),
    ],
)
def test_a_repository_names_its_model(name: str, expected: Place | None):
    assert parse_repository(name) == expected


async def actions(metrics: Any, tokens: Any, name: str, verbs: str = "pull,push,delete") -> list[str]:
    """What a pod may do in a repository."""
    async with depot_client(type(metrics)(), tokens) as visitor:
        answer = await visitor.get("/token", params={"scope": f"repository:{name}:{verbs}"}, headers=BEARER)
        access = read((await answer.json())["token"])[1]["access"]
    assert answer.status == 200
    return access[0]["actions"] if access else []


async def put(server: Any, namespace: str = "team", name: str = "tiny", uid: str = UID, **given: Any) -> None:
    resource = model(**given)
    kind = THING if namespace else CLUSTER_THING
    metadata = resource["metadata"] | {"name": name, "namespace": namespace, "uid": uid}
    await server.put(kind.path(namespace, name), metadata=metadata, status=resource["status"])


MINE = f"namespaced/team/tiny/{UID}"


async def test_the_publisher_of_a_model_pushes_into_its_repository(server, tokens, metrics):
    await put(server)
    knows(server, POD, "slipway-depot", pod=pod_of())
    assert await actions(metrics, tokens, MINE) == ["pull", "push", "delete"]


@pytest.mark.parametrize("name", ["namespaced/team/none/1", f"namespaced/team/none/{UID}", MINE])
async def test_a_tenants_account_pushes_nowhere(server, tokens, metrics, name):
    await put(server)
    knows(server, POD, "slipway-depot", pod="builder-x7k2p")
    assert await actions(metrics, tokens, name) == ["pull"]
    assert [one.path for one in server.log if "tokenreviews" not in one.path] == []


@pytest.mark.parametrize(
    "name",
    [
        f"namespaced/team/tiny/{OTHER}",
        f"namespaced/team/another/{UID}",
        f"namespaced/team/tiny-00000000/{UID}",
        "namespaced/team/tiny",
        f"namespaced/team/tiny/{UID}/more",
    ],
)
async def test_a_publisher_pushes_into_no_other_repository(server, tokens, metrics, name):
    await put(server)
    await put(server, name="another", uid=OTHER)
    knows(server, POD, "slipway-depot", pod=pod_of())
    assert await actions(metrics, tokens, name) == ["pull"]


async def test_a_publisher_pushes_into_no_other_namespace_and_no_model_of_the_cluster(server, tokens, metrics):
    await put(server)
    await put(server, "")
    await put(server, SYSTEM)
    knows(server, "system:serviceaccount:other:default", "slipway-depot", pod=pod_of())
    assert await actions(metrics, tokens, MINE) == []
    assert await actions(metrics, tokens, f"cluster/tiny/{UID}") == ["pull"]
    assert await actions(metrics, tokens, f"namespaced/{SYSTEM}/tiny/{UID}") == []


async def test_accounts_of_the_system_push_for_the_model_that_they_publish_alone(server, tokens, metrics):
    await put(server, "")
    await put(server, "", "other", OTHER)
    await put(server)
    knows(server, f"system:serviceaccount:{SYSTEM}:default", "slipway-depot", pod=pod_of())
    assert await actions(metrics, tokens, f"cluster/tiny/{UID}") == ["pull", "push", "delete"]
    assert await actions(metrics, tokens, f"cluster/other/{OTHER}") == ["pull"]
    assert await actions(metrics, tokens, MINE) == []
    assert await actions(metrics, tokens, "any/thing") == []


async def test_a_token_that_is_bound_to_no_pod_pushes_nothing(server, tokens, metrics):
    await put(server)
    knows(server, POD, "slipway-depot", pod="")
    assert await actions(metrics, tokens, MINE) == ["pull"]


async def test_a_model_of_a_long_name_is_published(server, tokens, metrics):
    name = "a" * 200
    await put(server, name=name)
    knows(server, POD, "slipway-depot", pod=pod_of(name))
    assert await actions(metrics, tokens, repository("team", name, UID)) == ["pull", "push", "delete"]


async def test_a_cluster_that_does_not_answer_is_503(server, tokens, metrics, script):
    await put(server)
    knows(server, POD, "slipway-depot", pod=pod_of())
    server.fault("GET", "things", script.refuse(500, "InternalError"), times=9)
    async with depot_client(metrics, tokens) as visitor:
        answer = await visitor.get("/token", params={"scope": f"repository:{MINE}:push"}, headers=BEARER)
    assert answer.status == 503


async def test_a_token_for_two_repositories_to_push_into_is_refused_before_any_look_at_models(server, tokens, metrics):
    knows(server, POD, "slipway-depot", pod=pod_of("a" * 200))
    names = [f"namespaced/team/tiny-0000000{number}/{UID}" for number in range(2)]
    query = [("scope", f"repository:{name}:pull,push") for name in names]
    async with depot_client(metrics, tokens) as visitor:
        answer = await visitor.get("/token", params=query, headers=BEARER)
        assert (answer.status, await answer.text()) == (400, "ask to push into one repository at a time\n")
    assert server.log == []


async def test_an_address_gets_a_share_of_the_lookups_of_models(server, tokens, metrics, script, eventually):
    knows(server, POD, "slipway-depot", pod=pod_of())
    go, looks, missing = asyncio.Event(), [], script.refuse(404, "NotFound")

    async def hold(request: web.Request) -> web.StreamResponse:
        looks.append(request.path)
        await go.wait()
        return await missing(request)

    server.fault("GET", "/things", hold, times=10**9)
    async with depot_client(metrics, tokens) as visitor:

        async def ask() -> int:
            query = {"scope": f"repository:{MINE}:push"}
            async with visitor.get("/token", params=query, headers=BEARER) as answer:
                return answer.status

        held = []
        for number in range(1, MOST_OF_ONE + 1):
            held.append(asyncio.create_task(ask()))
            await eventually(lambda number=number: len(looks) == number)
        more = asyncio.create_task(ask())
        await eventually(lambda: more.done() or len(looks) > MOST_OF_ONE)
        go.set()
        assert (await asyncio.gather(*held), await more) == ([200] * MOST_OF_ONE, 503)
