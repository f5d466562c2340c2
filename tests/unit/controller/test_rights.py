"""The rights that the role gives are enough for what the controller does, and its requests stay where they end.

The API server of these tests refuses what the rendered rules do not allow.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest

from slipway.apis import APIS
from slipway.apis.labels import RESERVED
from slipway.controller.inputs.caches import Caches
from slipway.controller.loaders.agents import LoaderClients
from slipway.controller.reconciling.reconciler import Reconciler
from slipway.controller.scaling.scaled import ScaledResources
from slipway.kube.metrics import Metrics
from slipway.kube.objects import CONFIG_MAP, DEPLOYMENT, JOB, Kind
from slipway.kube.writes.events import Recorder
from slipway.serving.contract.settings import Settings

from ..kube.conftest import Fault, refuse
from ..plugins.importable import make_importable
from ..roles.rendering import Rendered
from .conftest import KEY

make_importable()

VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
SYSTEM = "system"
Run = Callable[..., Awaitable[None]]


class Attributes(NamedTuple):
    verb: str
    group: str
    resource: str
    namespace: str


def attributes_of(request: Any) -> Attributes:
    """What the API server's authorizer would see in a request."""
    _api, *rest = request.path.strip("/").split("/")
    group = rest.pop(0) if _api == "apis" else ""
    rest.pop(0)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    verb = VERBS.get(request.method) or ("watch" if "watch" in request.query else "get" if len(rest) > 1 else "list")
    return Attributes(verb, group, "/".join([rest[0], *rest[2:]]), namespace)


class Authorizer(Fault):
    """Refuses what no rule allows, and remembers it."""

    def __init__(self, apis: Sequence[str], namespaces: Sequence[str]) -> None:
        super().__init__("", "", refuse(403, "Forbidden"), 10**9)
        role = Rendered("controller", controller_apis=[*apis], controller_namespaces=[*namespaces])
        self.wide, self.own = role["__controller_cluster_rules"], role["__controller_own_rules"]
        self.tenant, self.namespaces = role["__controller_work_rules"], namespaces
        self.refused: list[Attributes] = []

    def takes(self, request: Any) -> bool:
        access = attributes_of(request)
        own = self.own if access.namespace == SYSTEM else []
        tenant = self.tenant if access.namespace in self.namespaces else []
        if any(_allows(rule, access) for rule in (*self.wide, *own, *tenant)):
            return False
        self.refused.append(access)
        return True


def _allows(rule: dict[str, list[str]], requested: Attributes) -> bool:
    return (
        requested.verb in rule["verbs"]
        and requested.group in rule["apiGroups"]
        and requested.resource in rule["resources"]
    )


@pytest.fixture
async def run(client, session, start) -> AsyncIterator[Run]:
    """Starts a controller for every API, for these namespaces."""
    agents = LoaderClients(client, session)
    agents.sign_with(KEY)

    async def started(*namespaces: str) -> None:
        metrics, settings = Metrics(), Settings(system_namespace=SYSTEM)
        caches = Caches(client, APIS, settings, namespaces=namespaces)
        recorder = Recorder(client, "test", metrics=metrics)
        start(recorder.run())
        for api in APIS:
            reconciler = Reconciler(api, client, caches, settings, recorder, agents, ScaledResources(), RESERVED)
            controller = reconciler.controller(2, metrics)
            start(controller.run())
        for informer in caches.informers:
            start(informer.run())

    yield started
    await agents.close()


def kind_of(group: str, name: str) -> Kind:
    kinds = (api.resource.kind for api in APIS)
    return next(kind for kind in kinds if (kind.group, kind.kind) == (group, name))


