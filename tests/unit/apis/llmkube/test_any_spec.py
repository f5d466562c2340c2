"""Whatever the definitions take is planned, or refused with a reason; and its status is one that they keep whole.

A resource whose plan ends in an unexpected error would be retried indefinitely, without a report.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

from slipway.apis.llmkube import MODELS, SERVICES
from slipway.apis.llmkube.types.model import KIND, MODEL
from slipway.apis.llmkube.types.service import INFERENCE_SERVICE
from slipway.kube.objects import Object
from slipway.kube.schemas.core import core_schema
from slipway.serving.contract.api import Api, InvalidSpecError, Reference, Rejection, World
from slipway.serving.contract.settings import Settings, Sources
from tests import worlds
from tests.schemas import RandomObjects, definition_of, faults, filled, schema_of
from tests.tables import each, seeds

SEEDS = seeds(50)
NOW = 1_795_252_000.0
SINCE = "2026-11-21T09:00:00Z"
QUANTITIES = ("", "0", "1", "500m", "24Gi", "1e3", "1e99", ".5", "5.", f"1{'0' * 70}", "8GB")
SOURCES = (
    *("https://models.example/tiny.gguf", "https://user:pw@h.example/x.gguf?sig=1", "https://[::1", "http://"),
    *("http://10.0.0.1/x", "https://h.example/", "https://h.example:99999/a", "https://huggingface.co/acme/tiny"),
    *("https://huggingface.co/acme/tiny/resolve/main/a.gguf", "hf://acme/tiny", "hf://", "hf:///x", "acme/tiny", "aa"),
    *("acme/tiny@v1", "acme/tiny/model.gguf", "s3://bucket/key.gguf", "s3://bucket", "s3://", "pvc://claim/a/b.gguf"),
    *("pvc://claim", "pvc://../x", "/srv/models/a.gguf", "/etc/shadow", "file:///srv/models/a", "file://h/a"),
)
TEXTS = {
    "": ("", "a", "x" * 70, "1", "a b", "é", "\n", "..", "{}", "a.b=int:1", "exps=CPU", *QUANTITIES),
    ".source": SOURCES,
    ".modelRef": ("tiny", "none", ""),
    ".speculative.model": ("small", "none", ""),
    ".sha256": ("a" * 64, "F" * 64),
    ".files[]": ("a.gguf", "b/c-1.gguf", "*.gguf", "[x"),
    ".mmproj": ("mmproj.gguf", "*.gguf"),
    ".resourceName": ("acme.io/gpu", "squat.ai/dri-render"),
    ".tolerationKey": ("acme.io/gpu",),
    ".layerSplit[]": ("0-24", "25-39", "5-3", "x-y", ""),
    ".factor": ("4", "2.5"),
    ".extraArgs[]": ("--port", "--host=::", "--model", "-m", "--embedding", "--tensor-split", "1,2", "--", ""),
    ".claimName": ("mine",),
}
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
POD = core_schema("PodSpec")
NAMES = ("chat", "a.b", "1abc", "x" * 100, f"a{'-' * 10}b")
STATUSES = {
    resource.kind.kind: schema_of(definition_of(resource))["properties"]["status"]
    for resource in (MODEL, INFERENCE_SERVICE)
}
SPECS = {
    resource.kind.kind: schema_of(definition_of(resource))["properties"]["spec"]
    for resource in (MODEL, INFERENCE_SERVICE)
}


def resource(kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": "models", "uid": f"u-{name}", "generation": 1, "creationTimestamp": SINCE}
    return {"kind": kind, "metadata": metadata, "spec": spec, "status": {"phase": "Ready", "observedGeneration": 1}}


def cases(seed: int) -> tuple[tuple[Api, World], ...]:
    """A Model, and a service that serves it and may have a second one propose tokens."""
    dice = Random(seed)
    generator = RandomObjects(dice, TEXTS, dice.choice((0.03, 0.1, 0.3)))
    model, draft, service = (
        filled(SPECS[kind], generator.value(SPECS[kind])) for kind in ("Model", "Model", "InferenceService")
    )
    if dice.random() < 0.5:  # most sources have no files
        model = {field: value for field, value in model.items() if field not in ("files", "mmproj")}
    models = {name: resource("Model", name, spec) for name, spec in (("tiny", model), ("small", draft))}
    settings = Settings(
        system_namespace="slipway-system",
        apis={"llmkube": {"modelCache": {"persistence": dice.choice(("Cached", "Ephemeral"))}}},
        sources=Sources(allowed_host_path_roots=("/srv/models",)),
    )
    common: Any = {
        "children": {},
        "pods": [],
        "routed": [],
        "settings": settings,
        "now": NOW,
    }
    objects = {Reference(KIND, "models", name): model for name, model in models.items()}
    served = resource("InferenceService", dice.choice(NAMES), service)
    return (
        (MODELS, World(resource=models["tiny"], listers=worlds.known_world(MODELS, settings, objects), **common)),
        (SERVICES, World(resource=served, listers=worlds.known_world(SERVICES, settings, objects), **common)),
    )


def planned(api: Api, world: World) -> tuple[Object, ...]:
    try:
        return worlds.plan(api, world).children
    except InvalidSpecError:
        return ()


def refused(api: Api, world: World) -> Rejection | None:
    try:
        assert worlds.plan(api, world) == worlds.plan(api, world)
    except InvalidSpecError as invalid:
        return Rejection(invalid.reason, invalid.message)
    return None


@each(SEEDS)
def test_a_spec_is_planned_or_refused_and_has_a_status_in_any_case(seed: int) -> None:
    for api, world in cases(seed):
        rejection = refused(api, world)
        status = worlds.status(api, world, rejection).status
        for condition in status["conditions"]:
            condition["lastTransitionTime"] = SINCE
        assert faults(STATUSES[world.resource["kind"]], status) == []
        assert rejection is None or rejection.reason.isalpha()
        worlds.finalize(api, world)


@each(SEEDS)
def test_created_objects_have_valid_names_labels_and_pods(seed: int) -> None:
    for api, world in cases(seed):
        for child in planned(api, world):
            metadata = child["metadata"]
            assert (SERVICE_NAME if child["kind"] == "Service" else OBJECT_NAME).fullmatch(metadata["name"])
            assert [value for value in metadata["labels"].values() if not LABEL.fullmatch(value)] == []
            pod = child["spec"].get("template", {}).get("spec")
            assert pod is None or faults(POD, pod) == []


def test_the_dice_throws_specs_of_all_sorts() -> None:
    refusals = [refused(api, world) for seed in SEEDS for api, world in cases(seed)]
    assert 0.2 < refusals.count(None) / len(refusals) < 0.8
    assert len({rejection.reason for rejection in refusals if rejection}) > 4
