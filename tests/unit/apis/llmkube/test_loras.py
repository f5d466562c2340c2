"""LoRAAdapters: which ones a service's engine loads, the settings of its pods, and the status of each adapter."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.llmkube import ADAPTERS, SERVICES
from slipway.apis.llmkube.api import ADAPTER_INDEXES
from slipway.apis.llmkube.types.lora import KIND
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.kube.caches.store import Change, Store, Stores
from slipway.kube.objects import Key
from slipway.serving.contract.api import InvalidSpecError, Reference, World
from slipway.serving.contract.settings import Settings
from tests import worlds

from . import services
from .services import HUB, SINCE

SGLANG = {"runtime": "sglang", "model": HUB}


def lora(name: str = "sql", since: str = SINCE, **spec: Any) -> dict[str, Any]:
    given = {"inferenceServiceRef": {"name": "chat"}, "name": name, "path": f"/loras/{name}"} | spec
    metadata = {"name": name, "namespace": "models", "uid": f"a-{name}", "generation": 1, "creationTimestamp": since}
    return {"kind": "LoRAAdapter", "metadata": metadata, "spec": given}


def second(**spec: Any) -> dict[str, Any]:
    """A younger adapter of another resource's name, for the same name at the engine."""
    manifest = lora("sql", "2026-11-21T09:30:00Z", **spec)
    return {**manifest, "metadata": {**manifest["metadata"], "name": "younger"}}


def with_loras(world: World, *loras: dict[str, Any]) -> World:
    objects = {Reference(KIND, "models", one["metadata"]["name"]): one for one in loras}
    return worlds.with_objects(world, objects)


def service(*loras: dict[str, Any], **spec: Any) -> World:
    return with_loras(services.world(**(SGLANG | spec)), *loras)


def chat(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "chat", "namespace": "models", "uid": "s", "generation": 1, "creationTimestamp": SINCE}
    given = {"modelRef": "tiny", "runtime": "sglang"} | spec
    return {"kind": "InferenceService", "metadata": metadata, "spec": given, "status": status or {}}


def adapter(
    own: dict[str, Any], *others: dict[str, Any], of: dict[str, Any] | None = None, status: dict[str, Any] | None = None
) -> World:
    resources = [own, *others, *([] if of is None else [of])]
    return World(
        resource={**own, "status": status or {}},
        children={},
        pods=[],
        routed=[],
        settings=Settings(),
        now=1_795_252_000.0,
        listers=worlds.known_world(ADAPTERS, others=resources),
    )


def conditions(world: World) -> dict[str, tuple[str, str]]:
    condition_list = worlds.status(ADAPTERS, world).status["conditions"]
    return {one["type"]: (one["status"], one["reason"]) for one in condition_list}


def refused(world: World) -> InvalidSpecError:
    with pytest.raises(InvalidSpecError) as excinfo:
        worlds.plan(ADAPTERS, world)
    return excinfo.value


def arguments(world: World) -> str:
    return " ".join(services.container(world)["args"])


# The service


def test_a_service_without_adapters_has_its_engine_alone() -> None:
    assert [one["name"] for one in services.pod(service())["spec"]["containers"]] == ["sglang"]
    assert "--enable-lora" not in arguments(service())


def test_a_service_with_an_adapter_gets_a_loader_that_speaks_to_its_engine() -> None:
    engine, loader = services.pod(service(lora()))["spec"]["containers"]
    assert loader["name"] == "loader"
    assert loader["args"][:6] == ["loader", "serve", "--directory", "/adapters", "--engine", "http://127.0.0.1:30000"]
    assert loader["args"][-2:] == ["--engine-kind", "sglang"]
    assert loader["securityContext"]["allowPrivilegeEscalation"] is False
    assert "/adapters" not in [mount["mountPath"] for mount in engine["volumeMounts"]]


def test_sglang_gets_its_adapter_settings_before_any_adapter() -> None:
    assert "--enable-lora --max-lora-rank 64 --lora-target-modules all" in arguments(service(lora()))


def test_adapter_flags_of_the_service_are_not_repeated() -> None:
    command_line = arguments(service(lora(), sglangConfig={"maxLoraRank": 8, "loraTargetModules": ["q_proj"]}))
    assert command_line.count("--max-lora-rank") == command_line.count("--lora-target-modules") == 1
    assert "--max-lora-rank 8" in command_line
    started = arguments(service(lora(), sglangConfig={"loraModules": ["law=/loras/law"]}))
    assert "--max-lora-rank" not in started


