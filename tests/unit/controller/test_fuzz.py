"""Generated text for every decoder of foreign data and every informer: nothing stops, and other objects are unaffected.

The cases are the same in each run. SLIPWAY_FUZZ multiplies the number of seeds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from slipway.apis import DELIVERIES
from slipway.apis.deckhouse.names import USES_MODEL
from slipway.apis.kubeai import KUBEAI
from slipway.apis.kubeai.models import cache as kubeai_cache
from slipway.apis.kubeai.models.resolve import CONFIG_NAME, references, resolve
from slipway.apis.kubeai.settings import InvalidConfigError
from slipway.apis.kubeai.system_yaml import parse
from slipway.apis.llmkube import names
from slipway.apis.llmkube.models import cache as llmkube_cache
from slipway.artifacts.documents import report
from slipway.artifacts.headers import safetensors
from slipway.artifacts.headers.range_reader import MalformedFileError
from slipway.controller import main
from slipway.controller.inputs.catalogs import Catalogs
from slipway.controller.loaders.agents import LoaderClients
from slipway.controller.scaling import autoscaler
from slipway.controller.settings import ControllerSettings
from slipway.decoding import DecodingError, decode_json, decode_yaml
from slipway.gateway.routing import keys
from slipway.gateway.sources.kubernetes import KubernetesSource
from slipway.kube.api.answers import read_event, read_page
from slipway.kube.api.errors import ApiError, error_from_body
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import CONFIG_MAP, ENDPOINT_SLICE, MANAGED_BY, POD, SERVICE, Kind
from slipway.kube.runtime.lease import LeaderElector
from slipway.kube.runtime.manager import Manager
from slipway.kube.values.quantity import multiply
from slipway.kube.values.times import parse_duration
from slipway.serving.contract.api import USES, World
from slipway.serving.contract.settings import Settings
from slipway.serving.routing.route import ROUTE, InvalidRouteError, routed_service
from slipway.serving.wire.agent import Adapter, AgentReport
from tests import documents, goldens, worlds
from tests.ports import reserved_port
from tests.tables import TIMES, seeds

from . import hostile
from .conftest import KEY

GOLDEN = Path(__file__).parents[1] / "apis" / "golden"
OBJECTS = 12
"""Number of objects of each kind, in a list and in a watch."""
SERVERS_OWN = frozenset({"resourceVersion", "uid", "name", "namespace", "apiVersion", "kind"})
"""What the API server writes, or checks, of every object."""
OWNER = {"apiVersion": "kubeai.org/v1", "kind": "Model", "name": "m", "uid": "u", "controller": True}


def routed(annotation: Any) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": {**metadata, "annotations": {ROUTE: annotation}}, "spec": {"ports": [{"name": "http"}]}}


def claim(name: str, annotation: str) -> dict[str, Any]:
    return {"metadata": {"name": "c", "annotations": {name: annotation}}}


def as_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def header_of(data: bytes) -> Any:
    file = len(data).to_bytes(8, "little") + data
    return safetensors.parse(lambda position, size: file[position : position + size])


def world(note: str) -> World:
    """Of a Model of KubeAI's whose claim says this of it."""
    settings = Settings(system_namespace="system")
    empty = World(
        resource=MODEL,
        children={},
        pods=(),
        routed=(),
        settings=settings,
        now=0.0,
        listers=worlds.known_world(KUBEAI, settings),
    )
    claims = {one: claim("models.kubeai.org/m", note) for one in references(MODEL, settings) if one.kind != CONFIG_MAP}
    return worlds.with_objects(empty, claims)


