"""Whatever the definitions take of services, runtimes and models is planned, or refused with a reason; and the status
is one that the definition keeps whole.

A plan that ends in an unexpected error would be retried indefinitely, without a report.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

import msgspec
import pytest

from slipway.apis.ome import names
from slipway.apis.ome.models.volumes import PREFIX
from slipway.apis.ome.services.table import SERVICES
from slipway.apis.ome.types.model import CLUSTER_BASE_MODEL
from slipway.apis.ome.types.runtime import CLUSTER_SERVING_RUNTIME
from slipway.apis.ome.types.service import SERVICE
from slipway.kube.objects import Object
from slipway.kube.schemas.crd import CustomResource
from slipway.serving.contract.api import InvalidSpecError, Rejection, World
from tests import worlds
from tests.schemas import RandomObjects, faults, filled, schema_of
from tests.tables import each, seeds

from . import services as bench

SEEDS = seeds(30)
QUANTITIES = ("0", "1", "500m", "24Gi", "x")
TEXTS = {
    "": ("", "a", "x" * 70, "1", "a b", "é", "{{.Name}}", "{{.Labels.a}}", "{{", "$(MODEL_PATH)", "..", *QUANTITIES),
    ".name": ("ome-container", "router", "a", "x" * 70, "tiny", "rt"),
    ".image": ("engine:1", ""),
    ".storageUri": ("hf://meta/tiny", "pvc://claim/x", "oci://n/x", "vendor://a/b", "local:///raid/models/a", "x"),
    ".path": ("/raid/models/tiny", "/etc", "..", ""),
    ".fineTunedWeights[]": ("poet", "none"),
    ".command[]": ("python3", "-m", "sglang.launch_server", "vllm", "serve", "--port", "9", "sh", "-c", "a 'b"),
    ".args[]": ("--port=9", "--port", "x", "--served-model-name", "a/b", "--tp-size", ""),
    ".min": ("1B", "x", ""),
    ".scalingThreshold": ("1", "x"),
    ".promServerAddress": ("http://p", "http://[", "x"),
}
ANNOTATIONS = (
    {},
    {names.AUTOSCALER_CLASS: "keda"},
    {names.AUTOSCALER_CLASS: "none"},
    {names.MODE: "VirtualDeployment"},
    {names.MODE: "Serverless"},
    {names.TARGET_UTILIZATION: "a"},
    {names.SERVICE_TYPE: "NodePort"},
)
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def _schema(resource: CustomResource) -> Object:
    """Without fields of which nothing is known but their name."""
    properties: Object = schema_of(msgspec.structs.replace(resource, unsupported={}).manifest())["properties"]
    return properties


SCHEMAS = {one.kind: _schema(one) for one in (SERVICE, CLUSTER_SERVING_RUNTIME, CLUSTER_BASE_MODEL)}


def case(seed: int) -> World:
    dice = Random(seed)
    generator = RandomObjects(dice, TEXTS, dice.choice((0.01, 0.04, 0.1)))

    def spec(resource: CustomResource) -> Object:
        fields: Object = filled(SCHEMAS[resource.kind]["spec"], generator.value(SCHEMAS[resource.kind]["spec"]))
        return fields

    own = spec(SERVICE)
    if dice.random() < 0.8:
        own = {"model": {"name": "tiny"}, **own, "engine": own.get("engine") or {}}
    name = dice.choice(("chat", "chat", "a" * 63, "a.b"))
    service = bench.service(name, dict(dice.choice(ANNOTATIONS))) | {"spec": own}
    runtime = bench.runtime(**(spec(CLUSTER_SERVING_RUNTIME) if dice.random() < 0.5 else {}))
    model = bench.model(**(spec(CLUSTER_BASE_MODEL) if dice.random() < 0.3 else {}))
    return bench.world(service, model, runtime, bench.weight("poet"))


def refused(world: World) -> Rejection | None:
    try:
        assert worlds.plan(SERVICES, world) == worlds.plan(SERVICES, world)
    except InvalidSpecError as invalid:
        return Rejection(invalid.reason, invalid.message)
    return None


@each(SEEDS)
def test_a_service_is_planned_or_refused_and_has_a_status_in_any_case(seed: int) -> None:
    world = case(seed)
    rejection = refused(world)
    status = worlds.status(SERVICES, world, rejection).status
    for condition in status["conditions"]:
        condition["lastTransitionTime"] = bench.SINCE
    assert faults(SCHEMAS[SERVICE.kind]["status"], status) == []
    assert rejection is None or rejection.reason.isalpha()
    worlds.scaling(SERVICES, world)


@each(SEEDS)
def test_created_objects_have_valid_names_and_labels(seed: int) -> None:
    world = case(seed)
    if refused(world):
        return
    for child in bench.plan(world).children:
        name = child["metadata"]["name"]
        assert SERVICE_NAME.fullmatch(name.replace(".", "-") if name.startswith(PREFIX) else name), name
        assert [value for value in child["metadata"]["labels"].values() if not LABEL.fullmatch(value)] == []


def test_the_dice_throws_services_of_all_sorts() -> None:
    refusals = [refused(case(seed)) for seed in SEEDS]
    assert 0.1 < refusals.count(None) / len(refusals) < 0.9
    assert len({rejection.reason for rejection in refusals if rejection}) > 3


@pytest.mark.parametrize("value", [None, "", 1, [], ["a"], {"a": 1}, {"name": 1}, {"name": None}])
@pytest.mark.parametrize("field", ["model", "runtime", "engine", "router", "decoder", "predictor", "kedaConfig"])
def test_values_that_the_definition_would_reject_raise_no_unexpected_error(field: str, value: Any) -> None:
    resource = bench.service()
    resource["spec"][field] = value
    world = bench.world(resource)
    worlds.status(SERVICES, world, refused(world))