def test_vllm_takes_adapters_too() -> None:
    snapshot = service(lora(), runtime="vllm")
    assert "--enable-lora" in arguments(snapshot)
    assert {"name": "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "value": "True"} in services.container(snapshot)["env"]
    loader = services.pod(snapshot)["spec"]["containers"][1]
    assert "--engine-kind" not in loader["args"]


@pytest.mark.parametrize(("runtime", "name"), [("sglang", "sql"), ("vllm", "chat:sql")])
def test_requests_have_the_name_that_the_engine_makes_of_the_id(runtime: str, name: str) -> None:
    """SGLang takes an id apart at its colon; vLLM knows whole ids."""
    adapter_set = worlds.plan(SERVICES, service(lora(), runtime=runtime)).adapters
    assert [(one.name, one.url) for one in adapter_set.adapters] == [(name, "file:///loras/sql")]
    assert [adapter_set.short_name(one) for one in adapter_set.adapters] == ["sql"]


def test_an_engine_that_is_started_for_adapters_has_a_loader_from_the_start() -> None:
    """So that the first adapter replaces no pod."""
    before, after = (services.pod(service(*some, extraArgs=["--enable-lora"])) for some in ((), (lora(),)))
    assert before == after
    assert len(before["spec"]["containers"]) == 2


def test_a_further_adapter_replaces_no_pod() -> None:
    assert services.pod(service(lora())) == services.pod(service(lora(), lora("law")))


def test_the_loader_gets_no_variables_of_the_author() -> None:
    own = [{"name": "HF_TOKEN", "value": "t"}]
    loader = services.pod(service(lora(), runtime="vllm", env=own))["spec"]["containers"][1]
    assert [one["name"] for one in loader["env"]] == ["SLIPWAY_CONTROLLER_KEY", "SLIPWAY_POD_UID"]


def test_a_volume_of_the_author_s_may_be_called_adapters() -> None:
    own = [{"name": "adapters", "persistentVolumeClaim": {"claimName": "loras"}}]
    names = [one["name"] for one in services.pod(service(lora(), extraVolumes=own))["spec"]["volumes"]]
    assert len(names) == len(set(names))


def test_an_adapter_that_goes_is_none_to_load() -> None:
    leaving = lora()
    leaving["metadata"]["deletionTimestamp"] = SINCE
    assert worlds.plan(SERVICES, service(leaving)).adapters.adapters == ()


def test_the_older_of_two_adapters_with_one_name_is_loaded() -> None:
    adapters = worlds.plan(SERVICES, service(second(path="/loras/other"), lora())).adapters.adapters
    assert [one.url for one in adapters] == ["file:///loras/sql"]


# The adapter


def test_a_service_leads_to_the_pods_that_have_the_adapter() -> None:
    [child] = worlds.plan(ADAPTERS, adapter(lora(), of=chat())).children
    assert child["kind"] == "Service"
    assert child["spec"]["selector"]["adapter.slipway.inference/sql"] == "true"
    assert '"models":["chat:sql"]' in child["metadata"]["annotations"]["slipway.inference/route"]


def test_its_service_has_another_name_than_that_of_any_inference_service() -> None:
    [child] = worlds.plan(ADAPTERS, adapter(lora(), of=chat())).children
    assert child["metadata"]["name"].startswith("lora-sql-")


@pytest.mark.parametrize("runtime", ["llamacpp", "tgi", "generic", "personaplex", "llamacpp-router"])
def test_a_runtime_that_loads_none_while_it_runs_is_reported(runtime: str) -> None:
    snapshot = adapter(lora(), of=chat(runtime=runtime))
    assert refused(snapshot).reason == "RuntimeMismatch"
    assert conditions(snapshot) == {
        "Available": ("False", "RuntimeMismatch"),
        "Loaded": ("False", "RuntimeMismatch"),
        "Error": ("True", "RuntimeMismatch"),
    }


def test_no_tenant_loads_an_adapter_into_an_engine_of_another_namespace() -> None:
    foreign = lora(inferenceServiceRef={"name": "chat", "namespace": "others"})
    assert refused(adapter(foreign, of=chat())).reason == "NamespaceNotAllowed"
    assert worlds.plan(SERVICES, service(foreign)).adapters.adapters == ()


@pytest.mark.parametrize(
    "path", ["loras/sql", "acme/lora", "/", "/loras/../etc", "/loras/./x", "/a//b", "/a\n/b", "/" + "x" * 2000]
)
def test_a_path_that_is_not_plain_and_absolute_is_rejected(path: str) -> None:
    assert refused(adapter(lora(path=path), of=chat())).reason == "InvalidSpec"
    assert worlds.plan(SERVICES, service(lora(path=path))).adapters.adapters == ()


def test_a_name_that_labels_cannot_have_is_refused() -> None:
    assert refused(adapter(lora("sql-"), of=chat())).reason == "InvalidSpec"


def test_a_service_that_is_not_there_is_reported() -> None:
    assert refused(adapter(lora())).reason == "ServiceNotFound"


def test_an_engine_on_the_loader_s_port_is_refused() -> None:
    for place in ({"containerPort": 8001}, {"endpoint": {"port": 8001}}):
        assert refused(adapter(lora(), of=chat(**place))).reason == "PortTaken"


def test_the_newer_of_two_reports_the_holder_of_the_name() -> None:
    error = refused(adapter(second(), lora(), of=chat()))
    assert (error.reason, "LoRAAdapter sql" in error.message) == ("AdapterNameTaken", True)
    assert worlds.plan(ADAPTERS, adapter(lora(), second(), of=chat())).children


def test_an_adapter_that_the_engine_is_started_with_keeps_its_name() -> None:
    config = {"loraAdapters": [{"name": "sql", "path": "/x"}]}
    assert refused(adapter(lora(), of=chat(sglangConfig=config))).reason == "AdapterNameTaken"


@pytest.mark.parametrize(
    ("phase", "loaded"),
    [
        ("Loaded", ("True", "Loaded")),
        ("Loading", ("False", "LoadingAdapter")),
        ("Failed", ("False", "AdapterFailed")),
        ("Stopped", ("False", "ScaledToZero")),
    ],
)
def test_an_adapter_says_how_far_the_replicas_are(phase: str, loaded: tuple[str, str]) -> None:
    status = {"adapters": [{"name": "sql", "path": "/loras/sql", "phase": phase, "message": "in pod x: no"}]}
    assert conditions(adapter(lora(), of=chat(status)))["Loaded"] == loaded


def test_an_adapter_loaded_from_another_path_does_not_count() -> None:
    status = {"adapters": [{"name": "sql", "path": "/loras/before", "phase": "Loaded"}]}
    assert conditions(adapter(lora(), of=chat(status)))["Loaded"] == ("False", "ServiceNotReady")


def test_since_when_it_is_loaded_stays_as_it_is() -> None:
    loaded = {"adapters": [{"name": "sql", "path": "/loras/sql", "phase": "Loaded"}]}
    before = {
        "loadedPath": "/loras/sql",
        "lastLoadedAt": "2026-11-21T08:00:00Z",
        "conditions": [{"type": "Loaded", "status": "True"}],
    }
    again = worlds.status(ADAPTERS, adapter(lora(), of=chat(loaded), status=before)).status
    fresh = worlds.status(ADAPTERS, adapter(lora(), of=chat(loaded))).status
    assert again["lastLoadedAt"] == "2026-11-21T08:00:00Z" != fresh["lastLoadedAt"]


# Which resources are enqueued


def enqueued(watched: Any, api: Any, change: Change, *loras: dict[str, Any]) -> set[Key]:
    store = Store(ADAPTER_INDEXES)
    for one in loras:
        store.put(one)
    watch = next(one for one in api.watches(Settings()) if one.kind == watched)
    return set(watch.enqueue(change, Stores({KIND: store})))


def test_a_change_of_an_adapter_enqueues_its_service_and_its_status_none() -> None:
    old, new = lora(), {**lora(), "status": {"loadedPath": "/loras/sql"}}
    assert enqueued(KIND, SERVICES, Change(None, old)) == {Key("models", "chat")}
    assert enqueued(KIND, SERVICES, Change(old, new)) == set()


def test_the_second_is_enqueued_when_the_first_is_deleted() -> None:
    assert enqueued(KIND, ADAPTERS, Change(lora(), None), second()) == {Key("models", "younger")}


def test_news_of_one_adapter_concern_no_other() -> None:
    before = chat({"adapters": [{"name": "sql", "path": "/loras/sql", "phase": "Loading"}]})
    after = chat({"adapters": [{"name": "sql", "path": "/loras/sql", "phase": "Loaded"}]})
    change = Change(before, after)
    assert enqueued(INFERENCE_SERVICE, ADAPTERS, change, lora(), lora("law")) == {Key("models", "sql")}
    assert enqueued(INFERENCE_SERVICE, ADAPTERS, Change(after, None), lora(), lora("law")) == {
        Key("models", "sql"),
        Key("models", "law"),
    }