ROUTE_OF = {"models": ["a", "b"], "port": "http", "scale": {"group": "g", "version": "v1"}, "labels": {"x": "y"}}
NOTE = {"uid": "u", "url": "hf://a/b", "timestamp": "2026-01-01T00:00:00Z"}
MODEL = {
    "metadata": {"name": "m", "namespace": "n", "uid": "u"},
    "spec": {"url": "hf://a/b", "engine": "VLLM", "cacheProfile": "c"},
}
RECORD = {"loaded": "2026-01-01T00:00:00Z", "by": "m", "report": {"file": "f", "size": 1}, "seen": {"at": "x"}}
REPORT = {"file": "f", "size": 1, "gguf": {}, "safetensors": {"tensorCount": 1, "parameters": {}, "size": 1}}
TENSORS = {"__metadata__": {}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
STATUS = {"kind": "Status", "code": 409, "details": {"causes": [{"field": "f"}], "retryAfterSeconds": 1}}
ITEM = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"}}
ADAPTERS = [{"name": "a", "url": "hf://a/b", "digest": "d"}]
STATE = {"adapters": [{"name": "a", "digest": "d", "phase": "Loaded"}], "progress": {"doneBytes": 1}}

Decoder = tuple[Any, Callable[[bytes], Any], tuple[type[Exception], ...]]
DECODERS: dict[str, Decoder] = {
    "route": (ROUTE_OF, lambda data: routed_service(routed(as_text(data))), (InvalidRouteError,)),
    "note of a cache": (NOTE, lambda data: kubeai_cache.is_loaded(resolve(world(as_text(data)))), ()),
    "report of a loader": (REPORT, lambda data: report.parse_report(as_text(data)), ()),
    "inventory of a cache": (
        RECORD,
        lambda data: llmkube_cache.read_records(claim(f"{names.LOADED}{'0' * 16}", as_text(data))),
        (),
    ),
    "averages": ({"n/m": 1.5}, lambda data: autoscaler._averages(as_text(data)), ()),
    "header of safetensors": (TENSORS, header_of, (MalformedFileError,)),
    "error": (STATUS, lambda data: error_from_body(409, data, as_text(data)[:500]), ()),
    "list": (
        {"metadata": {}, "items": [ITEM, ITEM]},
        lambda data: read_page(POD, data),
        (ApiError,),
    ),
    "event": ({"type": "ADDED", "object": ITEM}, lambda data: read_event(POD, data), (ApiError,)),
    "request for adapters": (
        ADAPTERS,
        lambda data: decode_json(data, tuple[Adapter, ...], most=1 << 20),
        (DecodingError,),
    ),
    "state of a loader": (STATE, lambda data: decode_json(data, AgentReport, most=1 << 20), (DecodingError,)),
    "configuration": ({"modelRollouts": {"surge": 1}}, lambda data: parse(as_text(data)), (InvalidConfigError,)),
    "YAML": ({"a": [{"b": 1}]}, lambda data: decode_yaml(as_text(data)[:300], most=900), (DecodingError,)),
    "API keys": ({"a": "c2stMQ=="}, lambda data: keys.hash_keys({"data": {"a": as_text(data), "b": 7}}), ()),
    "quantity": ("1Gi", lambda data: multiply(as_text(data), 3), (ValueError,)),
    "duration": ("1h30m", lambda data: parse_duration(as_text(data)), (ValueError,)),
}


def refusal(call: Callable[[], Any], refusals: tuple[type[Exception], ...]) -> str:
    """What one of these exceptions says; empty where there was none."""
    try:
        call()
    except refusals as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_answers_or_refuses_by_its_own_exception(name: str) -> None:
    base, decode, refusals = DECODERS[name]
    random = Random(name)
    for _unused in range(150 * TIMES):
        data = hostile.text(random, base)
        assert len(refusal(partial(decode, data), refusals)) < 5000


# Informers


def examples() -> dict[str, list[dict[str, Any]]]:
    """Objects of each kind, by plural: what the golden examples have, with the labels that informers ask for."""
    objects_by_plural: dict[str, list[dict[str, Any]]] = {
        "services": [routed(json.dumps(ROUTE_OF)) | {"kind": "Service", "apiVersion": "v1"}],
        "pods": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"annotations": {USES: "0=0"}},
                "status": {"phase": "Failed"},
            }
        ],
        "nodes": [
            {"apiVersion": "v1", "kind": "Node", "metadata": {}, "status": {"allocatable": {"nvidia.com/gpu": "1"}}}
        ],
        "endpointslices": [
            {
                "metadata": {"labels": {"kubernetes.io/service-name": "a"}},
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": 8080}],
                "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
            }
        ],
    }
    for path in goldens.examples(*GOLDEN.iterdir()):
        for obj in [documents.read(path)["resource"], *goldens.expected(path)["children"]]:
            if isinstance(obj, dict) and "metadata" in obj and "kind" in obj:
                objects_by_plural.setdefault(plural(obj["kind"]), []).append(obj)
    return objects_by_plural