async def resources(server, cluster, namespace: str) -> None:
    """One of each kind, with what needs rights beside."""
    files = [{"path": "/etc/extra.txt", "content": "x"}]
    kubeai = {"url": "hf://acme/tiny", "engine": "VLLM", "features": [], "resourceProfile": "cpu:1", "minReplicas": 1}
    specs = {
        ("krypton.ai", "Model"): {"model": "hf://acme/tiny", "engine": "llamacpp", "source": "hf://acme/tiny"},
        ("kubeai.org", "Model"): {**kubeai, "files": files},
        ("inference.llmkube.dev", "Model"): {"source": "https://files.example/tiny.gguf"},
        ("inference.llmkube.dev", "InferenceService"): {"modelRef": "m", "replicas": 1},
    }
    for (group, name), spec in specs.items():
        kind = kind_of(group, name)
        await server.put(cluster.path(kind, "m", namespace), kind=name, apiVersion=kind.api_version, spec=spec)


def list_objects(server, kind: Kind, namespace: str) -> list[str]:
    return [path for path in server.objects if path.startswith(f"{kind.path(namespace)}/")]


@pytest.mark.parametrize("namespaces", [(), ("team-a", "team-b")], ids=["whole-cluster", "namespaces"])
async def test_the_controller_has_the_rights_for_all_its_requests(server, cluster, run, eventually, rest, namespaces):
    authorizer = Authorizer([api.name for api in APIS], namespaces)
    server.faults.append(authorizer)
    await server.put(cluster.path(CONFIG_MAP, "slipway-kubeai", SYSTEM), kind="ConfigMap", data={"system.yaml": "{}"})
    for namespace in ("team-a", "team-b", "others"):
        await resources(server, cluster, namespace)
    await run(*namespaces)
    for namespace in namespaces or ("team-a", "team-b", "others"):
        await eventually(
            lambda place=namespace: list_objects(server, JOB, place) and list_objects(server, DEPLOYMENT, place)
        )
        await eventually(lambda place=namespace: list_objects(server, CONFIG_MAP, place))
    await rest(lambda: len(server.writes))
    assert authorizer.refused == []


async def test_limited_to_namespaces_it_asks_for_nothing_elsewhere_and_makes_nothing_there(
    server, cluster, run, eventually, rest
):
    for namespace in ("team-a", "others"):
        await resources(server, cluster, namespace)
    await run("team-a")
    await eventually(lambda: list_objects(server, DEPLOYMENT, "team-a"))
    await rest(lambda: len(server.writes))
    assert list_objects(server, DEPLOYMENT, "others") == list_objects(server, JOB, "others") == []
    places = {(request.resource, request.namespace) for request in _attributes_of_all(server)}
    assert {namespace for _unused, namespace in places} == {"team-a", SYSTEM, ""}
    wide = {api.resource.kind.plural for api in APIS if not api.resource.kind.namespaced}
    wide |= {"namespaces", "nodes", "persistentvolumes", "priorityclasses"}
    assert {resource for resource, namespace in places if not namespace} == wide
    assert {resource for resource, namespace in places if namespace == SYSTEM} == {"configmaps"}


async def test_files_of_a_model_come_and_go_without_any_list_of_configmaps(server, cluster, run, eventually, rest):
    """An account that lists them can read every tenant's content."""
    await server.put(cluster.path(CONFIG_MAP, "slipway-kubeai", SYSTEM), kind="ConfigMap", data={"system.yaml": "{}"})
    await resources(server, cluster, "team-a")
    await run()
    path = cluster.path(CONFIG_MAP, "model-m-files", "team-a")
    await eventually(lambda: path in server.objects)
    assert server.objects[path]["data"] == {"_etc_extra.txt": "x"}
    place = cluster.path(kind_of("kubeai.org", "Model"), "m", "team-a")
    await eventually(lambda: "slipway.inference/files" in server.objects[place]["metadata"].get("annotations", {}))
    model = server.objects[place]
    without = {field: value for field, value in model["spec"].items() if field != "files"}
    await server.store(place, {**model, "spec": without})
    await eventually(lambda: path not in server.objects)
    await rest(lambda: len(server.writes))
    listed = {
        one.namespace
        for one in _attributes_of_all(server)
        if one.resource == "configmaps" and one.verb in ("list", "watch")
    }
    assert listed == {SYSTEM}


def _attributes_of_all(server) -> list[Attributes]:
    return [attributes_of(one) for one in server.log]
