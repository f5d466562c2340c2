"""The agent loads adapters from a hub into an engine, recovers from restarts of either, and reports errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from slipway.loader.agent import agent as module
from slipway.loader.agent.agent import Agent
from slipway.loader.agent.budget import Budget
from slipway.loader.agent.engine import ENGINE_APIS
from slipway.loader.agent.engine import Engine as Client
from slipway.loader.agent.gate import Gate
from slipway.loader.agent.plan import Version
from slipway.loader.agent.state_api import application
from slipway.loader.agent.store import Store
from slipway.loader.cli.commands import fetch_adapter
from slipway.loader.transport.source import open_source
from slipway.serving.wire import agent
from slipway.serving.wire.agent import Adapter, AgentReport
from slipway.serving.wire.proof import HEADER, SigningKey, public_key

from .conftest import HASTY, PATIENCE, Service, write
from .models import tensors
from .vllm import Engine

ONE = Adapter("m_a", "hf://acme/tiny/adapters/first@refs/pr/1")
TWO = Adapter("m_a", "hf://acme/lora")
OTHER = Adapter("m_b", "hf://acme/lora")
D1, D2 = ONE.digest, TWO.digest
KEY, POD = SigningKey(bytes(range(32))), "uid-of-the-pod"
ROOM = 1 << 30
Start = Callable[[web.Application], Service]


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def served(start: Start, engine: Engine) -> Service:
    return start(engine.application())


class Sidecar:
    """An agent with its port. ``restart`` makes a new one on the same disk, as a container that ended."""

    def __init__(self, folder: Path, engine: str, env: dict[str, str], kind: str = "vllm") -> None:
        self._engine_url, self._env, self._kind = engine, env, kind
        self.store = Store(folder)
        self.room = ROOM
        self.now = time.time_ns
        self.issued = 0

    async def start(self) -> None:
        self._engine = await Client(self._engine_url, api=ENGINE_APIS[self._kind]).__aenter__()
        opened = partial(open_source, env=self._env)
        fetch = partial(fetch_adapter, self.store, Budget(self.store, self.room), opened, HASTY)
        self.agent = Agent(self.store, self._engine, fetch)
        gate = Gate(public_key(KEY.public), POD, self._clock)
        self.http = TestClient(TestServer(application(self.agent.report, gate, self.agent)))
        await self.http.start_server()

    def _clock(self) -> int:
        return self.now()

    async def stop(self) -> None:
        await self.http.close()
        await self._engine.__aexit__(None, None, None)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def proof(self, method: str, path: str, body: bytes = b"") -> dict[str, str]:
        """Headers of a request as the controller makes it, each later than the one before."""
        self.issued = max(time.time_ns(), self.issued + 1)
        return {HEADER: KEY.proof(method, path, body, POD, self.issued)}

    async def put(self, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        """Sends a request for adapters. Returns the status and body of the response."""
        async with self.http.put("/v1/adapters", data=body, headers=headers) as answer:
            return answer.status, await answer.text()

    async def request(self, *adapters: Adapter) -> AgentReport:
        body = msgspec.json.encode(adapters)
        status, text = await self.put(body, self.proof("PUT", "/v1/adapters", body))
        assert status == 200, text
        return msgspec.json.decode(text, type=AgentReport)

    async def report(self) -> AgentReport:
        async with self.http.get("/v1/state", headers=self.proof("GET", "/v1/state")) as answer:
            return msgspec.json.decode(await answer.read(), type=AgentReport)

    async def state(self) -> dict[str, tuple[str, str]]:
        """Name -> (phase, digest that is loaded)."""
        return {state.name: (state.phase, state.loaded) for state in (await self.report()).adapters}

    async def message(self) -> str:
        return (await self.report()).adapters[0].message

    async def health(self) -> int:
        async with self.http.get("/healthz") as answer:
            return answer.status

    async def settle(self) -> None:
        """Steps until there is nothing more to do."""
        for _unused in range(50):
            busy = await self.agent.step()
            if running := [fetch.task for fetch in self.agent._fetches.values()]:
                await asyncio.wait(running, timeout=PATIENCE)
                busy = True
            if not busy:
                return
        pytest.fail("the agent never comes to rest")

    def versions(self) -> set[Version]:
        return set().union(*self.store.scan())


@pytest.fixture
async def sidecar(tmp_path: Path, served: Service, hub: Service, root: Path) -> AsyncIterator[Sidecar]:
    write(root / "acme/lora", {"adapter_config.json": b'{"r": 8}', "adapter_model.safetensors": tensors("a", 50_000)})
    folder = tmp_path / "adapters"
    folder.mkdir()
    new_sidecar = Sidecar(folder, served.url, {"HF_ENDPOINT": hub.url})
    await new_sidecar.start()
    yield new_sidecar
    await new_sidecar.stop()


@pytest.mark.parametrize("flat", [False, True])
async def test_a_desired_adapter_is_downloaded_and_loaded(sidecar: Sidecar, engine: Engine, flat: bool) -> None:
    engine.flat = flat
    report = await sidecar.request(ONE)
    assert [state.phase for state in report.adapters] == ["Fetching"]
    await sidecar.settle()
    assert await sidecar.state() == {"m_a": ("Loaded", D1)}
    assert engine.adapters == {"m_a": str(sidecar.store.path(Version("m_a", D1)))}
    assert engine.calls == [("load", "m_a")]


async def test_an_adapter_that_is_no_longer_desired_is_removed_from_engine_and_disk(
    sidecar: Sidecar, engine: Engine
) -> None:
    await sidecar.request(ONE, OTHER)
    await sidecar.settle()
    await sidecar.request(OTHER)
    await sidecar.settle()
    assert list(engine.adapters) == ["m_b"]
    assert sidecar.versions() == {Version("m_b", D2)}
    assert not (sidecar.store.path(Version("m_a", D1)).parent).exists()


async def test_an_engine_that_has_let_go_already_is_none_to_fail_for(sidecar: Sidecar, engine: Engine) -> None:
    await sidecar.request(ONE)
    await sidecar.settle()
    await sidecar.agent._engine.unload("m_a")
    await sidecar.agent._engine.unload("m_a")
    assert engine.calls[-2:] == [("unload", "m_a")] * 2


@pytest.mark.parametrize(("in_place", "calls"), [(True, ["replace"]), (False, ["load", "unload", "load"])])
async def test_a_version_is_swapped(sidecar: Sidecar, engine: Engine, in_place: bool, calls: list[str]) -> None:
    engine.in_place = in_place
    await sidecar.request(ONE)
    await sidecar.settle()
    engine.calls.clear()
    await sidecar.request(TWO)
    await sidecar.settle()
    assert [verb for verb, _name in engine.calls] == calls
    assert await sidecar.state() == {"m_a": ("Loaded", D2)}
    assert sidecar.versions() == {Version("m_a", D2)}


async def test_a_swap_waits_for_leave(sidecar: Sidecar, engine: Engine) -> None:
    await sidecar.request(ONE)
    await sidecar.settle()
    await sidecar.request(msgspec.structs.replace(TWO, replace=False))
    await sidecar.settle()
    assert await sidecar.state() == {"m_a": ("Fetched", D1)}
    await sidecar.request(TWO)
    await sidecar.settle()
    assert await sidecar.state() == {"m_a": ("Loaded", D2)}


@pytest.mark.parametrize("tells_paths", [True, False])
async def test_a_restarted_engine_gets_its_adapters_from_the_disk(
    sidecar: Sidecar, engine: Engine, hub: Service, tells_paths: bool
) -> None:
    engine.tells_paths = tells_paths
    await sidecar.request(ONE, OTHER)
    await sidecar.settle()
    count = len(hub.seen)
    engine.restart()
    await sidecar.settle()
    assert await sidecar.state() == {"m_a": ("Loaded", D1), "m_b": ("Loaded", D2)}
    assert len(hub.seen) == count


async def test_a_restarted_sidecar_remembers_the_desired_adapters_and_their_state(
    sidecar: Sidecar, engine: Engine, hub: Service
) -> None:
    await sidecar.request(ONE)
    await sidecar.settle()
    engine.calls.clear()
    count = len(hub.seen)
    await sidecar.restart()
    await sidecar.settle()
    assert await sidecar.state() == {"m_a": ("Loaded", D1)}
    assert (engine.calls, len(hub.seen)) == ([], count)


async def test_not_ready_from_the_engine_s_end_until_its_adapters_are_back(sidecar: Sidecar, engine: Engine) -> None:
    assert await sidecar.health() == 200
    await sidecar.request(ONE)
    await sidecar.settle()
    assert await sidecar.health() == 200
    engine.restart()
    await sidecar.agent._observe()
    assert await sidecar.health() == 503
    await sidecar.restart()  # the whole pod's containers may restart
    await sidecar.agent._observe()
    assert await sidecar.health() == 503
    await sidecar.settle()
    assert await sidecar.health() == 200


async def test_an_adapter_that_the_engine_refuses_keeps_no_pod_from_its_work(sidecar: Sidecar, engine: Engine) -> None:
    await sidecar.request(ONE)
    await sidecar.settle()
    engine.restart()
    engine.refuses = "rank 64 is greater than max_lora_rank 16"
    await sidecar.settle()
    assert await sidecar.state() == {"m_a": ("Failed", "")}
    assert await sidecar.message() == "rank 64 is greater than max_lora_rank 16"
    assert await sidecar.health() == 200


async def test_an_engine_that_only_claims_to_have_loaded_is_not_asked_for_ever(
    sidecar: Sidecar, engine: Engine
) -> None:
    engine.adapters["m_a"] = "/elsewhere"
    await sidecar.request(ONE)
    await sidecar.settle()
    assert engine.calls == [("load", "m_a")]
    assert await sidecar.state() == {"m_a": ("Failed", "")}


async def test_adapters_of_others_are_left_alone(sidecar: Sidecar, engine: Engine) -> None:
    engine.adapters["static"] = "/models/static"
    await sidecar.request()
    await sidecar.settle()
    assert engine.calls == []


async def test_nothing_is_removed_before_the_first_request(sidecar: Sidecar) -> None:
    marker = msgspec.json.encode({"url": ONE.url, "revision": "", "files": {}})
    write(sidecar.store.path(Version("m_z", D1)), {".slipway-complete": marker})
    await sidecar.settle()
    assert sidecar.versions() == {Version("m_z", D1)}


async def test_a_source_that_refuses_is_reported_and_tried_again_later(sidecar: Sidecar, hub: Service) -> None:
    await sidecar.request(Adapter("m_a", "hf://acme/none"))
    await sidecar.settle()
    assert await sidecar.state() == {"m_a": ("Failed", "")}
    assert "has no repository acme/none" in await sidecar.message()
    count = len(hub.seen)
    await sidecar.settle()
    assert len(hub.seen) == count


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyError("size")])
async def test_a_fetch_that_breaks_is_reported_and_not_repeated_at_once(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    tries = []

    def breaks(*arguments: object) -> None:
        tries.append(arguments)
        raise fault

    monkeypatch.setattr(sidecar.agent, "_fetch", breaks)
    await sidecar.request(ONE)
    await sidecar.settle()
    await sidecar.settle()
    assert len(tries) == 1
    assert await sidecar.state() == {"m_a": ("Failed", "")}


async def test_a_disk_that_cannot_be_read_does_not_end_the_agent(
    sidecar: Sidecar, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(sidecar.store, "scan", fails)
        assert not await sidecar.agent._safe_step()
    await sidecar.request(ONE)
    await sidecar.settle()
    assert await sidecar.state() == {"m_a": ("Loaded", D1)}


async def test_a_download_that_is_no_longer_desired_ends_and_leaves_nothing(sidecar: Sidecar, hub: Service) -> None:
    async def slow(request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith("safetensors"):
            return None
        response = web.StreamResponse(headers={"Content-Length": "100000"})
        await response.prepare(request)
        with suppress(ConnectionError):
            for _unused in range(10_000):
                await response.write(bytes(10))
                await asyncio.sleep(0.01)
        return response

    hub.interfere = slow
    await sidecar.request(TWO)
    await sidecar.agent.step()
    async with asyncio.timeout(PATIENCE):
        while (await sidecar.request(TWO)).progress is None:  # noqa: ASYNC110  # the agent is reachable only over HTTP
            await asyncio.sleep(0.01)
    await sidecar.request()
    await sidecar.settle()
    assert sidecar.versions() == set()


async def test_an_engine_that_is_gone_is_waited_for(sidecar: Sidecar, engine: Engine, served: Service) -> None:
    await sidecar.request(ONE)
    await sidecar.settle()
    sidecar.agent._engine._url = "http://127.0.0.1:9"
    engine.restart()
    await sidecar.settle()
    assert await sidecar.state() == {"m_a": ("Fetched", "")}
    assert await sidecar.health() == 503
    sidecar.agent._engine._url = served.url
    await sidecar.settle()
    assert await sidecar.state() == {"m_a": ("Loaded", D1)}
    assert await sidecar.health() == 200


async def test_a_busy_engine_keeps_what_it_has(sidecar: Sidecar, served: Service) -> None:
    await sidecar.request(ONE)
    await sidecar.settle()

    async def interfere(_request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=500)

    served.interfere = interfere
    await sidecar.settle()
    assert await sidecar.state() == {"m_a": ("Loaded", D1)}
    assert await sidecar.health() == 200


async def test_an_engine_without_these_calls_is_explained(sidecar: Sidecar, served: Service) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        return web.json_response({"detail": "Not Found"}, status=404) if request.method == "POST" else None

    served.interfere = interfere
    await sidecar.request(ONE)
    await sidecar.settle()
    assert "start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True" in await sidecar.message()


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "is not a list of adapters"),
        (b'[{"name": "x"}]', 400, "is not a list of adapters"),
        (b'[{"name": "../x", "url": "hf://a/b"}]', 400, "is not a valid adapter name"),
        (b'[{"name": "x", "url": "http://169.254.169.254/latest"}]', 400, "is not a URL of hf"),
        (b'[{"name":"x","url":"hf://a/b"},{"name":"x","url":"hf://a/c"}]', 400, "two adapters have the same name"),
        (b"[" + b" " * (1 << 20) + b"]", 413, ""),
    ],
)
async def test_an_invalid_request_for_adapters_is_rejected(
    sidecar: Sidecar, body: bytes, status: int, words: str
) -> None:
    code, text = await sidecar.put(body, sidecar.proof("PUT", "/v1/adapters", body))
    assert code == status
    assert words in text
    assert sidecar.agent.desired == ()


# --- who may say what is loaded ---------------------------------------------------------------------------------------

EVIL = "hf://acme/lora"
"""Of the same digest as the genuine one in the attack: whatever another pod claims of it."""


async def refused(sidecar: Sidecar, body: bytes, headers: dict[str, str], status: int, reason: str) -> None:
    """The request gets this response, and changes neither the desired adapters, nor the engine, nor the disk."""
    before = (sidecar.agent.desired, dict(await sidecar.agent._engine.models()), sidecar.versions())
    code, text = await sidecar.put(body, headers)
    assert (code, reason in text) == (status, True), text
    await sidecar.settle()
    assert (sidecar.agent.desired, dict(await sidecar.agent._engine.models()), sidecar.versions()) == before


@pytest.fixture
async def attacked(sidecar: Sidecar) -> Sidecar:
    """One whose engine answers with the genuine adapter."""
    await sidecar.request(ONE)
    await sidecar.settle()
    return sidecar


NOTHING = b"[]"
BACKDOOR = b'[{"name":"m_a","url":"%s","digest":"%s"}]' % (EVIL.encode(), D1.encode())


@pytest.mark.parametrize("body", [NOTHING, BACKDOOR])
@pytest.mark.parametrize("header", ["", "Bearer x", "Slipway-Ed25519 issued=1,digest=2,signature=3"])
async def test_another_pod_can_neither_unload_nor_swap_an_adapter(attacked: Sidecar, body: bytes, header: str) -> None:
    await refused(attacked, body, {HEADER: header} if header else {}, 401, "only the controller may call this")


async def test_a_pod_with_a_key_of_its_own_is_refused(attacked: Sidecar) -> None:
    headers = {HEADER: SigningKey.generate().proof("PUT", "/v1/adapters", NOTHING, POD, time.time_ns())}
    await refused(attacked, NOTHING, headers, 403, "the signature is not the controller's")


async def test_an_order_for_another_pod_is_refused(attacked: Sidecar) -> None:
    headers = {HEADER: KEY.proof("PUT", "/v1/adapters", NOTHING, "another-pod", time.time_ns())}
    await refused(attacked, NOTHING, headers, 403, "or is for another request or another pod")


async def test_a_proof_for_reading_the_state_changes_nothing(attacked: Sidecar) -> None:
    headers = {HEADER: KEY.proof("GET", "/v1/state", b"", POD, time.time_ns())}
    await refused(attacked, b"", headers, 403, "or is for another request or another pod")


async def test_an_order_with_another_body_is_refused(attacked: Sidecar) -> None:
    genuine = msgspec.json.encode((ONE,))
    await refused(
        attacked, BACKDOOR, attacked.proof("PUT", "/v1/adapters", genuine), 403, "not the one that was signed"
    )


async def test_a_replayed_order_is_refused_also_after_a_restart(sidecar: Sidecar) -> None:
    old = NOTHING, sidecar.proof("PUT", "/v1/adapters", NOTHING)
    assert (await sidecar.put(*old))[0] == 200
    await refused(sidecar, *old, 403, "not newer than the last one")
    await sidecar.request(ONE)
    await sidecar.settle()
    await refused(sidecar, *old, 403, "not newer than the last one")
    await sidecar.restart()
    await sidecar.settle()
    await refused(sidecar, *old, 403, "not newer than the last one")
    assert await sidecar.state() == {"m_a": ("Loaded", D1)}


@pytest.mark.parametrize(
    ("seconds", "words"), [(61, "61 s old by this node's clock"), (-61, "61 s ahead by this node's clock")]
)
async def test_an_order_of_another_time_is_refused(attacked: Sidecar, seconds: int, words: str) -> None:
    headers = attacked.proof("PUT", "/v1/adapters", NOTHING)
    attacked.now = lambda: attacked.issued + seconds * 10**9
    await refused(attacked, NOTHING, headers, 403, words)


@pytest.mark.parametrize("seconds", [59, -59])
async def test_clocks_of_nodes_may_differ_by_less_than_a_minute(sidecar: Sidecar, seconds: int) -> None:
    sidecar.now = lambda: sidecar.issued + seconds * 10**9
    await sidecar.request(ONE)
    await sidecar.settle()
    assert (await sidecar.state())["m_a"] == ("Loaded", D1)


async def test_only_the_controller_may_read_a_loaders_state(attacked: Sidecar) -> None:
    async with attacked.http.get("/v1/state") as answer:
        assert (answer.status, "m_a" in await answer.text()) == (401, False)
    assert await attacked.health() == 200


async def test_a_stranger_is_refused_before_its_body_is_read(attacked: Sidecar) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"["
        await asyncio.Event().wait()

    async with asyncio.timeout(PATIENCE), attacked.http.put("/v1/adapters", data=endless()) as answer:
        assert answer.status == 401


async def test_the_loader_says_itself_of_which_url_its_digest_is(sidecar: Sidecar) -> None:
    """The attack from a review: a request with the digest of the genuine URL and a different URL."""
    await sidecar.put(BACKDOOR, sidecar.proof("PUT", "/v1/adapters", BACKDOOR))
    await sidecar.settle()
    [adapter] = (await sidecar.report()).adapters
    assert (adapter.digest, adapter.loaded) == (agent.version(EVIL), agent.version(EVIL))
    assert adapter.loaded_label == agent.label(EVIL)


async def test_a_version_whose_marker_names_another_url_is_fetched_again(sidecar: Sidecar, engine: Engine) -> None:
    folder = sidecar.store.path(Version("m_a", D1))
    write(folder, {".slipway-complete": msgspec.json.encode({"url": EVIL, "revision": "", "files": {}})})
    await sidecar.request(ONE)
    await sidecar.settle()
    assert await sidecar.state() == {"m_a": ("Loaded", D1)}
    assert msgspec.json.decode((folder / ".slipway-complete").read_bytes())["url"] == ONE.url
    assert engine.calls == [("load", "m_a")]


async def test_adapters_beyond_their_room_are_refused_and_the_others_stay(sidecar: Sidecar) -> None:
    sidecar.room = 150_000
    await sidecar.restart()
    await sidecar.request(OTHER)
    await sidecar.settle()
    third = Adapter("m_c", "hf://acme/lora@main")
    await sidecar.request(OTHER, third)
    await sidecar.settle()
    assert await sidecar.state() == {"m_b": ("Loaded", D2), "m_c": ("Failed", "")}
    message = (await sidecar.report()).adapters[1].message
    assert "the adapter has 97.7 KiB and the other adapters of the pod have" in message
    assert "of 146.5 KiB" in message
    on_disk = sum(file.stat().st_size for file in sidecar.store.path(Version("m_c", third.digest)).rglob("*"))
    assert on_disk < 10_000


async def test_the_loop_runs_by_itself_until_it_is_cancelled(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PERIOD", 0.05)
    task = asyncio.create_task(sidecar.agent.run())
    await sidecar.request(ONE)
    async with asyncio.timeout(PATIENCE):
        while await sidecar.state() != {"m_a": ("Loaded", D1)}:  # noqa: ASYNC110  # the agent is reachable only over HTTP
            await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