def plural(kind: str) -> str:
    return {"NetworkPolicy": "networkpolicies", "PriorityClass": "priorityclasses"}.get(kind, f"{kind.lower()}s")


class Hostile:
    """Generates the API server's responses for each collection: foreign objects, and one valid one."""

    def __init__(self, server: Any, seed: str) -> None:
        self.server, self.random, self.examples = server, Random(seed), examples()
        self.numbers = 0
        self.lists: dict[str, int] = {}
        self.watches: dict[str, int] = {}

    def objects(self, kind: str, count: int) -> list[bytes]:
        base = self.examples.get(kind) or [{"metadata": {}, "spec": {}, "data": {"a": "b"}, "status": {}}]
        return [self.object(self.random.choice(base)) for _unused in range(count)]

    def object(self, base: dict[str, Any]) -> bytes:
        self.numbers += 1
        labels = {MANAGED_BY: "slipway", ROUTE: "true", **(base["metadata"].get("labels") or {})}
        own = {"namespace": "tenant", "name": f"x{self.numbers}", "uid": f"u{self.numbers}", "resourceVersion": "90"}
        metadata = {"creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [OWNER], **base["metadata"]}
        manifest = {**base, "metadata": {**metadata, "labels": labels, **own}}
        keep = SERVERS_OWN if self.random.random() < 0.8 else frozenset({"resourceVersion"})
        return hostile.encoded(hostile.changed(self.random, manifest, keep, self.random.randrange(1, 5)))

    async def list(self, request: web.Request) -> web.Response:
        kind = request.path.rpartition("/")[2]
        self.lists[kind] = self.lists.get(kind, 0) + 1
        body = b'{"metadata":{"resourceVersion":"%d"},"items":[%s]}' % (
            self.server.version,
            b",".join(self.objects(kind, OBJECTS)),
        )
        return web.Response(body=body, content_type="application/json")

    async def watch(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        self.watches[kind] = self.watches.get(kind, 0) + 1
        response = web.StreamResponse()
        await response.prepare(request)
        for obj in self.objects(kind, OBJECTS):
            type_ = self.random.choice(("ADDED", "MODIFIED", "MODIFIED", "DELETED", "BOOKMARK"))
            await response.write(b'{"type":"%s","object":%s}\n' % (type_.encode(), obj))
        await response.write(hostile.damaged(self.random, obj).replace(b"\n", b"") + b"\n")
        return response


async def hostile_server(server: Any, kinds: list[Kind], seed: str) -> Hostile:
    """Has the server tell hostile objects in the first list, and in the first watches, of each of these kinds."""
    strangers = Hostile(server, seed)
    for kind in kinds:
        server.fault("GET", f"/{kind.plural}?limit", strangers.list, times=1)
        server.fault("GET", f"/{kind.plural}?watch", strangers.watch, times=2)
    return strangers


GOOD: dict[str, dict[str, Any]] = {
    "Node": {"status": {"allocatable": {"amd.com/gpu": "1"}}},
    "Service": {"spec": {"ports": [{"name": "http", "port": 80}]}},
    "Pod": {"status": {}},
}


def good_name(kind: Kind) -> str:
    """Of ConfigMaps there is one that anybody reads."""
    return CONFIG_NAME if kind == CONFIG_MAP else "good"


def good_path(kind: Kind, informer: Informer) -> str:
    return kind.path(informer._namespace or "tenant", good_name(kind))


async def put_good(server: Any, informer: Informer) -> None:
    kind = informer.kind
    metadata: dict[str, Any] = {
        "labels": {MANAGED_BY: "slipway", ROUTE: "true", "app.kubernetes.io/name": "slipway-gateway"}
    }
    metadata["labels"] |= {one.label: "true" for one in DELIVERIES}
    metadata |= {"ownerReferences": [OWNER], "annotations": {USES: "0=0", USES_MODEL: "m"}}
    await server.put(
        good_path(kind, informer),
        apiVersion=kind.api_version,
        kind=kind.kind,
        metadata=metadata,
        **GOOD.get(kind.kind, {"spec": {}}),
    )


def has_good(informer: Informer) -> bool:
    return any(obj["metadata"]["name"] == good_name(informer.kind) for obj in informer.store.all())


@pytest.mark.parametrize("seed", seeds(1))
async def test_a_controller_goes_on_and_sees_what_is_good(server, client, metrics, start, eventually, seed) -> None:
    settings = ControllerSettings(system_namespace="system", listen=f"127.0.0.1:{reserved_port()}")
    # The process must keep its lease even on a busy machine.
    elector = LeaderElector(client, "system", "boss", metrics=metrics, lease_seconds=900, renew_seconds=600)
    async with aiohttp.ClientSession() as session:
        # No pod of a stranger's is asked: what its address says is not ours to call.
        agents = LoaderClients(client, session, lambda _pod: "http://127.0.0.1:1")
        agents.sign_with(KEY)
        catalogs = Catalogs(client, settings.system_namespace)
        manager = main._manager(settings, client, elector, session, agents, catalogs, metrics)
        informers, faults = list(manager._informers), []
        for informer in informers:
            informer.on_fault(lambda *fault: faults.append(fault))
        strangers = await hostile_server(server, list({one.kind for one in informers}), f"controller {seed}")
        task = start(run(manager))
        await eventually(manager.ready, 120)
        for informer in informers:
            await put_good(server, informer)
        await eventually(lambda: task.done() or all(map(has_good, informers)), 120)
        assert not task.done(), task
        assert faults
        assert strangers.lists.keys() >= {informer.kind.plural for informer in informers}
        task.cancel()
        await asyncio.wait({task})
        await agents.close()


async def run(manager: Manager) -> None:
    await manager.run()


class Consumer:
    """Stands for the gateway's ReconcileLoop."""

    def __init__(self) -> None:
        self.table: Any = None

    def publish(self, snapshot: Any) -> None:
        self.table = snapshot.table


@pytest.mark.parametrize("seed", [pytest.param(one, marks=[pytest.mark.full] if one else []) for one in seeds(3)])
async def test_a_gateway_goes_on_and_routes_what_is_good(server, client, metrics, start, eventually, seed) -> None:
    await hostile_server(server, [SERVICE, ENDPOINT_SLICE], f"gateway {seed}")
    source, consumer = KubernetesSource(client, metrics, None), Consumer()
    task = start(source.run(consumer.publish))
    await eventually(lambda: task.done() or consumer.table is not None)
    for informer in (source._services, source._slices):
        await put_good(server, informer)
    await eventually(lambda: task.done() or "tenant/good" in consumer.table.models)
    assert not task.done(), task


async def test_a_fault_is_reported_by_an_event_of_the_object(server, client, metrics, start, eventually) -> None:
    """In the gateway; the controller is wired in the same way, and both through the same listener."""

    await server.put(SERVICE.path("tenant", "bad"), metadata={"labels": {ROUTE: "true"}, "annotations": 7}, spec={})
    source = KubernetesSource(client, metrics, None)
    start(source.run(lambda _unused: None))
    await eventually(lambda: any(obj.get("reason") == "InvalidObject" for obj in server.objects.values()))
    (event,) = [obj for obj in server.objects.values() if obj.get("reason") == "InvalidObject"]
    assert event["involvedObject"]["name"] == "bad"
    assert event["type"] == "Warning"
    assert b'slipway_object_faults{kind="services"} 1.0' in metrics.text()
